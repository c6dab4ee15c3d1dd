"""The files and properties of a table, from its log: no Spark job, only a few small files per look."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from headrace_lake.spark.storage import Storage
from headrace_lake.tables.transaction_log import TransactionLog
from headrace_lake.upkeep.merging.choice import is_small

_DAY: Final = re.compile(r"day=([^/]+)/")


@dataclass
class DayFiles:
    """The files of one day; in a table without days, all files."""

    files: int = 0
    size: int = 0  # bytes
    small: dict[str, int] = field(default_factory=dict)
    """path -> bytes, of the files that may still be merged."""
    others: set[int] = field(default_factory=set)
    """Hashes of the paths of the other files."""
    newest: float = 0.0
    """Unix time when the last file was added, as its writer says."""


class Inventory(TransactionLog):
    """The files and properties of one table, current after `latest`. `file_bytes`: the final size of merged files."""

    _parts = (*TransactionLog._parts, "add.path", "add.size", "add.modificationTime")

    def __init__(self, storage: Storage, table: str, file_bytes: int) -> None:
        super().__init__(storage, table)
        self._file_bytes: Final = file_bytes
        self.days: dict[str, DayFiles] = {}
        """Day as text -> its files; the key is empty in a table without days."""

    def small_files(self) -> int:
        """Returns how many files compaction may still merge."""
        return sum(len(day_files.small) for day_files in self.days.values())

    def sizes(self, day: str, names: Iterable[str]) -> dict[str, int]:
        """Returns the bytes of those files of `day` named `names` that the table has and that may be merged."""
        small = self.days[day].small if day in self.days else {}
        return {name: small[name] for name in names if name in small}

    @override
    def _restart(self, version: int) -> None:
        self.days = {}

    @override
    def _take(self, version: int, action: Mapping[str, Mapping[str, Any]]) -> None:
        super()._take(version, action)
        match action:
            case {"add": {"path": str(path), "size": int(size)}}:
                self._add(path, size, int(action["add"].get("modificationTime", 0)))
            case {"remove": {"path": str(path), **rest}}:
                self._remove(path, int(rest.get("size") or 0))

    def _add(self, path: str, size: int, modified: int) -> None:
        """Counts a file in, unless it is there: a computation of statistics adds all files again. `modified`: in ms."""
        day_files = self.days.setdefault(_day(path), DayFiles())
        if path in day_files.small or hash(path) in day_files.others:
            return
        day_files.files += 1
        day_files.size += size
        day_files.newest = max(day_files.newest, modified / 1000)
        if is_small(size, self._file_bytes) and "://" not in path and not path.startswith("/"):  # not one of a clone
            day_files.small[path] = size
        else:
            day_files.others.add(hash(path))

    def _remove(self, path: str, size: int) -> None:
        """Counts a file out, if it is there."""
        day_files = self.days.get(day := _day(path))
        if day_files is None or (path not in day_files.small and hash(path) not in day_files.others):
            return
        day_files.files -= 1
        day_files.size -= size
        day_files.small.pop(path, None)
        day_files.others.discard(hash(path))
        if not day_files.files:
            del self.days[day]


def _day(path: str) -> str:
    found = _DAY.match(path)
    return found[1] if found else ""
