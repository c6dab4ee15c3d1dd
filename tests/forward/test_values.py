"""msgpack to JSON without loss."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.record.transcoding import MOST_KEYS, Transcoder
from headrace_forward.entries.values import write_ext

from tests.forward.driving import NOW_MS, Seen, every_way, message, pack, parts_of, session


def event_of(record: bytes, **limits: Any) -> Seen:
    (event,) = every_way(message(record), **limits).flat
    assert isinstance(event, Seen), event
    return event


def entry(key: bytes, value: bytes) -> bytes:
    return b"\x81" + key + value


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
