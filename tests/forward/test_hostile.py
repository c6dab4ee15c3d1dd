"""Soundly framed messages whose parts make no sense: each gives rejects, never an exception."""

from __future__ import annotations

import contextlib

import pytest
from headrace_common.operations.errors import ProtocolError

from tests.forward.driving import NOW_MS, TIME, ack, every_way, pack, session
from tests.fuzz.chance import flat
from tests.fuzz.subjects import made
from tests.tiers import sized

NO_TIMESTAMP = b"\xc7\x05\xff12345"
"""Ext type -1 with five bytes: soundly framed, but msgpack's own decoder raises."""

OPTION = pack({"chunk": "c"})


def with_tag(tag: bytes) -> bytes:
    return b"\x94" + tag + pack(TIME) + pack({"m": 1}) + OPTION


def with_option(option: bytes) -> bytes:
    return b"\x94" + pack("t") + pack(TIME) + pack({"m": 1}) + option


def deep(levels: int) -> bytes:
    return b"\x91" * levels + b"\x01"


def nested_keys(levels: int) -> bytes:
    """A map whose key is a map, whose key is a map, and so on."""
    return b"\x81" * levels + b"\xa1a" + b"\x01" * levels


def short(data: bytes) -> str:
    return data[:8].hex()


TAGS = {
    "no timestamp": NO_TIMESTAMP,
    "deep": deep(70),
    "map": pack({"a": [1, b"\xff"]}),
    "nil": b"\xc0",
    "keys in keys": nested_keys(40),
    "binary": pack(b"\xff\xfe"),
    "surrogate": pack("\udcff"),
}


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_message_whose_tag_is_no_text_is_quarantined_and_acknowledged(tag: bytes) -> None:
    outcome = every_way(with_tag(tag))
    assert outcome.error is None
    assert [(reject.reason.value, reject.raw) for reject in outcome.rejects] == [("bad_message", with_tag(tag))]
    assert (outcome.events, outcome.replies) == ([], [ack("c")])


@pytest.mark.parametrize("chunk", [NO_TIMESTAMP, deep(100), b"\xc3", b"\x80", pack(1.5), pack(TIME)], ids=short)
def test_a_chunk_that_names_nothing_goes_to_quarantine_unanswered(chunk: bytes) -> None:
    data = with_option(b"\x81\xa5chunk" + chunk)
    outcome = every_way(data)
    assert outcome.error is None
    (reject,) = outcome.rejects
    assert (reject.reason.value, reject.raw) == ("bad_message", data)
    assert outcome.replies == []
    assert outcome.unacknowledgeable


def test_the_keys_of_an_option_may_be_encoded_in_any_way() -> None:
    for key in (b"\xd9\x05chunk", b"\xda\0\x05chunk", b"\xdb\0\0\0\x05chunk"):
        assert every_way(with_option(b"\x81" + key + b"\xa1c")).replies == [ack("c")]
    for key in (b"\xa6chunk2", b"\xa4chun", b"\xc4\x05chunk", b"\x91\xa5chunk", b"\xc7\x05\x01chunk"):
        assert every_way(with_option(b"\x81" + key + b"\xa1c")).replies == []


TIMES = [b"\xd4\xfe\x01", b"\xc7\0\x80", NO_TIMESTAMP, deep(70), nested_keys(40), b"\xa11", b"\xc4\0", b"\xc2", b"\x80"]


@pytest.mark.parametrize("time", TIMES, ids=short)
@pytest.mark.parametrize("record", [pack({"m": 1}), b"\x81\xa1f\xca\0\0\0\0", b"\x81\xa1a\xa1\xff"], ids=short)
def test_a_time_that_is_none_is_quarantined_with_its_entry(time: bytes, record: bytes) -> None:
    good, bad = b"\x92" + pack(TIME) + pack({"m": 1}), b"\x92" + time + record
    outcome = every_way(b"\x93" + pack("t") + b"\x93" + good + bad + good + OPTION)
    assert [event.record for event in outcome.events] == [{"m": 1}] * 2
    (reject,) = outcome.rejects
    assert reject.raw == bad
    assert reject.reason.value in ("bad_time", "bad_record")
    assert outcome.replies == [ack("c")]


def test_every_frame_can_be_spoiled_and_comes_back_whole() -> None:
    """What the pump falls back on: it must not raise, and it keeps every byte."""
    seen = 0
    for number in range(sized(100, 1000, 5000)):
        _, sent, _ = made("forward", f"spoiled-{number}")
        driven, data = session(), flat(sent)
        with contextlib.suppress(ProtocolError):
            driven.receive(data, NOW_MS)
        for frame in driven.frames():
            assert frame.spoiled("a test").raw in data
            seen += 1
    assert seen
