"""Bytes of a segment: gathered from the log, or the newest blocks in memory."""

from __future__ import annotations

from collections import deque
from typing import Final

from headrace_segment.store import records
from headrace_segment.store.state import Segment

BLOCK: Final = 200
SEGMENT: Final = 1000
"""Bytes that a block costs beyond its own, and a segment beyond its blocks: small blocks cost mostly this."""


class Gathering:
    """Takes records of the log from `next_log_offset` on, until it is `done`: then `data` has all bytes that were asked for.

    It reads the state that the fold had when this was made, whatever is appended meanwhile.
    """

    def __init__(self, name: str, segment: Segment, offset: int, length: int) -> None:
        """`offset` lies in the segment, between its start and its length."""
        assert segment.start <= offset <= segment.length
        self._key = name.encode()
        self._offset = offset
        self._end = min(offset + length, segment.length)
        self._at, self.next_log_offset = segment.find(offset)  # where the next block begins in the segment
        self.data = b""
        self.done = offset >= self._end

    def take(self, log_offset: int, key: bytes | None, value: bytes | None) -> bool:
        """Takes the next record of the log. Returns `done`. Raises `LogError`."""
        assert not self.done
        assert log_offset >= self.next_log_offset
        self.next_log_offset = log_offset + 1
        if key == self._key:
            record, _ = records.decode(value)
            if isinstance(record, records.Block):
                self.data += record.data[max(self._offset - self._at, 0) : max(self._end - self._at, 0)]
                self._at += len(record.data)
                self.done = self._at >= self._end
        return self.done


class RecentBlocks:
    """Blocks of any segments, up to `limit` bytes of memory: the oldest leave first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._segments: dict[str, deque[tuple[int, bytes]]] = {}
        self._order: deque[str] = deque()
        self._bytes = 0

    def add(self, segment: str, offset: int, data: bytes) -> None:
        """Adds a block that begins at `offset`, after all that were added before it."""
        if segment not in self._segments:
            self._segments[segment] = deque()
            self._bytes += SEGMENT
        self._segments[segment].append((offset, data))
        self._order.append(segment)
        self._bytes += BLOCK + len(data)
        while self._bytes > self._limit:
            oldest = self._order.popleft()
            self._bytes -= BLOCK + len(self._segments[oldest].popleft()[1])
            if not self._segments[oldest]:
                self._bytes -= SEGMENT
                del self._segments[oldest]

    def read(self, segment: str, offset: int, length: int) -> bytes | None:
        """Returns up to `length` bytes from `offset` on, which is before the segment's end. None: they are gone."""
        blocks = self._segments.get(segment)
        if blocks is None or offset < blocks[0][0]:
            return None
        first = len(blocks) - 1
        while blocks[first][0] > offset:
            first -= 1
        pieces, end = [], offset + length
        for at in range(first, len(blocks)):
            start, data = blocks[at]
            if start >= end:
                break
            pieces.append(data[max(offset - start, 0) : end - start])
        return b"".join(pieces)
