"""Simulates what merging rewrites over days, by the job's own decisions and without Spark: batches with their files.

Each batch adds the files that landing writes for its records, with the sizes that such files have; the pieces that the job
chooses then run one after the other, within its budget of time, and take what merging costs. The last line says the
amplification (bytes that merging wrote ÷ bytes that landing wrote), the CPU of merging per million events, and how many files
finished days have. Exits with 1 if a bound of docs/lake-operate.md does not hold.

    python -m benchmarks.merging --rate 5000 --days 30
    python -m benchmarks.merging --all           # five rates, 30 days; writes benchmarks/results/merging.json and .md
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from headrace_lake.landing.gathered import tasks
from headrace_lake.upkeep.maintenance import TimeBudget
from headrace_lake.upkeep.merging.choice import Shrinkage, choose, is_small

RESULTS = Path(__file__).parent / "results"
RATES: Final = (10, 100, 1_000, 5_000, 20_000)
DAY: Final = 86_400
START: Final = round(datetime(2026, 5, 1, tzinfo=UTC).timestamp())
TRIGGER: Final = 5.0
CORES: Final = 2
PARTITIONS: Final = 4
FILE_BYTES: Final = 128 << 20
SHARE: Final = 0.2

# As measured on the events of `layout.py`: bytes of a file that landing wrote (50 to 25,000 rows), of a merged one, and the CPU
# of merging (its "CPU-s to merge").
FOOTER: Final = 6_000
LANDED_ROW: Final = 71.0
MERGED_ROW: Final = 64.0
SECONDS_OF_A_BYTE: Final = 70e-9
SECONDS_OF_A_FILE: Final = 0.005  # 2 ms to read it, the rest in Delta

MOST_AMPLIFICATION: Final = 2.2
MOST_OF_IDEAL: Final = 1.3
MOST_BEYOND: Final = 60


@dataclass
class Files:
    """The files of a day, as `choice.choose` reads them; `rows`: path -> rows."""

    small: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    newest: float = 0.0
    size: int = 0


@dataclass
class Outcome:
    """The result of a run; `of_ideal`: files ÷ ideal of the worst finished day, `beyond`: of a running day at any time."""

    rate: int
    days: int
    amplification: float
    row_rewrites: float
    cpu_per_million: float
    files_of_a_day: float
    of_ideal: float
    beyond: int
    files_landed_an_hour: float
    files_merged_an_hour: float


class Simulation:
    """A table of events that grows by `rate` rows a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._now = float(START)
        self._days: dict[str, Files] = {}
        self._shrink = Shrinkage()
        self._budget = TimeBudget(SHARE, clock=lambda: self._now)
        self._free_at = 0.0  # when the running piece ends
        self._names = 0
        self.landed = self.written = self.landed_rows = self.written_rows = 0
        self.landed_files = self.merged_files = 0
        self.cpu, self.beyond = 0.0, 0

    def run(self, days: int) -> Outcome:
        """Lands for `days`, and waits for an hour after them."""
        batch = round(self._rate * TRIGGER)
        per_file = _split(batch)
        of_ideal, counts = 0.0, []
        checked: set[str] = set()
        end = START + days * DAY
        while self._now < end + 3600:
            self._now += TRIGGER
            if self._now < end:
                day = self._days.setdefault(_day(self._now), Files())
                for rows in per_file:
                    self._add(day, rows, FOOTER + round(rows * LANDED_ROW))
                    self.landed += FOOTER + round(rows * LANDED_ROW)
                self.landed_files += len(per_file)
                self.landed_rows += batch
                self.beyond = max(self.beyond, len(day.rows) - _ideal(day))
            self._merge()
            for name in list(self._days):
                if name not in checked and self._now >= _end_of(name) + 3600 - TRIGGER:
                    checked.add(name)
                    ended = self._days.pop(name)
                    of_ideal = max(of_ideal, len(ended.rows) / _ideal(ended))
                    counts.append(len(ended.rows))
        hours = days * 24
        return Outcome(
            self._rate, days, self.written / self.landed, self.written_rows / self.landed_rows,
            self.cpu / self.landed_rows * 1e6, sum(counts) / len(counts), of_ideal, self.beyond,
            self.landed_files / hours, self.merged_files / hours,
        )  # fmt: skip

    def _add(self, day: Files, rows: int, size: int) -> None:
        self._names += 1
        path = f"{self._names:09}"
        day.rows[path] = rows
        day.size += size
        day.newest = self._now
        if is_small(size, FILE_BYTES):
            day.small[path] = size

    def _merge(self) -> None:
        while self._free_at <= self._now and self._budget.left():
            piece = choose(
                {"events": self._days}, today=_day(self._now), now=self._now, file_bytes=FILE_BYTES,
                ratios={"events": self._shrink.ratio},
            )  # fmt: skip
            if piece is None:
                return
            day = self._days[piece.day]
            rows = 0
            for path in piece.files:
                rows += day.rows.pop(path)
                day.size -= day.small.pop(path)
            size = FOOTER + round(rows * MERGED_ROW)
            if piece.final:
                self._shrink.learn(piece.size, size)
            self._add(day, rows, size)
            self.written += size
            self.written_rows += rows
            self.merged_files += 1
            took = piece.size * SECONDS_OF_A_BYTE + len(piece.files) * SECONDS_OF_A_FILE
            self.cpu += took
            self._budget.spend(took)
            self._free_at = max(self._free_at, self._now - TRIGGER) + took


