"""The store's rules once more, as plainly as they can be written: no index, no state but lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace_segment.store import records
from headrace_segment.store.outcomes import Refusal
from headrace_segment.store.records import Numbering


@dataclass
class NaiveSegment:
    start: int = 0
    sealed: bool = False
    content: bytes = b""
    writers: dict[bytes, list[Any]] = field(default_factory=dict)
    """Session, level, numbering, and the number of the record that touched it last."""
    blocks: list[records.Block] = field(default_factory=list)


class Naive:
    """`says` is, of each record, why it does not count; None if it does."""

    def __init__(self) -> None:
        self.segments: dict[str, NaiveSegment] = {}
        self.says: list[Refusal | None] = []

    def apply(self, name: str, record: records.Record) -> Refusal | None:
        self.says.append(self._apply(name, record))
        return self.says[-1]

    def _apply(self, name: str, record: records.Record) -> Refusal | None:
        there = self.segments.get(name)
        if isinstance(record, records.Create):
            if there:
                return Refusal.EXISTS
            self.segments[name] = NaiveSegment()
            return None
        if isinstance(record, records.Open) and there is None and record.create:
            there = self.segments[name] = NaiveSegment()
        if there is None:
            return Refusal.NO_SEGMENT
        if isinstance(record, records.Delete):
            del self.segments[name]
        elif isinstance(record, records.Seal):
            there.sealed = True
        elif isinstance(record, records.Truncate):
            if record.offset < 0 or record.offset > len(there.content):
                return Refusal.NONSENSE
            there.start = max(there.start, record.offset)
        elif isinstance(record, records.Open):
            first = 0 if record.numbering is Numbering.BYTES else -(2**63)
            state = there.writers.setdefault(record.writer, [None, first, record.numbering, 0])
            if state[2] is not record.numbering:
                return Refusal.NUMBERING
            state[0], state[3] = record.session, len(self.says)
        elif isinstance(record, records.Forget):
            state = there.writers.get(record.writer, [None] * 4)
            if [state[0], state[1], state[3]] != [record.session, record.level, record.touched]:
                return Refusal.SESSION
            del there.writers[record.writer]
        elif isinstance(record, records.Renew):
            if there.writers.get(record.writer, [None])[0] != record.session:
                return Refusal.SESSION
            there.writers[record.writer][3] = len(self.says)
        else:
            return self._block(there, record)
        return None

    def _block(self, there: NaiveSegment, record: records.Block) -> Refusal | None:
        state = there.writers.get(record.writer)
        if state is None or state[0] != record.session:
            return Refusal.SESSION
        if record.after <= state[1]:
            return Refusal.REPEAT
        if there.sealed:
            return Refusal.SEALED
        if record.before != state[1]:
            return Refusal.GAP
        if not record.data or (state[2] is Numbering.BYTES and len(record.data) != record.after - record.before):
            return Refusal.NONSENSE
        state[1], state[3] = record.after, len(self.says)
        there.content += record.data
        there.blocks.append(record)
        return None
