"""Which files are merged next, and what that costs over days. Without Spark."""

from __future__ import annotations

import math

import pytest
from headrace_lake.tables.transaction_log import File
from headrace_lake.upkeep.maintenance import rest_after
from headrace_lake.upkeep.merging.choice import MOST_SMALL, SETTLED, Piece, choose, is_small

from tests.contract.waiting import there

TODAY, YESTERDAY = "2026-05-06", "2026-05-05"
NOW = 1e9
FINAL = 6**4  # the levels are 6**3, 6**2 …


def day(*sizes: int, age: float = 0.0) -> list[File]:
    """A day's files, added `age` seconds ago."""
    return [File(size, NOW - age, None) for size in sizes]


def next_piece(**tables: dict[str, list[File]]) -> Piece | None:
    named = {
        table: {
            f"day={day}/{n:03}" if day else f"{n:03}": file
            for day, files in days.items()
            for n, file in enumerate(files)
        }
        for table, days in tables.items()
    }
    return choose(named, today=TODAY, now=NOW, file_bytes=FINAL)


def sizes(piece: Piece, files: list[File]) -> list[int]:
    return sorted(files[int(name[-3:])].size for name in piece.files)


@pytest.mark.parametrize("name", [TODAY, ""])
def test_a_day_that_grows_waits_for_enough_files(name: str) -> None:
    waiting = day(*[1] * (MOST_SMALL - 1), age=SETTLED * 9)
    assert next_piece(events={name: waiting}) is None
    piece = there(next_piece(events={name: day(*[1] * MOST_SMALL)}))
    assert (piece.table, piece.day, len(piece.files)) == ("events", name, MOST_SMALL)


def test_files_become_one_of_the_final_size_as_soon_as_there_are_enough() -> None:
    assert next_piece(events={TODAY: day(600, 600)}) is None
    files = day(600, 600, 150, 90, 80, 40, 30)
    piece = there(next_piece(events={TODAY: files}))
    assert sizes(piece, files) == [30, 40, 150, 600, 600], "the largest, and small ones that fill what is left"


def test_a_day_that_is_over_is_merged_to_the_end_once_nobody_writes_to_it() -> None:
    assert next_piece(events={YESTERDAY: day(7, age=SETTLED)}) is None
    assert next_piece(events={YESTERDAY: day(7, 3, age=SETTLED - 1)}) is None
    piece = there(next_piece(events={YESTERDAY: day(7, 3, age=SETTLED)}))
    assert len(piece.files) == 2
    assert next_piece(events={YESTERDAY: day(7, 3, age=-SETTLED)}) is None, "added in the future of this clock"


@pytest.mark.parametrize("size", [9_000, 360_000, 1_800_000, 7_000_000])
def test_a_day_is_rewritten_seldom_and_has_few_files(size: int) -> None:
    """A file of `size` bytes lands every 5 seconds, and all that is due is merged at once."""
    small, written, most, whole = dict[str, File](), 0, 0, 0
    batches, final = 17_280, 128 << 20
    for number in range(batches + 200):
        now = NOW + 5 * number
        if number < batches:
            small[f"day={YESTERDAY}/{number:06}"] = File(size, now, None)
        today = YESTERDAY if number < batches else TODAY
        while piece := choose({"events": small}, today=today, now=now, file_bytes=final):
            merged = File(sum(small.pop(name).size for name in piece.files), now, None)
            written += merged.size
            if is_small(name := f"day={YESTERDAY}/{number:06}+", merged, final):
                small[name] = merged
            else:
                whole += 1
        ideal = math.ceil(min(number + 1, batches) * size / final)
        most = max(most, whole + len(small) - ideal)
    assert written <= 4 * batches * size
    assert most <= 60
    assert whole + len(small) <= 1.3 * ideal


def test_a_rest_leaves_pieces_their_share_of_the_time() -> None:
    assert rest_after(5.0, 0.2) == 20.0
    assert rest_after(9.0, 0.9) == pytest.approx(1.0)
