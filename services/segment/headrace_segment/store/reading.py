"""Bytes of a segment, gathered from the log."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_segment.store import records
from headrace_segment.store.state import Segment


@dataclass(slots=True)
class Gathering:
    """Takes records of the log from `next_log_offset` on, until it is `done`: then `data` has all bytes that were asked for.

    It reads the state that the fold had when this was made, whatever is appended or truncated meanwhile.
    """

    key: bytes
    next_log_offset: int
    done: bool
    _at: int  # where the next block that counts begins in the segment
    _offset: int
    _end: int
    _pieces: list[bytes]

    @staticmethod
    def of(name: str, segment: Segment, offset: int, length: int) -> Gathering:
        """Begins a read at `offset`, which lies in the segment, between its start and its length."""
        assert segment.start <= offset <= segment.length
        end = min(offset + length, segment.length)
        found = segment.index.find(offset)
        at, log_offset = (0, 0) if found is None else found
        return Gathering(name.encode(), log_offset, offset >= end, at, offset, end, [])

    def take(self, log_offset: int, key: bytes | None, value: bytes | None) -> bool:
        """Takes the next record of the log. Returns `done`. Raises `LogError`."""
        assert not self.done
        assert log_offset >= self.next_log_offset
        self.next_log_offset = log_offset + 1
        if key != self.key:
            return False
        record = records.decode(value)
        if not isinstance(record, records.Block):
            return False
        behind = self._at + len(record.data)
        if behind > self._offset:
            self._pieces.append(record.data[max(self._offset - self._at, 0) : self._end - self._at])
        self._at = behind
        self.done = behind >= self._end
        return self.done

    @property
    def data(self) -> bytes:
        """The bytes found so far of those asked for, from the first one on."""
        return b"".join(self._pieces)
