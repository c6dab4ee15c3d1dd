"""Event ids: the rule of the design, computed apart, and when a chunk may name the content instead of the sending."""

from __future__ import annotations

import base64
import hashlib
import itertools
import struct
from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest
from headrace_common.session.interface import Peer

from tests.driving import Seen
from tests.forward.driving import NOW_MS, Outcome, drive, event_time, every_way, pack, parts_of, session
from tests.ids import hashed

TWENTY = orjson.loads((Path(__file__).parent / "ids.json").read_bytes())
NOW = NOW_MS // 1000
YEAR = 366 * 86_400


def by_the_rule(tag: bytes, chunk: bytes, entries: bytes) -> str:
    """The first 24 hex digits."""
    return hashed(b"forward", tag, chunk, entries)[:24]


@pytest.mark.parametrize("case", TWENTY, ids=[case["name"] for case in TWENTY])
def test_the_twenty_that_are_written_down(case: dict[str, Any]) -> None:
    tag, chunk, entries, data = (bytes.fromhex(case[name]) for name in ("tag", "chunk", "entries", "message"))
    prefix = by_the_rule(tag, chunk, entries)
    assert case["ids"] == [f"d.{prefix}{index:08x}" for index in range(len(case["ids"]))]
    assert [event.id for event in every_way(data).events] == case["ids"]


def sent(*records: Any, tag: Any = "t", chunk: Any = "chunk", times: Any = None) -> bytes:
    times = times or [event_time(NOW, 123_456_789)] * len(records)
    body = b"".join(pack([time, record]) for time, record in zip(times, records, strict=True))
    return pack([tag, body, {} if chunk is None else {"chunk": chunk}])


def ids(data: bytes, **limits: Any) -> list[str]:
    outcome: Outcome = drive([data], **limits)
    assert not outcome.rejects
    return [event.id for event in outcome.events]


def test_tags_that_are_no_text_are_different() -> None:
    every = [ids(sent({"a": 1}, tag=tag))[0] for tag in ("", b"\xff", b"\xfe", 5, 6, None, "5", [1])]
    assert len(set(every)) == len(every)


def test_without_a_chunk_every_id_is_new() -> None:
    data = sent({"a": 1}, {"a": 2}, chunk=None)
    first, again = ids(data), ids(data)
    assert len({*first, *again}) == 4
    assert all(event_id.startswith("u.") and len(event_id) == 34 for event_id in first)
    assert [event_id[26:] for event_id in first] == ["00000000", "00000001"]


def go_chunk(seconds: int) -> str:
    return base64.b64encode(struct.pack("<Q", seconds) + b"\x01\xff" * 4).decode()


CONTENT_HASHES = {
    "32 hex digits": "0123456789abcdef0123456789ABCDEF",
    "24 base64 characters": base64.b64encode(hashlib.sha512(b"x").digest()[:16]).decode(),
    "a time long ago": go_chunk(NOW - YEAR - 1),
    "a time far ahead": go_chunk(NOW + YEAR + 1),
    "as bin": base64.b64encode(hashlib.sha512(b"y").digest()[:16]),
    "18 bytes in base64": base64.b64encode(b"\xff" * 18).decode(),
}
SENDINGS = {
    "25 bytes with a newline": "z4PhNX7vuL3xVChQ1m2ABw==\n",
    "24 bytes with a newline": "z4PhNX7vuL3xVChQ1m2ABw=\n",
    "Go's, now": go_chunk(NOW),
    "Go's, at the edge": go_chunk(NOW - YEAR),
    "Go's, at the other": go_chunk(NOW + YEAR),
    "31 hex digits": "0" * 31,
    "33 hex digits": "0" * 33,
    "32 characters, not hex": "g" + "0" * 31,
    "hex with spaces": " " + "0" * 31,
    "24 characters, no base64": "!" * 24,
    "24 characters, urlsafe": "_" * 24,
    "24 characters, wrong padding": "=" * 24,
    "no ascii": b"\xff" * 24,
    "a number": 12345,
    "short": "c",
}
MILLISECONDS: dict[str, Any] = {
    "integer": NOW,
    "whole second": event_time(NOW, 0),
    "whole millisecond": event_time(NOW, 123_000_000),
    "float": NOW + 0.25,
    "float of milliseconds": NOW + 0.125,
    "nil": None,
    "zero": 0,
    "zero as float": 0.0,
    "carried over": event_time(NOW, 1_000_000_000),
}
FINER: dict[str, Any] = {
    "nanosecond": event_time(NOW, 1),
    "microsecond": event_time(NOW, 123_456_000),
    "float of microseconds": NOW + 0.0625 + 0.03125 + 0.015625 / 32,
    "carried over": event_time(NOW, 1_000_000_001),
}
ANY_TIME = MILLISECONDS | {f"{name}, finer": time for name, time in FINER.items()}
RECORDS = {"fast": {"a": 1}, "slow": {"a": b"\xff"}}


