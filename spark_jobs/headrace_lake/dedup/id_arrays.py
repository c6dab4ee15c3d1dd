"""Ids of the events that landed lately, in sorted NumPy arrays. Pure: no Spark, no clock.

`index` states the rule. An id has several entries if its events are farther apart than the horizon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace_lake.dedup.index import IndexState

_BYTES: Final = 32  # per entry
_PEAK_BYTES: Final = 48  # per entry, while two runs are merged
_ROOMY: Final = 0.75  # of the maximum: how many entries stay when the oldest are forgotten

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


@dataclass
class IdRows:
    """Events as columns: the 32 hex digits of the id as two words, time in ms, place."""

    high: Words
    low: Words
    time: Longs
    place: Longs

    def __len__(self) -> int:
        return len(self.time)


@dataclass
class _Run:
    """Entries sorted by `key`: the id's two words, mixed. `key` and `low` together identify the id."""

    key: Words
    low: Words
    time: Longs
    place: Longs

    def __len__(self) -> int:
        return len(self.key)

    def take(self, which: Flags) -> _Run:
        return self if which.all() else _Run(*(column[which] for column in self.columns()))

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.key, self.low, self.time, self.place


class IdArrays:
    """An index of ids: runs of sorted arrays, each at least twice as long as the next.

    So the cost of an id hardly depends on how many the index holds.
    """

    def __init__(self, horizon: int, most: int) -> None:
        """`horizon` in ms; `most`: maximum bytes of the arrays, including those of a merge."""
        self._horizon: Final = horizon
        self._most: Final = most // _PEAK_BYTES
        self._runs: list[_Run] = []
        self._forgotten_to: int | None = None

    def state(self) -> IndexState:
        """Returns the current size."""
        ids = sum(map(len, self._runs))
        return IndexState(ids, ids * _BYTES, self._forgotten_to)

    def check_and_add(self, rows: IdRows) -> Flags:
        """Returns which of `rows` are duplicates, checked in order. Adds the others."""
        key = _mixed(rows.high, rows.low)
        order = np.argsort(key, kind="stable")
        asked = _Run(key[order], rows.low[order], rows.time[order], rows.place[order])
        known, near = self._find(asked)
        duplicate = near & ~known
        self._repeats(asked, ~near & ~known, duplicate)
        self._insert(asked.take(~known & ~duplicate))
        answer = np.empty(len(rows), np.bool_)
        answer[order] = duplicate
        return answer

    def _find(self, asked: _Run) -> tuple[Flags, Flags]:
        """Returns, for each, whether the index holds this very record, and whether it holds its id within the horizon."""
        known = np.zeros(len(asked), np.bool_)
        near = np.zeros(len(asked), np.bool_)
        for run in self._runs:
            step = np.searchsorted(run.key, asked.key)
            which = np.flatnonzero(run.key[np.minimum(step, len(run) - 1)] == asked.key)
            step = step[which]
            while len(which):  # an id may have several entries
                same = run.low[step] == asked.low[which]
                apart = np.abs(run.time[step] - asked.time[which])
                known[which] |= same & (apart == 0) & (run.place[step] == asked.place[which])
                near[which] |= same & (apart <= self._horizon)
                step += 1
                more = step < len(run)
                step, which = step[more], which[more]
                more = run.key[step] == asked.key[which]
                step, which = step[more], which[more]
        return known, near

    def _repeats(self, asked: _Run, undecided: Flags, duplicate: Flags) -> None:
        """Marks in `duplicate` which of the `undecided` repeat an earlier one of the same batch."""
        alike = asked.key[1:] == asked.key[:-1]
        repeated = np.zeros(len(asked), np.bool_)
        repeated[1:] = alike
        repeated[:-1] |= alike
        seen: dict[tuple[int, int], list[int]] = {}
        which = np.flatnonzero(repeated & undecided)
        listed = (column[which].tolist() for column in (asked.key, asked.low, asked.time))
        for index, key, low, time in zip(which.tolist(), *listed, strict=True):
            times = seen.setdefault((key, low), [])
            if any(abs(time - other) <= self._horizon for other in times):
                duplicate[index] = True
            else:
                times.append(time)

    def _insert(self, entries: _Run) -> None:
        if not len(entries):
            return
        self._runs.append(entries)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._merge()
        if sum(map(len, self._runs)) > self._most:
            while len(self._runs) > 1:
                self._merge()
            self._forget()

    def _merge(self) -> None:
        """Merges the last two runs."""
        small, large = self._runs.pop(), self._runs.pop()
        into = np.searchsorted(large.key, small.key) + np.arange(len(small))
        kept = np.ones(len(small) + len(large), np.bool_)
        kept[into] = False
        merged = []
        for mine, others in zip(small.columns(), large.columns(), strict=True):
            column = np.empty(len(kept), mine.dtype)
            column[into] = mine
            column[kept] = others
            merged.append(column)
        self._runs.append(_Run(*merged))

    def _forget(self) -> None:
        """Forgets the oldest entries of the only run, which is too long."""
        (run,) = self._runs
        drop = len(run) - int(self._most * _ROOMY)
        oldest = np.argpartition(run.time, drop - 1)[:drop]
        latest = int(run.time[oldest].max())
        self._forgotten_to = latest if self._forgotten_to is None else max(self._forgotten_to, latest)
        stays = np.ones(len(run), np.bool_)
        stays[oldest] = False
        self._runs = [run.take(stays)] if stays.any() else []


def _mixed(high: Words, low: Words) -> Words:
    """Mixes the words; a bijection of `high` for each `low`. Needed because ids of one frame share most digits."""
    with np.errstate(over="ignore"):
        key = high * np.uint64(0x9E3779B97F4A7C15) + low
        for _ in range(2):
            key = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return key
