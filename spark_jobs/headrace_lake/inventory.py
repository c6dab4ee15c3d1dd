"""What a table is made of, followed in its log: no Spark job, a few small files at each look."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace_lake.fence import Log
from headrace_lake.storage import Storage

_DAY: Final = re.compile(r"day=([^/]+)/")
_COMMITS: Final = 100_000  # whose times are remembered


@dataclass
class Part:
    """The files of one day; of all days in a table that has none."""

    files: int = 0
    size: int = 0  # bytes
    small: dict[str, int] = field(default_factory=dict)
    """path -> bytes, of the files that are worth merging."""


class Inventory(Log):
    """The files, properties and commits of one table; up to date after `latest`. `small`: bytes below which a file is."""

    def __init__(self, storage: Storage, table: str, small: int) -> None:
        super().__init__(storage, table)
        self._small: Final = small
        self.parts: dict[str, Part] = {}
        """By day as text; an empty text in a table without days."""
        self.properties: dict[str, str] = {}
        self.removed = 0
        """Files taken out since the first look."""
        self.removed_bytes = 0
        self.added = 0
        """Files put in since the first look."""
        self.vacuumed = 0
        """Files that commits since the first look say were deleted."""
        self.commits: deque[tuple[int, float]] = deque(maxlen=_COMMITS)
        """(version, Unix time) of the commits seen, the oldest first; 0 for that of a checkpoint."""

    def small_files(self) -> int:
        """How many files compaction may still merge."""
        return sum(len(part.small) for part in self.parts.values())

    def _begin(self) -> None:
        before = self._next
        super()._begin()
        if self._next == before:
            return
        self.parts = {}
        if self._checkpoint:
            self.commits.append((self._next - 1, 0.0))
            rows = self._storage.spark.read.parquet(*self._checkpoint)
            for path, size in rows.where("add.path is not null").select("add.path", "add.size").collect():
                self._add(path, size)
            for (found,) in rows.where("metaData.id is not null").select("metaData.configuration").collect():
                self.properties = dict(found)

    def _take(self, version: int, action: Mapping[str, Mapping[str, Any]]) -> None:
        super()._take(version, action)
        match action:
            case {"add": {"path": str(path), "size": int(size)}}:
                self.added += 1
                self._add(path, size)
            case {"remove": {"path": str(path), **rest}}:
                size = int(rest.get("size") or 0)
                self.removed += 1
                self.removed_bytes += size
                self._remove(path, size)
            case {"metaData": {"configuration": dict(properties)}}:
                self.properties = properties
            case {"commitInfo": info}:
                self.commits.append((version, info.get("timestamp", 0) / 1000))
                self.vacuumed += int(info.get("operationMetrics", {}).get("numDeletedFiles", 0))

    def _add(self, path: str, size: int) -> None:
        part = self.parts.setdefault(_day(path), Part())
        part.files += 1
        part.size += size
        if size < self._small:
            part.small[path] = size

    def _remove(self, path: str, size: int) -> None:
        day = _day(path)
        part = self.parts.setdefault(day, Part())
        part.files -= 1
        part.size -= size
        part.small.pop(path, None)
        if part.files <= 0:
            del self.parts[day]


def _day(path: str) -> str:
    found = _DAY.match(path)
    return found[1] if found else ""
