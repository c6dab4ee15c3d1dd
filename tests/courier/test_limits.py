"""What a hostile client can make of a payload. Most limits are in `tests/fuzz/limits.py`, with both sides."""

from __future__ import annotations

import random
from typing import Any

import pytest
from headrace_common.operations.settings import MIB
from headrace_common.session.inflate import SLICE
from headrace_courier.wire import HEADER, entry, jdat

from tests.courier.driving import NONCE, content, drive, every_way, numbered, payload, session
from tests.driving import feed

WHOLE = content(numbered(3))
BOTH = pytest.mark.parametrize("kind", [b"JDAT", b"EVNT"])


# What ends a conversation, and stores nothing of its payload


@BOTH
def test_a_stream_that_is_not_sound(kind: bytes) -> None:
    damages: list[dict[str, Any]] = [{"flip": at} for at in (0, 1, 10, -1, -4)]  # the last two of the checksum
    if kind == b"JDAT":  # where a stream ends shows where an EVNT ends
        damages += [{"cut": 1}, {"cut": 4}, {"cut": 30}, {"more": b"\0"}, {"more": b"garbage"}]
    for damage in damages:
        outcome = every_way(payload(WHOLE, kind=kind, **damage) + jdat(NONCE, numbered(1)))
        assert outcome.error is not None, damage
        assert (outcome.error.offset, outcome.parts, outcome.acknowledged) == (0, [], [])


@BOTH
@pytest.mark.parametrize(
    "inside",
    [
        *(WHOLE[:-missing] for missing in (1, 3, 4, 5, 100)),
        *(WHOLE + rest for rest in (b"\0", bytes(3), b"\0\0\0\1", b"\0\0\0\3{}")),
    ],
    ids=len,
)
def test_a_truncated_entry(kind: bytes, inside: bytes) -> None:
    outcome = every_way(payload(inside, kind=kind))
    assert "inside an entry" in str(outcome.error)
    assert outcome.parts == []


def test_a_stream_that_needs_a_dictionary_is_refused() -> None:
    outcome = every_way(b"EVNT" + b"\xff" * 4 + bytes(16) + b"x \0\0\0\0")
    assert str(outcome.error) == "does not inflate: it needs a dictionary"


# Sizes


def test_an_unknown_message_of_the_largest_size_and_more() -> None:
    assert every_way(HEADER.pack(b"NEWS", 3000) + bytes(3000), frame_bytes=3000, event_bytes=2000).error is None
    outcome = every_way(HEADER.pack(b"NEWS", 3001) + bytes(3001), frame_bytes=3000, event_bytes=2000)
    assert outcome.error is not None
    assert outcome.error.limit == "LIMITS__FRAME_BYTES"


@BOTH
@pytest.mark.parametrize("rest", [0, 100, 2999, 3001])
def test_an_entry_is_refused_as_it_is_announced(kind: bytes, rest: int) -> None:
    outcome = every_way(payload((3001).to_bytes(4, "big") + bytes(rest), kind=kind), frame_bytes=3000, event_bytes=2000)
    assert outcome.error is not None
    assert (outcome.error.limit, outcome.parts) == ("LIMITS__FRAME_BYTES", [])


@pytest.mark.parametrize("size", [SLICE - 1, SLICE, SLICE + 1, SLICE + 3, 2 * SLICE, 2 * SLICE + 1])
@BOTH
def test_where_slices_meet(kind: bytes, size: int) -> None:
    """The decompressor may stop for want of room with bytes in hand that belong to the next message."""
    for noise in (bytes(size - 4), random.Random(1).randbytes(size - 4)):
        first = payload(content([noise]), kind=kind)
        data = first + jdat(NONCE, [])
        for at in (len(data), len(first) - 4, len(first), len(first) + 4):
            outcome = drive([data[:at], data[at:]])
            assert outcome.acknowledged == [(NONCE, 1), (NONCE, 0)]
            assert outcome.flat[0].raw == noise  # type: ignore[union-attr]


# Bombs


def bomb(size: int, kind: bytes) -> bytes:
    """Entries of a MiB, all zeros."""
    return payload(entry(bytes(MIB - 4)) * (size // MIB), kind=kind, level=9)


@BOTH
def test_what_is_not_finished_is_not_kept_inflated(kind: bytes) -> None:
    """Else some hundred bytes of each of some clients would take all others' share of memory, for as long as they like."""
    data = bomb(60 * MIB, kind)[:-1]
    driven = session()
    feed(driven, data)
    assert len(data) - 1024 < driven.status().partial_bytes < len(data) + 1024
    feed(driven := session(), payload(whole := content(numbered(1000)), kind=kind))
    (frame,) = driven.frames()
    assert frame.size > len(whole), "what is finished is"
