"""One event of any shape is built in steps, in every protocol: others run between them. Its memory follows its bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from headrace_common.record.event import Envelope, Event
from headrace_common.record.json_object import SHORT
from headrace_common.record.json_text import Bytes
from headrace_common.session.interface import Message, MessageSession
from headrace_segment.events import BlockFrame
from headrace_segment.store.records import Numbering
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.parser import Block

from tests.driving import NOW_MS, feed, traced
from tests.logjam import driving as logjam
from tests.long_events import CASES, Case, frame_of

READ = 16 << 10
"""Bytes of a read."""

AT_ONCE = {"too deep", "not UTF-8", "plain text", "one wide letter", "one text that is not UTF-8"}
"""Ends at its beginning, or is one text."""

WAYS = ("forward", "courier", "logjam")

OF_BRACKETS = ("arrays 60 deep", "maps 60 deep", "empty arrays", "small maps")
"""Shapes in which the elements of Forward's JSON are searched for: of others a library cuts them in one fast call."""

IDS_OVER_ALL = tuple(shape for shape in CASES["lumberjack v2"].shapes if "id over all" in shape)


def steps_of(case: Case, event: bytes) -> int:
    """How many steps building an event takes."""
    frame = frame_of(case, event)
    assert frame is not None
    return 1 + sum(isinstance(run, int) for run in frame.runs())


@pytest.mark.parametrize(
    ("way", "shape"),
    [
        *((way, shape) for way in WAYS for shape in CASES[way].shapes if shape not in AT_ONCE),
        *(("forward JSON", shape) for shape in OF_BRACKETS),
        *(("lumberjack v1", shape) for shape in CASES["lumberjack v1"].shapes if shape not in AT_ONCE),
        *(("lumberjack v2", shape) for shape in IDS_OVER_ALL if shape.partition(",")[0] not in AT_ONCE),
    ],
)
def test_long_events_are_built_in_steps(way: str, shape: str) -> None:
    """Four times the bytes are four times the steps."""
    case = CASES[way]
    few, many = (steps_of(case, case.shapes[shape](size)) for size in (20_000, 80_000))
    assert many >= 80_000 // SHORT
    assert 3 * few - 4 <= many <= 5 * few + 4


TEXTS = [
    (way, shape)
    for way in CASES
    for shape in ("plain text", "one wide letter", "not UTF-8", "one text that is not UTF-8")
]


OF_FIELDS = tuple(
    (way, shape) for way in ("courier", "logjam", "lumberjack v2") for shape in CASES[way].shapes if "wide" in shape
)

SMALL_VALUES = (
    ("forward", "bins"),
    ("forward", "integer keys"),
    ("forward", "one key"),
    ("forward", "empty key"),
    ("forward", "short keys"),
    ("forward", "short keys twice"),
    ("forward", "small maps of integer keys"),
    ("courier", "keys that are not UTF-8"),
    ("lumberjack v1", "short values"),
    ("lumberjack v1", "keys twice"),
    ("lumberjack v1", "keys that are not UTF-8"),
)
"""Shapes of small values that have taken most."""

OF_MAPS = (("forward JSON", "small maps"), ("logjam", "maps 60 deep"), ("lumberjack v2", "maps 60 deep, id over all"))

MOST = 5
"""Bytes of memory for each byte of an event, as it came or as it is stored, whichever is more."""

PIECES = 64 << 10
"""Bytes of memory beside: pieces, small tables, a read."""


def memory_of(case: Case, event: bytes) -> tuple[int, int]:
    """Returns the bytes of memory that an event takes at most, from its first byte until it is made; and its own bytes."""
    driven, sent = case.session(), case.sent(event)
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        if isinstance(driven, MessageSession):
            assert isinstance(sent, list)
            driven.receive(Message([bytes(bytearray(part)) for part in sent], logjam.ROUTE, logjam.ADDRESS), NOW_MS)
        else:
            assert isinstance(sent, bytes)
            for at in range(0, len(sent), READ):
                feed(driven, sent[at : at + READ])
        (frame,) = driven.frames()
        (part,) = frame.parts()
        return tracemalloc.get_traced_memory()[1] - before, max(len(event), len(part))


@pytest.mark.parametrize(
    ("way", "shape", "size"),
    [
        *((way, shape, 1 << 18) for way, shape in (*TEXTS, *OF_FIELDS, *OF_MAPS) if shape in CASES[way].shapes),
        *((way, shape, 1 << 16) for way, shape in SMALL_VALUES),
    ],
)
def test_an_event_takes_at_most_five_times_its_bytes(way: str, shape: str, size: int) -> None:
    """Objects would take up to a hundred times as much, orjson eight bytes for each byte of a text, and Python four for each
    letter if one of them is wide.
    """
    case = CASES[way]
    memory, own = memory_of(case, case.shapes[shape](size))
    assert own < memory <= MOST * own + PIECES


def test_an_event_of_a_segment_takes_at_most_five_times_its_bytes() -> None:
    """The run that it came in counts."""
    size = 1 << 18
    data = HEADER.pack(int(Kind.EVENT), size) + bytes(size)
    about = Envelope("segment", "/segment/x", "s")
    frame = BlockFrame("s", Block(b"w" * 16, 0, 1, data, 1), Numbering.EVENTS, NOW_MS, about, 2 * size)
    with traced():
        (part,) = frame.parts()
        memory = len(data) + tracemalloc.get_traced_memory()[1]
    assert len(part) < memory <= MOST * size + PIECES


def test_a_copy_more_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the case that has least room left."""
    kept: list[bytes] = []
    event = Envelope.event

    def copies(envelope: Envelope, name: bytes, time: bytes, value: Bytes, attributes: bytes | None = None) -> Event:
        kept.extend(bytes(bytearray(value)) for _ in range(3))
        return event(envelope, name, time, value, attributes)

    monkeypatch.setattr(Envelope, "event", copies)
    case = CASES["forward"]
    memory, own = memory_of(case, case.shapes["plain text"](1 << 18))
    assert memory > MOST * own + PIECES
