"""msgpack to JSON without loss."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pytest
from headrace_common.record.transcoding import MOST_KEYS, Transcoder
from headrace_forward.entries.values import write_ext

from tests.forward.driving import NOW_MS, TIME, Seen, every_way, message, pack, parts_of, session

NAN = struct.pack(">d", math.nan)


def event_of(record: bytes, **limits: Any) -> Seen:
    (event,) = every_way(message(record), **limits).flat
    assert isinstance(event, Seen), event
    return event


def entry(key: bytes, value: bytes) -> bytes:
    return b"\x81" + key + value


ODD = {
    "nan": (entry(b"\xa1a", b"\xcb" + NAN), '{"a":"NaN"}', "numbers"),
    "nan of 32 bits": (entry(b"\xa1a", b"\xca" + struct.pack(">f", math.nan)), '{"a":"NaN"}', "numbers"),
    "infinity": (entry(b"\xa1a", b"\xcb" + struct.pack(">d", math.inf)), '{"a":"Infinity"}', "numbers"),
    "minus infinity": (entry(b"\xa1a", b"\xcb" + struct.pack(">d", -math.inf)), '{"a":"-Infinity"}', "numbers"),
    "integer key": (entry(b"\x07", b"\x01"), '{"7":1}', "other_keys"),
    "binary key": (entry(b"\xc4\x01\xff", b"\x01"), '{"$bin:/w==":1}', "other_keys"),
    "nil as a key": (entry(b"\xc0", b"\x01"), '{"null":1}', "other_keys"),
    "float as a key": (entry(b"\xcb" + struct.pack(">d", 1.5), b"\x01"), '{"1.5":1}', "other_keys"),
    "ext as a key": (entry(b"\xd4\x05a", b"\x01"), '{"{\\"$ext\\":[5,\\"YQ==\\"]}":1}', "other_keys"),
    "repeated key": (b"\x83\xa1a\x01\xa1b\x02\xc4\x01a\x03", '{"a":1,"b":2,"a":3}', "repeated_keys"),
    "Latin-1": (entry(b"\xa1\xe9", b"\xa1\xff"), '{"é":"ÿ"}', "invalid_utf8"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("within", [False, True])
def test_what_json_cannot_hold_is_kept_as_it_came(name: str, within: bool) -> None:
    record, text, note = ODD[name]
    if within:
        record, text = entry(b"\xa1x", b"\x91" + record), f'{{"x":[{text}]}}'
    event = event_of(record)
    assert event.value.decode() == text
    assert event.attributes["notes"] == [note]
    assert base64.b64decode(event.attributes["raw"]) == b"\x92" + pack(TIME) + record


def test_of_many_keys_none_are_compared() -> None:
    """A map may have as many as are remembered; of one with more, what came is kept."""
    for count, noted in ((MOST_KEYS, None), (MOST_KEYS + 1, ["repeated_keys"])):
        record = {f"k{number}": number for number in range(count)}
        event = event_of(pack(record))
        assert (event.record, event.attributes.get("notes")) == (record, noted)


@pytest.mark.parametrize("key", [b"\x91\x01", b"\x81\xa1a\x01"])
def test_a_key_that_is_a_container_goes_to_quarantine(key: bytes) -> None:
    (reject,) = every_way(message(entry(key, b"\x01"))).rejects
    assert reject.reason.value == "bad_record"


def test_what_is_not_whole_or_goes_on() -> None:
    for raw in (
        b"",
        b"\x91",
        b"\x81\xa1a",
        b"\xa5a",
        b"\xcc",
        b"\xcb\0",
        b"\xc9\xff\xff\xff\xff",
        b"\x01\x01",
        b"\xd4",
    ):
        with pytest.raises(ValueError, match="not one whole msgpack object"):
            list(Transcoder(64, 1 << 20, write_ext).write(raw))


def test_both_sides_of_the_limit_of_a_long_one() -> None:
    record = b"\x81\xa1a\xda\x80\0" + b"x" * 0x8000
    for limit, reason in ((0x8000 + 100, None), (0x8000 + 1, "oversized")):
        driven = session(event_bytes=limit)
        driven.receive(b"\x93\xa1t\x91\x92\x01" + record + pack({}), NOW_MS)
        (part,) = parts_of(*driven.frames())
        assert getattr(getattr(part, "reason", None), "value", None) == reason
