"""A cache for all connections of a service, bounded in bytes. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

MEMORY_BYTES: Final = 24 << 20
"""Bytes that the caches of one service may hold: those of 10,000 files with long names. No client can make them larger, however
many connections it has."""

LARGEST: Final = 8 << 10
"""Bytes of the largest entry that is kept, so that a few large ones do not push out all others."""

ENTRY_BYTES: Final = 384
"""Bytes that an entry takes besides what its owner counts."""


class Memory:
    """A cache of what sessions encode once and use for many events. Where one more has no room, it begins again, empty.

    Its owners take keys of different lengths or types, so that two never share one.
    """

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._kept: dict[Hashable, Any] = {}
        self.used = 0
        """Bytes of all entries, as their owners have counted them."""

    def get(self, key: Hashable) -> Any:
        """Returns the entry or None."""
        return self._kept.get(key)

    def put(self, key: Hashable, entry: Any, size: int) -> None:
        """Keeps an entry, unless it is too large. `size`: bytes of key and entry. The key must not be there."""
        size += ENTRY_BYTES
        if size > LARGEST:
            return
        if self.used + size > self._limit:
            self._kept.clear()
            self.used = 0
        self._kept[key] = entry
        self.used += size
