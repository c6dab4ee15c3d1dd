"""An event that is made in steps takes memory that follows its bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from headrace_common.record.transcoding import TooLongError, Transcoder
from headrace_forward.entries.values import write_ext

from tests.forward.driving import NOW_MS, pack, parts_of, session
from tests.long_events import MSGPACK

MIB = 1 << 20

PIECES = 64 << 10
"""Bytes of memory for a piece of a text, and what a library reserves for it."""


@pytest.mark.parametrize("shape", MSGPACK.values(), ids=MSGPACK)
def test_memory_follows_the_limit(shape: Callable[[int], bytes]) -> None:
    """Objects would take up to a hundred times as much. Beside the bytes as written, a map of small pairs takes some bytes for
    each key, and orjson eight for each byte of a text, which is written in pieces.
    """
    limit = MIB // 8
    record = shape(limit)
    transcoder = Transcoder(64, limit, write_ext)
    tracemalloc.start()
    try:
        for _ in transcoder.write(record):
            pass
    except TooLongError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 3 * limit + PIECES


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
            list(Transcoder(64, MIB, write_ext).write(raw))


def test_both_sides_of_the_limit() -> None:
    record = b"\x81\xa1a\xda\x80\0" + b"x" * 0x8000
    for limit, reason in ((0x8000 + 100, None), (0x8000 + 1, "oversized")):
        driven = session(event_bytes=limit)
        driven.receive(b"\x93\xa1t\x91\x92\x01" + record + pack({}), NOW_MS)
        (part,) = parts_of(*driven.frames())
        assert getattr(getattr(part, "reason", None), "value", None) == reason