def simulate(rate: int, days: int) -> Outcome:
    """A run of its own."""
    return Simulation(rate).run(days)


def _split(batch: int) -> list[int]:
    """The rows of each file of a batch."""
    count = min(PARTITIONS, tasks([batch // PARTITIONS] * PARTITIONS, CORES))
    return [batch // count + (number < batch % count) for number in range(count)]


def _ideal(day: Files) -> int:
    return max(1, math.ceil(day.size / FILE_BYTES))


def _day(now: float) -> str:
    return _name_of(int(now) // DAY)


@cache
def _name_of(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()


@cache
def _end_of(day: str) -> float:
    return datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() + DAY


def wrong(outcome: Outcome) -> list[str]:
    """The bounds that do not hold."""
    return [
        name
        for name, value, most in (
            ("amplification", outcome.amplification, MOST_AMPLIFICATION),
            ("files of a finished day ÷ ideal", outcome.of_ideal, MOST_OF_IDEAL),
            ("files of a running day beyond the ideal", outcome.beyond, MOST_BEYOND),
        )
        if value > most
    ]


def line(outcome: Outcome) -> str:
    """The last line of a run."""
    return (
        f"amplification {outcome.amplification:.2f}, {outcome.cpu_per_million:.1f} CPU-s/M,"
        f" {outcome.files_of_a_day:.0f} files a finished day ({outcome.of_ideal:.2f} × ideal),"
        f" at most {outcome.beyond} beyond the ideal in a running one"
    )


def table(outcomes: list[Outcome]) -> Iterator[str]:
    """The results as Markdown."""
    yield (
        "| events/s | bytes merging wrote ÷ landing wrote | times a row is rewritten | CPU-s/M of merging | files of a"
        " finished day | ÷ ideal, worst | running day: most beyond the ideal | files landed an hour | files merged an hour |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for each in outcomes:
        yield (
            f"| {each.rate:,} | {each.amplification:.2f} | {each.row_rewrites:.2f} | {each.cpu_per_million:.1f} |"
            f" {each.files_of_a_day:.0f} | {each.of_ideal:.2f} | {each.beyond} | {each.files_landed_an_hour:,.0f} |"
            f" {each.files_merged_an_hour:.1f} |"
        )


def write(outcomes: list[Outcome]) -> None:
    """Writes the results' files."""
    head = (
        f"A simulation of {outcomes[0].days} days that drives the job's own decisions (`upkeep/merging/choice.py`): a batch each"
        f" {TRIGGER:.0f} s from {PARTITIONS} partitions on {CORES} cores, files of {FOOTER:,} + {LANDED_ROW:.0f} × rows bytes as"
        f" landing writes them, {MERGED_ROW:.0f} × rows once merged, FILE_BYTES 128 MiB, {SECONDS_OF_A_BYTE * 1e9:.0f} CPU-s for"
        f" each GB merged and {SECONDS_OF_A_FILE * 1000:.0f} ms for each file. Written by `python -m benchmarks.merging`.\n\n"
    )
    (RESULTS / "merging.json").write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    (RESULTS / "merging.md").write_text(head + "\n".join(table(outcomes)) + "\n")


def main() -> None:
    """Runs one rate, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=5_000, help="events a second")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--all", action="store_true", help="five rates; write the results")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(len(RATES)) as pool:
        rates = RATES if arguments.all else (arguments.rate,)
        outcomes = list(pool.map(simulate, rates, [arguments.days] * len(rates)))
    if arguments.all:
        write(outcomes)
    for outcome in outcomes:
        print(f"{outcome.rate} events/s, {outcome.days} days: {line(outcome)}" if arguments.all else line(outcome))
    failed = [name for outcome in outcomes for name in wrong(outcome)]
    sys.exit(f"too much: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