def of_one(chunk: Any, time: Any, record: Any) -> str:
    (event_id,) = ids(sent(record, chunk=chunk, times=[time]))
    return event_id


NAMED = {
    f"{chunk}, {time}": (chunks[chunk], times[time], kind)
    for chunks, times, kind in (
        (CONTENT_HASHES, MILLISECONDS, "u."),
        (CONTENT_HASHES, FINER, "d."),
        (SENDINGS, ANY_TIME, "d."),
    )
    for chunk, time in itertools.product(chunks, times)
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize(("chunk", "time", "kind"), NAMED.values(), ids=NAMED)
def test_a_hash_of_the_content_names_its_sending_by_a_fine_time_alone(
    chunk: Any, time: Any, kind: str, record: Any
) -> None:
    """Two equal lines within a millisecond have the same chunk then: their ids must not be the same."""
    assert of_one(chunk, time, record).startswith(kind)


NOTHING = hashlib.sha512(b"").digest()[:16]


@pytest.mark.parametrize(
    "chunk", ["", b"", base64.b64encode(NOTHING).decode(), NOTHING.hex(), base64.b64encode(NOTHING)]
)
@pytest.mark.parametrize("time", ANY_TIME.values(), ids=ANY_TIME)
def test_the_hash_of_nothing_names_nothing_nor_does_an_empty_chunk(chunk: Any, time: Any) -> None:
    """Fluent Bit's in Message mode: equal lines of two hosts, or of one, have nothing that tells them apart."""
    assert of_one(chunk, time, {"a": 1}).startswith("u.")
    whole = pack(["t" * 2000, 1, {"m": 1}, {"chunk": chunk}])
    assert drive([whole]).rejects[0].id.startswith(b"u.")


def named(identity: str, data: bytes) -> str:
    driven = session(Peer("192.0.2.7", 1, identity, certified=True))
    driven.receive(data, NOW_MS)
    (frame,) = driven.frames()
    (part,) = parts_of(frame)
    return part.id if isinstance(part, Seen) else part.id.decode()


@pytest.mark.parametrize("data", [sent({"a": 1}), sent({"a": 1}, tag="t" * 2000), b'["t",1,{},{"chunk":"c"}]'])
def test_two_clients_with_certificates_share_no_id(data: bytes) -> None:
    """Also if the name in the certificate is the peer's address."""
    ids = [named(identity, data) for identity in ("a", "b", "192.0.2.7")]
    assert len(set(ids)) == 3
    assert ids == [named(identity, data) for identity in ("a", "b", "192.0.2.7")]
    assert all(name.startswith("d.") for name in ids)


def test_the_clients_name_stands_before_the_entries() -> None:
    entry = pack([event_time(NOW, 123_456_789), {"a": 1}])
    name = hashed(b"forward", b"t", b"chunk", b"web-1", entry)[:24]
    assert named("web-1", sent({"a": 1})) == f"d.{name}00000000"


def test_each_entry_is_judged_by_its_own_time() -> None:
    times = [event_time(NOW, 5), event_time(NOW, 5_000_000), NOW, event_time(NOW, 7)]
    kinds = [event_id[:2] for event_id in ids(sent(*[{"a": 1}] * 4, chunk="0" * 32, times=times))]
    assert kinds == ["d.", "u.", "u.", "d."]


def test_a_whole_message_in_quarantine_has_its_chunks_id() -> None:
    data = pack(["t", msgpack.ExtType(5, b""), {"m": 1}, 7])
    first, again = drive([data]), drive([data])
    assert first.rejects[0].id != again.rejects[0].id  # no option that could be read, no chunk
    data = pack(["t" * 2000, 1, {"m": 1}, {"chunk": "c"}])
    first, again = drive([data]), drive([data])
    assert first.rejects[0].id == again.rejects[0].id
    assert first.rejects[0].id.startswith(b"d.")


def test_each_event_and_reject_of_a_message_has_an_id_of_its_own() -> None:
    """Equal ones, with one chunk, at one time: as JSON, and what goes to quarantine."""
    entries = [[1795668710, {"a": "x" * 200}]] * 3  # short entries are cut in another way
    found = drive([orjson.dumps(["t", entries, {"chunk": "c"}])])
    assert len({event.id for event in found.events}) == 3
    rejects = drive([pack(["t", [[1, "no map"]] * 3, {"chunk": "c"}])]).rejects
    assert len({each.id for each in rejects}) == 3
