"""The memory that this process may use: the machine's, or less where a control group, as of a container or a unit, limits it.

DuckDB and Java look there by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import psutil


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use. `root`: where `proc` and `sys` are."""
    return min([psutil.virtual_memory().total, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    """Yield the limits of the groups that this process is in, of both versions of Linux's control groups."""
    groups = root / "sys/fs/cgroup"
    with suppress(OSError):  # another system has none
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                folder, name = groups, "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = groups / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = PurePosixPath(path.lstrip("/"))
            # Each group above limits it, too. In a container the path may be the host's, and its own group is at the top.
            for each in (group, *group.parents):
                with suppress(OSError, ValueError):  # not there; or "max", that is, no limit
                    yield int((folder / each / name).read_text())
