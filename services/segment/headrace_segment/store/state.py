"""The state of one segment at some offset of the log."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from headrace_segment.store.records import Block, Numbering

SEGMENT_STEP: Final = 256 << 10
LOG_STEP: Final = 1024
"""A block enters the index this many bytes of its segment, or records of the log, after the last one there."""


def _longs() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Writer:
    """A writer of a segment that has stored a block. `touched`: the log's time (Unix, ms) of its last one."""

    level: int
    numbering: Numbering
    touched: int


@dataclass(slots=True)
class Segment:
    """A segment: bytes from `start` to `length` can be read. `modified`: the log's time of its last change.

    The index has some of its blocks, in their order: their offsets in the segment and in the log, and their times there.
    """

    start: int = 0
    length: int = 0
    modified: int = 0
    writers: dict[bytes, Writer] = field(default_factory=dict)
    offsets: array[int] = field(default_factory=_longs)
    log_offsets: array[int] = field(default_factory=_longs)
    times: array[int] = field(default_factory=_longs)

    def append(self, block: Block, log_offset: int, log_time: int) -> None:
        """Adds the bytes of a block."""
        if (
            not self.offsets
            or self.length - self.offsets[-1] >= SEGMENT_STEP
            or log_offset - self.log_offsets[-1] >= LOG_STEP
        ):
            self.offsets.append(self.length)
            self.log_offsets.append(log_offset)
            self.times.append(log_time)
        self.length += len(block.data)

    def find(self, offset: int) -> tuple[int, int]:
        """Returns the last known block at or before `offset`, as the segment and the log have it."""
        at = bisect_right(self.offsets, offset) - 1
        return (self.offsets[at], self.log_offsets[at]) if at >= 0 else (0, 0)

    def let_go(self, before: int) -> None:
        """Removes blocks that are older than this time (Unix, ms): all, or those before a known one."""
        at = len(self.times) if self.modified < before else bisect_left(self.times, before) - 1
        if at >= 0:
            self.start = self.length if at == len(self.times) else self.offsets[at]
            del self.offsets[:at], self.log_offsets[:at], self.times[:at]
