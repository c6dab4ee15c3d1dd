"""One event of any shape is built in steps, in every protocol: others run between them. A long text takes little memory."""

from __future__ import annotations

import tracemalloc

import pytest
from headrace_common.record.json_object import SHORT
from headrace_common.session.interface import Pause

from tests.long_events import CASES, Case, frame_of

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
    return 1 + sum(isinstance(part, Pause) for part in frame.parts())


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


@pytest.mark.parametrize(("way", "shape"), [(way, shape) for way, shape in TEXTS if shape in CASES[way].shapes])
def test_a_long_text_takes_memory_as_its_bytes(way: str, shape: str) -> None:
    """orjson reserves eight bytes for each byte of a text, and Python four for each letter if one of them is wide. A text that is
    not UTF-8 becomes twice as long, and its bytes are kept, too.
    """
    case = CASES[way]
    event = case.shapes[shape](1 << 18)
    frame = frame_of(case, event)
    assert frame is not None
    tracemalloc.start()
    try:
        for _ in frame.parts():
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= (16 if "UTF-8" in shape else 8) * len(event)
