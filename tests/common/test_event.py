"""The record: its headers in order, ids, sources, times, and its bytes as Kafka's own code reads them."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from headrace_common.kafka.record_batch import BatchBuilder, builder_of
from headrace_common.publishing.batch import Batch, republished
from headrace_common.record.contract import EVENT_RULES, HEADERS, QUARANTINE_HEADERS, QUARANTINE_RULES
from headrace_common.record.encoding import decode, encode, field
from headrace_common.record.event import (
    FIRST_SECOND,
    FRAME_PREFIX,
    LAST_SECOND,
    Envelope,
    FrameIds,
    deterministic_id,
    rfc3339,
    rfc3339_ms,
    source,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.driving import traced
from tests.tiers import examples

NAME = b"d." + b"0" * 32
TIME = b"2023-11-14T22:13:20Z"


class TestRecord:
    """What we write by hand is what aiokafka reads."""

    records = st.tuples(
        st.binary(max_size=300), st.lists(st.tuples(st.text(max_size=10), st.binary(max_size=50)), max_size=9)
    )

    @settings(max_examples=examples(500))
    @given(st.lists(st.tuples(records, st.integers(1_600_000_000_000, 1_800_000_000_000)), min_size=1, max_size=8))
    def test_kafkas_reader_agrees(self, sent: list[tuple[tuple[bytes, list[tuple[str, bytes]]], int]]) -> None:
        assert [decode(encode(*record)) for record, _ in sent] == [record for record, _ in sent]
        batch = builder_of((encode(*record), at) for record, at in sent)
        data = batch.stamped(7, 3, 11)
        read = DefaultRecordBatch(data)
        assert read.validate_crc()
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 3, 11)
        found = list(read)
        assert [(item.value, item.headers, item.timestamp) for item in found] == [
            (value, tuple(headers) if isinstance(found[0].headers, tuple) else headers, at)
            for (value, headers), at in sent
        ]
        assert [item.offset for item in found] == list(range(len(sent)))
        assert all(item.key is None for item in found)
        assert batch.size() == len(data)
        assert batch.record_count() == len(sent)

    def test_many_and_large(self) -> None:
        """Past the tables of short lengths and offsets, with a clock that was set back."""
        sent = [(encode(b"x" * (index % 5000), [("k", b"v")]), 1_700_000_000_000 - index) for index in range(9000)]
        found = list(DefaultRecordBatch(builder_of(sent).stamped(0, 0, 0)))
        assert [item.offset for item in found] == list(range(9000))
        assert [len(item.value) for item in found] == [index % 5000 for index in range(9000)]
        assert [item.timestamp for item in found] == [at for _, at in sent]

    def test_what_does_not_shrink_is_sent_as_it_is(self) -> None:
        noise = hashlib.shake_256(b"x").digest(50_000)
        batch = builder_of([(encode(noise, []), 1)])
        data = batch.stamped(7, 3, 11)
        assert len(data) < len(noise) + 100
        assert next(iter(DefaultRecordBatch(data))).value == noise

    def test_one_record_always_fits_and_the_limit_holds(self) -> None:
        large = encode(b"x" * 1000, [])
        batch = BatchBuilder()
        assert [batch.add(large, 1, 10) for _ in range(2)] == [True, False]
        batch = BatchBuilder(field(b"k"))
        assert [batch.add(large, 1, 5000) for _ in range(6)] == [True] * 4 + [False] * 2
        assert batch.record_count() == 4
        assert batch.size() <= 5000 + 61
        found = [(item.key, item.value) for item in DefaultRecordBatch(batch.stamped(7, 3, 11))]
        assert found == [(b"k", b"x" * 1000)] * 4


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (None, b'{"republished":true}'),
        (b"{}", b'{"republished":true}'),
        (b'{"chunk":"c"}', b'{"chunk":"c","republished":true}'),
        (b'{"metadata":{"republished":true}}', b'{"metadata":{"republished":true},"republished":true}'),
    ],
)
def test_what_is_republished_is_marked_once(attributes: bytes | None, expected: bytes) -> None:
    record = Envelope("forward", "/forward/h", "t").event(NAME, TIME, b'{"v":1}', attributes)
    once = republished(record)
    assert decode(once) == (b'{"v":1}', [*decode(record)[1][:7], ("ce_attributes", expected)])
    assert republished(once) == once


def test_an_envelope_keeps_nothing_of_its_events() -> None:
    """A cache counts its size once, and keeps it for all connections."""
    envelope, raw = Envelope("forward", "/forward/h", "t"), b"x" * 16_000
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        envelope.event(NAME, TIME, b"{}", b'{"raw":"%b"}' % raw)
        assert tracemalloc.get_traced_memory()[0] - before < 1_000


def test_what_waits_for_kafka_is_held_compressed() -> None:
    owner: Any = SimpleNamespace(received_ms=1)
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        batch = Batch("t", 0, 8 << 20)
        for number in range(3000):
            batch.add(encode(b"%d" % number * 250, []), owner)
        assert tracemalloc.get_traced_memory()[0] - before > 2_000_000
        batch.sealed()
        assert tracemalloc.get_traced_memory()[0] - before < 500_000


def test_a_deterministic_id_is_the_rule() -> None:
    fields = (b"a", b"", b"\xff" * 300)
    data = b"".join(struct.pack(">I", len(item)) + item for item in (b"courier", *fields))
    expected = b"d." + hashlib.sha256(data).hexdigest()[:32].encode()
    assert deterministic_id("courier", *fields) == expected
    assert FrameIds(expected[:FRAME_PREFIX])(0xABC) == expected[:26] + b"00000abc"


@pytest.mark.parametrize(
    "identity", ["host", "10.0.0.1", "2001:db8::1", "a/b", "CN=x,O=y z", "50%", "žluť", "?#&", "", "\udcff"]
)
def test_a_source_is_one_path_segment(identity: str) -> None:
    text = source("forward", identity)
    assert text.isascii()
    _, protocol, segment = text.split("/")
    assert protocol == "forward"
    assert unquote(segment) == identity.replace("\udcff", "?")


@settings(max_examples=examples(1_000))
@given(st.integers(FIRST_SECOND, LAST_SECOND), st.integers(0, 999_999_999))
@example(FIRST_SECOND, 0)
@example(LAST_SECOND, 999_999_999)
def test_any_second_has_a_time(seconds: int, nanoseconds: int) -> None:
    expected = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
    assert rfc3339(seconds).decode() == expected + "Z"
    assert rfc3339(seconds, nanoseconds).decode() == f"{expected}.{nanoseconds:09d}Z"
    assert rfc3339(seconds, 5, 3).decode() == f"{expected}.005Z"
    if seconds >= 0:
        assert rfc3339_ms(1000 * seconds + 6).decode() == f"{expected}.006Z"


@pytest.mark.parametrize("seconds", [FIRST_SECOND - 1, LAST_SECOND + 1, 2**63, -(2**63)])
def test_no_time_outside_the_years_1_to_9999(seconds: int) -> None:
    with pytest.raises(ValueError, match="outside the years"):
        rfc3339(seconds)


def test_each_header_has_a_rule_in_the_contracts_order() -> None:
    assert tuple(EVENT_RULES) == HEADERS
    assert tuple(QUARANTINE_RULES) == QUARANTINE_HEADERS
