"""The meaning of the log once more, as plainly as it can be written: no index, no state but lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_segment.store import records
from headrace_segment.store.records import Numbering


@dataclass
class NaiveSegment:
    content: bytes = b""
    levels: dict[bytes, int] = field(default_factory=dict)
    """By writer that has stored a block."""


class Naive:
    """`segments` as of the last record."""

    def __init__(self) -> None:
        self.segments: dict[str, NaiveSegment] = {}

    def apply(self, name: str, record: records.Record) -> str | None:
        """Takes the next record. Returns why an owner must not have stored it; None if it may."""
        there = self.segments.get(name)
        if isinstance(record, records.Claim | records.Checkpoint):
            return None
        if isinstance(record, records.Create):
            if there:
                return "the segment is there already"
            self.segments[name] = NaiveSegment()
            return None
        if there is None:
            return "there is no such segment"
        return self._block(there, record)

    def _block(self, there: NaiveSegment, record: records.Block) -> str | None:
        level = there.levels.get(record.writer)
        if record.before != level and (level is not None or record.before not in {each.first for each in Numbering}):
            return "it does not begin at its writer's level"
        if record.after <= record.before or not record.data:
            return "its numbers make no sense"
        if level is None and record.before == 0 and record.after != len(record.data):
            return "its level does not count its bytes"
        there.levels[record.writer] = record.after
        there.content += record.data
        return None
