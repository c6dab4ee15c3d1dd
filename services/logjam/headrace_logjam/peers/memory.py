"""The memory that this process uses."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path
from typing import Final

_FIELDS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Usage(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def _mallinfo() -> ctypes._FuncPointer | None:
    found = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if found is not None:
        found.restype = _Usage
    return found


_usage: Final = _mallinfo()


def used() -> int:
    """Returns the bytes that were allocated and not freed; what is freed and kept does not count, where glibc tells it (since
    2.33).
    """
    if _usage is None:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    usage = _usage()
    return int(usage.uordblks) + int(usage.hblkhd)
