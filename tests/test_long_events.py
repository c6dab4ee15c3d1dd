"""One event of any shape is built in steps, in every protocol: others run between them. Its memory follows its bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import Any, Final

import pytest
from headrace_common.record.event import Envelope, Reject
from headrace_common.record.json_object import SHORT
from headrace_common.session.interface import Frame, Message
from headrace_segment.events import BlockFrame
from headrace_segment.store.records import Numbering
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.parser import Block

from tests.driving import NOW_MS, traced
from tests.fuzz.growth import DOCUMENTS, GROWING, PACKED, Growing, Meter, reads

SHAPES: Final = {
    each.name: each for each in GROWING if each.name.partition(": ")[2] in {*DOCUMENTS, *PACKED, "a_value"}
}
"""What grows in one event, in every protocol."""

REFUSED: Final = ("levels", "keys in keys", "half a letter")
"""Ends at its beginning."""

ONE_TEXT: Final = ("a text", "a wide letter", "bytes", "no UTF-8", "a name", "digits")
"""Is one value, which some readers take at once."""

IN_STEPS: Final = [name for name in SHAPES if not any(each in name for each in REFUSED) and not name.endswith(ONE_TEXT)]


def number(growing: Growing, size: int) -> int:
    """Returns how many things make an event of about so many bytes."""
    make = DOCUMENTS.get(growing.name.partition(": ")[2], PACKED.get(growing.name.partition(": ")[2], bytes))
    return max(1, 512 * size // len(make(512)))


def frame_of(growing: Growing, arriving: Iterable[Any]) -> Frame:
    """Returns the frame of one event."""
    meter = Meter(growing.session())
    for read in arriving:
        meter.read(read)
    (frame,) = meter.frames
    return frame


@pytest.mark.parametrize("name", IN_STEPS)
def test_long_events_are_built_in_steps(name: str) -> None:
    """Four times the bytes are four times the steps."""
    growing = SHAPES[name]
    sent = [reads(growing.session(), growing.sent(number(growing, size))) for size in (20_000, 80_000)]
    frames = [frame_of(growing, arriving) for arriving in sent]
    few, many = (1 + sum(isinstance(run, int) for run in frame.runs()) for frame in frames)
    assert many >= 80_000 // SHORT
    assert 3 * few - 4 <= many <= 5 * few + 4


MOST = 5
"""Bytes of memory for each byte of an event, as it came or as it is stored, whichever is more."""

PIECES = 64 << 10
"""Bytes of memory beside: pieces, small tables, a read."""


def own(read: Any) -> Any:
    """Returns a copy of what arrives, as a transport gives it: nobody else has it."""
    if isinstance(read, Message):
        return Message([own(part) for part in read.parts], read.route, read.address)
    return bytes(bytearray(read))


def memory_of(growing: Growing, size: int) -> tuple[int, int]:
    """Returns the bytes of memory that an event takes at most, from its first byte until it is made; and its own bytes."""
    arriving = list(reads(growing.session(), growing.sent(number(growing, size))))
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        (part,) = frame_of(growing, map(own, arriving)).parts()
        memory = tracemalloc.get_traced_memory()[1] - before
    return memory, max(size, len(part.raw if isinstance(part, Reject) else part))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.long] * name.startswith("forward, packed")
        )  # read as one that comes alone
        for name in SHAPES
        if not name.endswith((*REFUSED, "without an end"))
    ],
)
def test_an_event_takes_at_most_five_times_its_bytes(name: str) -> None:
    """Objects would take up to a hundred times as much, orjson eight bytes for each byte of a text, and Python four for each
    letter if one of them is wide.
    """
    memory, size = memory_of(SHAPES[name], 1 << (18 if name.endswith(": bytes") else 17))
    assert size < memory <= MOST * size + PIECES


def test_a_segments_event_takes_at_most_five_times_its_bytes() -> None:
    """The run that it came in counts."""
    size = 1 << 18
    data = HEADER.pack(int(Kind.EVENT), size) + bytes(size)
    about = Envelope("segment", "/segment/x", "s")
    frame = BlockFrame("s", Block(b"w" * 16, 0, 1, data, 1), Numbering.EVENTS, NOW_MS, about, 2 * size)
    with traced():
        (part,) = frame.parts()
        memory = len(data) + tracemalloc.get_traced_memory()[1]
    assert len(part) < memory <= MOST * size + PIECES
