"""A cache for all connections of a service, bounded in bytes. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

MEMORY_BYTES: Final = 8 << 20
"""Bytes that the caches of one service may hold. No client can make them larger, however many connections it has."""

LARGEST: Final = 8 << 10
"""Bytes of the largest entry that is kept, so that a few large ones do not push out all others."""

ENTRY_BYTES: Final = 512
"""Bytes that an entry takes besides what its owner counts."""


class Memory:
    """A cache of what sessions encode once and use for many events. The least recently used entries go first, half at a time.

    Keys begin with their owner (a class), so that two owners never share one.
    """

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._half = limit // 2
        self._young: dict[Hashable, tuple[Any, int]] = {}
        self._old: dict[Hashable, tuple[Any, int]] = {}
        self._young_bytes = self._old_bytes = 0

    @property
    def used(self) -> int:
        """Bytes of all entries, as their owners have counted them."""
        return self._young_bytes + self._old_bytes

    def get(self, key: Hashable) -> Any:
        """Returns the entry or None."""
        found = self._young.get(key)
        if found is None:
            found = self._old.pop(key, None)
            if found is None:
                return None
            self._old_bytes -= found[1]
            self._keep(key, found)
        return found[0]

    def put(self, key: Hashable, entry: Any, size: int) -> None:
        """Keeps an entry, unless it is too large. `size`: bytes of key and entry. The key must not be there."""
        size += ENTRY_BYTES
        if size <= LARGEST:
            self._keep(key, (entry, size))

    def _keep(self, key: Hashable, found: tuple[Any, int]) -> None:
        if self._young_bytes + found[1] > self._half:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        self._young[key] = found
        self._young_bytes += found[1]
