"""Chooses which files are merged next. Pure: it looks at names, sizes and one time.

Files grow by levels, as in a log-structured merge tree: small files of a running day become one of some MB, those become one of
the final size, and a file of the final size is never read again. A day that is over, and gets no more files, is merged to
the end. So how often a row is rewritten depends on the number of levels, not on the number of batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace_lake.tables.properties import is_foreign
from headrace_lake.tables.transaction_log import File, day_of

MOST_SMALL: Final = 48
"""Small files of a running day, or of a table without days, that wait. More would cost readers time, fewer make more levels."""

SETTLED: Final = 600.0
"""Seconds without a new file after which a day that is over is merged to the end: batches around midnight, or a replay."""

_FAN: Final = 5
"""Files that an intermediate merge takes at least, and the ratio of the sizes of two levels: the result is of a higher one."""

_SHRINK: Final = 1.1
"""Bytes that go into a file of the final size for each of its own, as measured: larger files compress better."""


class Piece(NamedTuple):
    """Files of one `day` of `table` that become one file."""

    table: str
    day: str
    files: Mapping[str, int]
    """Name in the log -> bytes."""


def is_small(name: str, file: File, file_bytes: int) -> bool:
    """Returns whether a file may still be merged, where the final size is `file_bytes`."""
    return file.size < file_bytes // 2 and not is_foreign(name)


def choose(
    tables: Mapping[str, Mapping[str, File]],
    *,
    today: str,
    now: float,
    file_bytes: int,
) -> Piece | None:
    """Returns the piece to merge next, the one with the most files; None if nothing is due.

    `tables`: table -> its files. `now` in Unix seconds, `today` in UTC.
    """
    pieces = []
    for table, files in tables.items():
        days: dict[str, dict[str, File]] = {}
        for name, file in files.items():
            if is_small(name, file, file_bytes):
                days.setdefault(day_of(name), {})[name] = file
        for day, small in days.items():
            over = bool(day) and day < today and now - max(file.added for file in small.values()) >= SETTLED
            if len(small) > 1 and (chosen := _due(small, file_bytes, over=over)):
                pieces.append(Piece(table, day, {name: small[name].size for name in chosen}))
    return max(pieces, key=lambda piece: len(piece.files), default=None)


def _due(small: Mapping[str, File], file_bytes: int, *, over: bool) -> list[str]:
    """Returns which files of a day become one; none if there are too few yet. `over`: no more come."""
    full = round(file_bytes * _SHRINK)
    by_size = sorted((file.size, name) for name, file in small.items())
    chosen: list[str] = []
    total = 0
    if over or sum(size for size, _ in by_size) >= full:
        for size, name in reversed(by_size):  # the largest first: the many small ones then fill what is left
            if total + size <= full:
                chosen.append(name)
                total += size
    elif len(small) >= MOST_SMALL:
        level = -1
        for size, name in by_size:  # of the lowest level, and of the next ones while they are few
            its_level = int(math.log(file_bytes / max(1, size), _FAN))
            if len(chosen) >= _FAN and (its_level != level or total + size > file_bytes // 4):
                break
            chosen.append(name)
            total, level = total + size, its_level
    return chosen
