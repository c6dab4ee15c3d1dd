"""A table of events that grows for days: landing's files, and the pieces that the job's own decisions merge. Without Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Final

from headrace_lake.landing.gathered import tasks
from headrace_lake.upkeep.maintenance import TimeBudget
from headrace_lake.upkeep.merging.choice import choose, is_small

RATES: Final = (10, 100, 1_000, 5_000, 20_000)
DAY: Final = 86_400
START: Final = round(datetime(2026, 5, 1, tzinfo=UTC).timestamp())
TRIGGER: Final = 5.0
CORES: Final = 2
PARTITIONS: Final = 4
FILE_BYTES: Final = 128 << 20
# As measured: bytes of a file that landing wrote and of a merged one, and the CPU of merging.
FOOTER: Final = 6_000
LANDED_ROW: Final = 71.0
MERGED_ROW: Final = 64.0
SECONDS_OF_A_BYTE: Final = 70e-9
SECONDS_OF_A_FILE: Final = 0.005


@dataclass
class Files:
    """The files of a day, as `choice.choose` reads them; `rows`: path -> rows."""

    small: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    newest: float = 0.0
    size: int = 0

    @property
    def ideal(self) -> int:
        return max(1, math.ceil(self.size / FILE_BYTES))


class Days:
    """`landed`, `written`: bytes of landing and of merging. `of_ideal`: files of the finished day ÷ the fewest for its bytes.
    `beyond`: most files beyond those of a running one.
    """

    def __init__(self, rate: int) -> None:
        self._batch = round(rate * TRIGGER)
        self._now = float(START)
        self._days: dict[str, Files] = {}
        self._budget = TimeBudget(0.2, clock=lambda: self._now)
        self._free_at = 0.0  # when the running piece ends
        self._names = 0
        self.landed = self.written = self.landed_rows = self.written_rows = self.beyond = 0
        self.of_ideal = 0.0

    def run(self) -> None:
        """Lands for a day, and waits for an hour after it."""
        files = min(PARTITIONS, tasks([self._batch // PARTITIONS] * PARTITIONS, CORES))
        while self._now < START + DAY + 3600:
            self._now += TRIGGER
            if self._now < START + DAY:
                day = self._days.setdefault(_name_of(int(self._now) // DAY), Files())
                for number in range(files):
                    rows = self._batch // files + (number < self._batch % files)
                    self.landed += self._add(day, rows, FOOTER + round(rows * LANDED_ROW))
                self.landed_rows += self._batch
                self.beyond = max(self.beyond, len(day.rows) - day.ideal)
            self._merge()
        (ended,) = self._days.values()
        self.of_ideal = len(ended.rows) / ended.ideal

    def _add(self, day: Files, rows: int, size: int) -> int:
        self._names += 1
        path = f"{self._names:09}"
        day.rows[path] = rows
        day.size += size
        day.newest = self._now
        if is_small(size, FILE_BYTES):
            day.small[path] = size
        return size

    def _merge(self) -> None:
        while self._free_at <= self._now and self._budget.left():
            today = _name_of(int(self._now) // DAY)
            piece = choose({"events": self._days}, today=today, now=self._now, file_bytes=FILE_BYTES)
            if piece is None:
                return
            day = self._days[piece.day]
            rows, before = 0, sum(day.small[path] for path in piece.files)
            for path in piece.files:
                rows += day.rows.pop(path)
                day.size -= day.small.pop(path)
            size = FOOTER + round(rows * MERGED_ROW)
            self.written += self._add(day, rows, size)
            self.written_rows += rows
            took = before * SECONDS_OF_A_BYTE + len(piece.files) * SECONDS_OF_A_FILE
            self._budget.spend(took)
            self._free_at = max(self._free_at, self._now - TRIGGER) + took


@cache
def _name_of(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()
