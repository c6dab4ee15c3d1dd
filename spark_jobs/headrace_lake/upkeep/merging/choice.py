"""Chooses which files are merged next. Pure: it looks at names, sizes and one time.

Files grow by levels, as in a log-structured merge tree: small files of a running day become one of some MB, those become one of
the final size, and a file of the final size is never read again. A day that is over, and gets no more files, is merged to
the end. So how often a row is rewritten depends on the number of levels, not on the number of batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

MOST_SMALL: Final = 48
"""Small files of a running day, or of a table without days, that wait. More would cost readers time, fewer make more levels."""

SETTLED: Final = 600.0
"""Seconds without a new file after which a day that is over is merged to the end: batches around midnight, or a replay."""

_FAN: Final = 5
"""Files that an intermediate merge takes at least, and the ratio of the sizes of two levels: the result is of a higher one."""

_SHRINK: Final = 1.1
"""Bytes that go into a file of the final size for each of its own, as measured: larger files compress better."""


class DayOfFiles(Protocol):
    """The files of one day; `small`: path -> bytes of those below the final size, `newest`: Unix time of the last one added."""

    @property
    def small(self) -> Mapping[str, int]: ...

    @property
    def newest(self) -> float: ...


class Piece(NamedTuple):
    """Files of one `day` of `table` that become one file."""

    table: str
    day: str
    files: tuple[str, ...]


def is_small(size: int, file_bytes: int) -> bool:
    """Returns whether a file of `size` bytes may still be merged, where the final size is `file_bytes`."""
    return size < file_bytes // 2


def choose(
    tables: Mapping[str, Mapping[str, DayOfFiles]],
    *,
    today: str,
    now: float,
    file_bytes: int,
) -> Piece | None:
    """Returns the piece to merge next, the one with the most files; None if nothing is due.

    `tables`: table -> day (ISO 8601; empty in a table without days) -> its files. `now` in Unix seconds, `today` in UTC.
    """
    pieces = [
        piece
        for table, days in tables.items()
        for day, files in days.items()
        if len(files.small) > 1 and (piece := _piece(table, day, files, bool(day) and day < today, now, file_bytes))
    ]
    return max(pieces, key=lambda piece: len(piece.files), default=None)


def _piece(table: str, day: str, files: DayOfFiles, ended: bool, now: float, file_bytes: int) -> Piece | None:
    full = round(file_bytes * _SHRINK)
    if sum(files.small.values()) >= full or (ended and now - files.newest >= SETTLED):
        return _of(table, day, _filling(files.small, full))
    if len(files.small) < MOST_SMALL:
        return None
    return _of(table, day, _lowest(files.small, file_bytes))


def _of(table: str, day: str, chosen: list[tuple[str, int]]) -> Piece:
    return Piece(table, day, tuple(path for path, _ in chosen))


def _filling(small: Mapping[str, int], full: int) -> list[tuple[str, int]]:
    """Returns files of together at most `full` bytes, the largest first: the many small ones then fill what is left."""
    chosen, left = [], full
    for path, size in _by_size(small, largest_first=True):
        if size <= left:
            chosen.append((path, size))
            left -= size
    return chosen


def _lowest(small: Mapping[str, int], file_bytes: int) -> list[tuple[str, int]]:
    """Returns the files of the lowest level, and of the next ones while they are few; at most a quarter of the final size."""
    chosen: list[tuple[str, int]] = []
    total, level = 0, -1
    for path, size in _by_size(small):
        its_level = int(math.log(file_bytes / max(1, size), _FAN))
        if len(chosen) >= _FAN and (its_level != level or total + size > file_bytes // 4):
            break
        chosen.append((path, size))
        total, level = total + size, its_level
    return chosen


def _by_size(small: Mapping[str, int], *, largest_first: bool = False) -> Iterable[tuple[str, int]]:
    return sorted(small.items(), key=lambda item: (item[1], item[0]), reverse=largest_first)
