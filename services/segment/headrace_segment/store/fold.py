"""The state of all segments: a pure function of the log's records, in their order.

The owner has judged each record before it was stored (`headrace_segment.appending`), and Kafka has refused all others. So each
record counts, and one that cannot count is a damage: nothing behind it is served.

The log has its own state as records, too: a process that starts reads such a checkpoint and what follows. Nothing else is
appended between its parts, and no record says that the log is read from there before all are stored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headrace_segment.store.records import FIRST_LEVELS, LAST_EPOCH, Block, Checkpoint, Claim, Create, LogError, Record

SEGMENT_STEP: Final = 256 << 10
LOG_STEP: Final = 1024
"""A block enters the index this many bytes of its segment, or records of the log, after the last one there."""

PART_BYTES: Final = 512 << 10
"""Bytes from which a part of a checkpoint is closed."""

ROW: Final = 4096
"""Writers, and places in the index, of one row; a segment with more has several."""

_encode: Final = msgspec.msgpack.Encoder().encode


def _longs() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Writer:
    """A writer of a segment that has stored a block. `touched`: the log's time (Unix, ms) of its last one."""

    level: int
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
        """Returns the last known block at or before `offset`, as the segment and the log have it. `start` has one."""
        at = bisect_right(self.offsets, offset) - 1
        return self.offsets[at], self.log_offsets[at]

    def let_go(self, before: int) -> None:
        """Removes blocks that are older than this time (Unix, ms): all, or those before a known one."""
        at = len(self.times) if self.modified < before else bisect_left(self.times, before) - 1
        if at >= 0:
            self.start = self.length if at == len(self.times) else self.offsets[at]
            del self.offsets[:at], self.log_offsets[:at], self.times[:at]


class Fold:
    """The state as of `next_offset`, the log offset of the next record that it takes.

    `begin`: the offset of the first one, which begins a checkpoint unless it is 0.
    """

    def __init__(self, begin: int = 0) -> None:
        self.begin = self.next_offset = begin
        self.segments: dict[str, Segment] = {}
        self.claim: Claim | None = None
        """The owner's claim."""
        self.log_time = 0
        """The newest time of a record (Unix, ms)."""

    def apply(self, log_offset: int, name: str, record: Record, time_ms: int) -> None:
        """Takes the next record. `time_ms`: the record's own timestamp. Raises `LogError`: no further record can be taken."""
        if log_offset != self.next_offset:
            raise LogError(f"offset {log_offset} follows where {self.next_offset} is expected: records are missing")
        if log_offset == self.begin > 0 and not isinstance(record, Checkpoint):
            raise LogError(f"the record at {log_offset} is no checkpoint")
        self.next_offset += 1
        self.log_time = max(self.log_time, time_ms)
        segment = self.segments.get(name)
        if isinstance(record, Block) and segment is not None:
            self._append(segment, record, log_offset, time_ms)
        elif isinstance(record, Create) and segment is None:
            self.segments[name] = Segment(modified=time_ms)
        elif isinstance(record, Claim):
            self._claim(record)
        elif isinstance(record, Checkpoint):
            if record.begin == self.begin:
                self._restore(record)
        else:
            raise LogError(f"the record at {log_offset} contradicts the log before it: {record!r:.200}")

    def needed_from(self) -> int:
        """Returns the lowest log offset that a reader may still need."""
        return min([self.next_offset, *(each.log_offsets[0] for each in self.segments.values() if each.log_offsets)])

    def forget(self, blocks: int, writers: int, holds: Callable[[str, bytes], bool]) -> None:
        """Forgets blocks, and writers whose last block is older than these times (Unix, ms), but not those that `holds` names."""
        for name, segment in self.segments.items():
            segment.let_go(blocks)
            for writer in [writer for writer, state in segment.writers.items() if state.touched < writers]:
                if not holds(name, writer):
                    del segment.writers[writer]

    def checkpoint(self) -> Iterator[Checkpoint]:
        """Yields the parts of one, to be stored one after the other. Only they may be applied meanwhile."""
        begin, rows, size = self.next_offset, list[bytes](), 0
        for name, segment in self.segments.items():
            writers = [(each, state.level, state.touched) for each, state in segment.writers.items()]
            for at in range(0, max(len(writers), len(segment.offsets), 1), ROW):
                places = [
                    each[at : at + ROW].tolist() for each in (segment.offsets, segment.log_offsets, segment.times)
                ]
                about = name, segment.start, segment.length, segment.modified
                rows.append(_encode((*about, writers[at : at + ROW], *places)))
                size += len(rows[-1])
                if size >= PART_BYTES:
                    yield Checkpoint(begin, _encode((self.log_time, rows)))
                    rows, size = [], 0
        yield Checkpoint(begin, _encode((self.log_time, rows)))

    def _restore(self, part: Checkpoint) -> None:
        """Adds what a part of a checkpoint has to that of the parts before it."""
        log_time, rows = msgspec.msgpack.decode(part.rows, type=tuple[int, list[bytes]])
        self.log_time = max(self.log_time, log_time)
        for row in rows:
            name, start, length, modified, writers, *places = msgspec.msgpack.decode(row, type=list[Any])
            segment = self.segments.setdefault(name, Segment(start, length, modified))
            segment.writers |= {writer: Writer(level, touched) for writer, level, touched in writers}
            for column, values in zip((segment.offsets, segment.log_offsets, segment.times), places, strict=True):
                column.extend(array("q", values))

    def _claim(self, claim: Claim) -> None:
        """Of two first claims at once, which have producer ids of their own, the one that is stored first counts."""
        owner = self.claim
        if (
            owner is None
            or owner.epoch == LAST_EPOCH
            or (claim.producer_id == owner.producer_id and claim.epoch >= owner.epoch)
        ):
            self.claim = claim

    def _append(self, segment: Segment, record: Block, log_offset: int, time_ms: int) -> None:
        writer = segment.writers.get(record.writer)
        if writer is None or record.before != writer.level:
            if record.before not in FIRST_LEVELS:
                raise LogError(f"the block at {log_offset} contradicts the log before it")
            writer = segment.writers[record.writer] = Writer(record.before, time_ms)  # it is new, or was forgotten
        segment.append(record, log_offset, self.log_time)
        segment.modified = writer.touched = time_ms
        writer.level = record.after
