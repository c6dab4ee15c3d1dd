"""The meaning of a partition's log: a pure function of its records, in their order.

Its owner has judged each record before it was stored (`headrace_segment.appending`), and Kafka has refused all others. So each
record counts, and one that cannot count is a damage: nothing behind it is served.
"""

from __future__ import annotations

from headrace_segment.store.checkpoint import restore
from headrace_segment.store.records import (
    LAST_EPOCH,
    Block,
    Checkpoint,
    Claim,
    Create,
    LogError,
    Numbering,
    Record,
)
from headrace_segment.store.state import Segment, WriterState


class Fold:
    """One partition's state as of `next_offset`, the log offset of the next record that it takes.

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
        if isinstance(record, Checkpoint):
            if record.begin == self.begin:
                restore(record, self)
            return
        self.log_time = max(self.log_time, time_ms)
        if isinstance(record, Claim):
            self._claim(record)
            return
        segment = self.segments.get(name)
        if isinstance(record, Create) and segment is None:
            self.segments[name] = Segment(modified=time_ms)
            return
        if segment is None or isinstance(record, Create):
            raise LogError(f"the record at {log_offset} contradicts the log before it: {record!r:.200}")
        if isinstance(record, Block):
            self._append(segment, record, log_offset, time_ms)
        else:
            segment.truncate(record.offset)
        segment.modified = time_ms

    def needed_from(self) -> int:
        """Returns the lowest log offset that a reader may still need."""
        needed = self.next_offset
        for segment in self.segments.values():
            if segment.index.log_offsets:
                needed = min(needed, segment.index.log_offsets[0])
        return needed

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
        if writer is None or record.before == writer.numbering.first:  # it is new, or was forgotten
            numbering = Numbering.of(record.before)
            writer = segment.writers[record.writer] = WriterState(numbering.first, numbering, time_ms)
        if record.before != writer.level:
            raise LogError(f"the block at {log_offset} contradicts the log before it")
        segment.index.add(segment.length, log_offset, self.log_time)
        segment.length += len(record.data)
        writer.level, writer.touched = record.after, time_ms
