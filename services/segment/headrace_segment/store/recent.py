"""The newest blocks in memory, for readers at the end of a segment."""

from __future__ import annotations

from collections import deque
from typing import Final

BLOCK: Final = 200
SEGMENT: Final = 1000
"""Bytes that a block costs beyond its own, and a segment beyond its blocks: small blocks cost mostly this."""


class RecentBlocks:
    """Blocks that count, of any segments, up to `limit` bytes of memory: the oldest leave first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._segments: dict[str, deque[tuple[int, bytes]]] = {}
        self._order: deque[tuple[deque[tuple[int, bytes]], str]] = deque()
        self._bytes = 0

    def add(self, segment: str, offset: int, data: bytes) -> None:
        """Adds a block that counts and begins at `offset`, after all that were added before it."""
        blocks = self._segments.get(segment)
        if blocks is None:
            blocks = self._segments[segment] = deque()
            self._bytes += SEGMENT
        blocks.append((offset, data))
        self._order.append((blocks, segment))
        self._bytes += BLOCK + len(data)
        while self._bytes > self._limit:
            oldest, name = self._order.popleft()
            self._bytes -= BLOCK + len(oldest.popleft()[1])
            if not oldest:
                self._bytes -= SEGMENT
                del self._segments[name]

    def clear(self) -> None:
        """Drops all blocks: the next ones may not follow them."""
        self._segments.clear()
        self._order.clear()
        self._bytes = 0

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
