"""Gives memory back to the system that malloc keeps after a crowd has gone.

glibc gives back what is free at the end of its heap; one small object that lives there keeps all that is free before it. After
crowds with large frames a process of 78 MB stayed at 287, and used 14 of them. What connections leave in cycles is freed
first: the cycle collector, which runs rarely, might not come for hours.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

QUIET: Final = 1 << 20
"""Bytes under way in the process, at most, while memory is given back: it stops the event loop for some milliseconds."""

GROWN: Final = 32 << 20
"""A try is worthwhile from this many bytes above the least that the process has had."""

GIVEN: Final = 8 << 20
"""Bytes that make a try worthwhile: the next one may follow in `FIRST`. Else the time between two doubles, up to `LAST`."""

FEW: Final = 4_000
"""Connections up to which the cycles of those that have left are collected, in some 60 ms; of more, once half have left."""

FIRST: Final = 10.0
LAST: Final = 640.0
"""Seconds between two tries."""


def resident() -> int | None:
    """Returns the bytes of the process in memory; None if that cannot be read now: a crowd may have taken every descriptor."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def glibc_trim() -> Callable[[], object] | None:
    """Returns what gives malloc's free pages back; None where the C library is not glibc."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if found is None else lambda: found(0)


class Heap:
    """Decides when memory is given back, by `trim`; None: never. `now`, everywhere: monotonic seconds."""

    def __init__(
        self, now: float, trim: Callable[[], object] | None, size: Callable[[], int | None] = resident
    ) -> None:
        self._size = size
        self._trim = trim
        self._pause = FIRST
        self._next = now + FIRST
        self._most = 0  # connections since the last collection
        self._least = size() if trim is not None else None

    def look(self, now: float, under_way: int, connections: int) -> bool:
        """Gives memory back if it is time and little is under way. Returns whether it tried. Blocks for milliseconds; after
        tens of thousands of connections have left, for some tenths of a second.
        """
        self._most = max(self._most, connections)
        if self._trim is None or now < self._next or under_way > QUIET:
            return False
        before = self._size()
        if self._least is None:
            self._least = before
        if before is None or self._least is None or before < self._least + GROWN:
            return False
        if connections <= max(FEW, self._most // 2):  # the collector looks at all that the others hold, too
            gc.collect()
            self._most = connections
        self._trim()
        after = self._size() or before
        self._least = min(self._least, after)
        self._pause = FIRST if before - after >= GIVEN else min(2 * self._pause, LAST)
        self._next = now + self._pause
        return True
