"""The state of segments and their writers at some offset of the log."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from headrace_segment.store.records import Numbering

SEGMENT_STEP: Final = 256 << 10
LOG_STEP: Final = 1024
"""A block enters the index this many bytes of its segment, or records of the log, after the last one there."""


def _longs() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Index:
    """The places of some blocks of a segment in the log, and their times; all rise."""

    offsets: array[int] = field(default_factory=_longs)
    """Their offsets in the segment."""
    log_offsets: array[int] = field(default_factory=_longs)
    times: array[int] = field(default_factory=_longs)
    """The log's (Unix, ms)."""

    def add(self, offset: int, log_offset: int, time_ms: int) -> None:
        """Adds a block that counts and begins at `offset`."""
        if (
            not self.offsets
            or offset - self.offsets[-1] >= SEGMENT_STEP
            or log_offset - self.log_offsets[-1] >= LOG_STEP
        ):
            self.offsets.append(offset)
            self.log_offsets.append(log_offset)
            self.times.append(time_ms)

    def find(self, offset: int) -> tuple[int, int] | None:
        """Returns the last known block at or before `offset`, as the segment and the log have it. None: the segment is
        empty.
        """
        at = bisect_right(self.offsets, offset) - 1
        return (self.offsets[at], self.log_offsets[at]) if at >= 0 else None

    def older(self, time_ms: int) -> int:
        """Returns the highest known offset before which all blocks are older."""
        at = bisect_left(self.times, time_ms) - 1
        return self.offsets[at] if at >= 0 else 0

    def cut(self, offset: int) -> None:
        """Forgets blocks before `offset`, which are read no more."""
        at = bisect_right(self.offsets, offset) - 1
        if at > 0:
            del self.offsets[:at], self.log_offsets[:at], self.times[:at]


@dataclass(slots=True)
class WriterState:
    """A writer of a segment that has stored a block. `touched`: the log's time (Unix, ms) of its last one."""

    level: int
    numbering: Numbering
    touched: int


@dataclass(slots=True)
class Segment:
    """A segment: bytes from `start` to `length` can be read. `modified`: the log's time of its last change."""

    start: int = 0
    length: int = 0
    modified: int = 0
    writers: dict[bytes, WriterState] = field(default_factory=dict)
    index: Index = field(default_factory=Index)

    def truncate(self, offset: int) -> None:
        """Removes the bytes before `offset`."""
        self.start = offset
        if offset == self.length:  # no read looks back: the next block may find all before it gone from the log
            self.index = Index()
        else:
            self.index.cut(offset)
