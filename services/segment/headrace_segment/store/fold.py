"""The state of all segments: a pure function of the log's records, in their order.

The owner has judged each record before it was stored (`headrace_segment.appending`), and Kafka has refused all others. So each
record counts, and one that cannot count is a damage: nothing behind it is served.
"""

from __future__ import annotations

from collections.abc import Callable

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
from headrace_segment.store.state import Segment, Writer


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
                self.log_time = max(self.log_time, restore(record, self.segments))
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
            writer = segment.writers[record.writer] = Writer(numbering.first, numbering, time_ms)
        if record.before != writer.level:
            raise LogError(f"the block at {log_offset} contradicts the log before it")
        segment.append(record, log_offset, self.log_time)
        segment.modified = writer.touched = time_ms
        writer.level = record.after
