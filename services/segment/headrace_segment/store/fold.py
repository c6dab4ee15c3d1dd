"""The meaning of a partition's log: a pure function of its records, in their order.

==========  ==========================================================================================================
a record    counts if
==========  ==========================================================================================================
open        the segment exists, or it creates it; the writer's levels have the unit that they had before
block       it is of the writer's current session, the segment is not sealed, and it begins at the writer's level
create      the segment does not exist
seal        the segment exists
truncate    its offset lies in the segment; below the start it changes nothing
delete      the segment exists
forget      the writer is still in the session and at the level that the record names, and was not heard since
renew       the writer is still in the session that the record names
==========  ==========================================================================================================

A record that does not count is refused by all and for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace_segment.store import records
from headrace_segment.store.outcomes import Appended, Changed, Opened, Outcome, Refusal, Refused, Tended
from headrace_segment.store.records import Create, Delete, LogError, Numbering, Open
from headrace_segment.store.state import Segment, WriterState


class Fold:
    """One partition's state as of `next_offset`, the log offset of the next record that it takes."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        self.segments: dict[str, Segment] = {}
        self.era = 0
        """The offset after the last record that forgot a writer or deleted a segment, else 0. New writers may be old ones."""

    def apply(self, log_offset: int, key: bytes | None, value: bytes | None, time_ms: int) -> Outcome:
        """Takes the next record. `time_ms`: the record's own timestamp. Raises `LogError`: no further record can be judged."""
        if log_offset != self.next_offset:
            raise LogError(f"offset {log_offset} follows where {self.next_offset} is expected: records are missing")
        name, record = records.segment_of(key), records.decode(value)
        self.next_offset += 1
        segment = self.segments.get(name)
        if isinstance(record, records.Block):
            return self._append(name, segment, record, log_offset, time_ms)
        if isinstance(record, Open):
            return self._open(name, segment, record, time_ms)
        if isinstance(record, records.Forget):
            return self._forget(name, segment, record)
        if isinstance(record, records.Renew):
            return self._renew(name, segment, record, time_ms)
        start, length = (0, 0) if segment is None else (segment.start, segment.length)
        return Changed(name, record, self._change(name, segment, record, time_ms), length, start)

    def needed_from(self) -> int:
        """Returns the lowest log offset that a reader may still need."""
        needed = self.next_offset
        for segment in self.segments.values():
            if segment.index.log_offsets:
                needed = min(needed, segment.index.log_offsets[0])
        return needed

    def idle_writers(self, before_ms: int) -> Iterator[tuple[str, records.Forget]]:
        """Yields the records that forget the writers that were last heard before this time of the log."""
        for name, segment in self.segments.items():
            for name_of_writer, writer in segment.writers.items():
                if writer.touched < before_ms:
                    yield name, records.Forget(name_of_writer, writer.session, writer.level, writer.touched)

    def _open(self, name: str, segment: Segment | None, record: Open, time_ms: int) -> Outcome:
        if segment is None and record.create:
            segment = self.segments[name] = Segment(modified=time_ms)
        if segment is None:
            return Refused(name, record.writer, record.session, None, Refusal.NO_SEGMENT)
        writer = segment.writers.get(record.writer)
        if writer is None:
            first = record.numbering.first
            writer = WriterState(record.session, first, record.numbering, time_ms, era=self.era)
            segment.writers[record.writer] = writer
            return Opened(name, record.writer, record.session, first, era=self.era)
        if writer.numbering is not record.numbering:
            return Refused(name, record.writer, record.session, None, Refusal.NUMBERING)
        writer.session, writer.touched = record.session, time_ms
        return Opened(name, record.writer, record.session, writer.level, writer.era)

    def _append(
        self, name: str, segment: Segment | None, record: records.Block, log_offset: int, time_ms: int
    ) -> Outcome:
        if segment is None:
            return Refused(name, record.writer, record.session, record.after, Refusal.NO_SEGMENT)
        writer = segment.writers.get(record.writer)
        why = self._judge(segment, writer, record)
        if why is not None:
            segment.refused.append(log_offset)
            return Refused(name, record.writer, record.session, record.after, why, segment.length)
        assert writer is not None
        segment.index.add(segment.length, log_offset)
        segment.length += len(record.data)
        segment.modified = writer.touched = time_ms
        writer.level = record.after
        return Appended(name, record.writer, record.session, record.after, segment.length)

    @staticmethod
    def _judge(segment: Segment, writer: WriterState | None, record: records.Block) -> Refusal | None:
        """Returns why a block does not count. For its session a repeat comes first: stored blocks are stored, sealed or not."""
        if writer is None or writer.session != record.session:
            return Refusal.SESSION
        if record.after <= writer.level:
            return Refusal.REPEAT
        if segment.sealed:
            return Refusal.SEALED
        if record.before != writer.level:
            return Refusal.GAP
        if not record.data or (
            writer.numbering is Numbering.BYTES and record.after - record.before != len(record.data)
        ):
            return Refusal.NONSENSE
        return None

    def _change(self, name: str, segment: Segment | None, record: records.Change, time_ms: int) -> Refusal | None:
        if isinstance(record, Create):
            if segment is not None:
                return Refusal.EXISTS
            self.segments[name] = Segment(modified=time_ms)
            return None
        if segment is None:
            return Refusal.NO_SEGMENT
        if isinstance(record, Delete):
            del self.segments[name]
            self.era = self.next_offset
            return None
        if isinstance(record, records.Truncate):
            if not 0 <= record.offset <= segment.length:
                return Refusal.NONSENSE
            if record.offset > segment.start:
                segment.truncate(record.offset)
        else:
            segment.sealed = True
        segment.modified = time_ms
        return None

    def _forget(self, name: str, segment: Segment | None, record: records.Forget) -> Outcome:
        if segment is None:
            return Tended(name, record.writer, Refusal.NO_SEGMENT)
        writer = segment.writers.get(record.writer)
        known = None if writer is None else (writer.session, writer.level, writer.touched)
        if known != (record.session, record.level, record.touched):
            return Tended(name, record.writer, Refusal.SESSION)
        del segment.writers[record.writer]
        self.era = self.next_offset
        return Tended(name, record.writer)

    @staticmethod
    def _renew(name: str, segment: Segment | None, record: records.Renew, time_ms: int) -> Outcome:
        writer = None if segment is None else segment.writers.get(record.writer)
        if writer is None or writer.session != record.session:
            return Tended(name, record.writer, Refusal.SESSION if segment else Refusal.NO_SEGMENT)
        writer.touched = time_ms
        return Tended(name, record.writer)
