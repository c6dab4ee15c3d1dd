"""Which files are merged next, how many, and when. Without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from headrace_lake.upkeep.compaction import CompactionPiece, PieceSize, choose
from headrace_lake.upkeep.inventory import DayFiles
from headrace_lake.upkeep.maintenance import TimeBudget

TODAY = "2026-05-06"
MIB = 1 << 20


def table(**days: list[int]) -> SimpleNamespace:
    """A table's inventory; `d0506` is a day, `all` stands for a table without days."""
    by_day = {}
    for name, sizes in days.items():
        day = "" if name == "all" else f"2026-{name[1:3]}-{name[3:]}"
        small = {f"file-{index}": size for index, size in enumerate(sizes)}
        by_day[day] = DayFiles(files=len(sizes) + 3, size=sum(sizes), small=small)
    return SimpleNamespace(days=by_day)


def next_piece(*, least: int = 4, most: int = 100, **tables: SimpleNamespace) -> CompactionPiece | None:
    return choose(tables, today=TODAY, least=least, most=most)  # type: ignore[arg-type]


def test_a_day_that_grows_waits_for_enough_files() -> None:
    assert next_piece(events=table(d0506=[1, 2, 3])) is None
    assert next_piece(events=table(d0506=[1, 2, 3, 4])) == ("events", TODAY, 4, 10, 5)
    assert next_piece(batches=table(all=[1, 2, 3])) is None


def test_a_day_that_is_over_is_merged_to_the_end() -> None:
    assert next_piece(events=table(d0505=[7])) is None
    assert next_piece(events=table(d0505=[7, 3])) == ("events", "2026-05-05", 2, 10, 8)


def test_the_smallest_go_first_and_the_bytes_are_bounded() -> None:
    assert next_piece(events=table(d0506=[60, 30, 20, 10, 40]), most=100) == ("events", TODAY, 4, 100, 41)
    assert next_piece(events=table(d0506=[60, 30, 20, 10, 40]), most=99) == ("events", TODAY, 3, 60, 31)


def test_two_files_are_merged_however_large() -> None:
    """Otherwise files between the size of a piece and the target size would stay for ever."""
    assert next_piece(events=table(d0506=[80, 90, 95, 99]), most=100) == ("events", TODAY, 2, 170, 91)


def test_files_of_one_size_are_not_told_apart() -> None:
    assert next_piece(events=table(d0506=[10] * 30 + [11]), most=50) == ("events", TODAY, 30, 300, 11)


def test_where_there_are_most_files_it_begins() -> None:
    tables = {"events": table(d0505=[1] * 9, d0506=[1] * 20), "batches": table(all=[1] * 12)}
    piece = choose(tables, today=TODAY, least=4, most=100)  # type: ignore[arg-type]
    assert piece is not None
    assert (piece.table, piece.day, piece.files) == ("events", TODAY, 20)


def test_nothing_is_merged_for_ever() -> None:
    """Choosing and merging repeatedly comes to an end; then no earlier day has two files to merge."""
    target = 1000
    days = {"2026-05-05": [17 * n % 400 + 1 for n in range(300)], TODAY: [90] * 7 + [30]}
    for _ in range(1000):
        inventory = SimpleNamespace(
            days={
                day: DayFiles(
                    len(sizes), sum(sizes), {str(n): size for n, size in enumerate(sizes) if size < target // 2}
                )
                for day, sizes in days.items()
            }
        )
        piece = choose({"events": inventory}, today=TODAY, least=4, most=250)  # type: ignore[dict-item]
        if piece is None:
            break
        sizes = sorted(days[piece.day])
        assert piece.size == sum(size for size in sizes if size < piece.below)
        days[piece.day] = [*sizes[piece.files :], piece.size]
    else:
        pytest.fail("it never ends")
    assert sum(size < target // 2 for size in days["2026-05-05"]) <= 1
    assert sum(size < target // 2 for size in days[TODAY]) < 4


def test_a_piece_grows_while_it_is_quick_and_shrinks_when_it_is_not() -> None:
    size = PieceSize(3, 128 * MIB)
    assert size.bytes == 16 * MIB
    size.learn(16 * MIB, 1.0)
    assert size.bytes == 32 * MIB
    size.learn(1 * MIB, 0.5)  # says nothing of large ones
    size.learn(32 * MIB, 2.0)  # as it should be
    assert size.bytes == 32 * MIB
    size.learn(32 * MIB, 3.1)
    assert size.bytes == 16 * MIB
    for _ in range(9):
        size.learn(size.bytes, 9)
    assert size.bytes == 4 * MIB
    for _ in range(9):
        size.learn(size.bytes, 0.1)
    assert size.bytes == 128 * MIB


def test_the_budget_is_a_share_of_the_time() -> None:
    now = [0.0]
    budget = TimeBudget(0.2, 3, clock=lambda: now[0])
    assert budget.left()  # one piece, so that a short run does something too
    budget.spend(5)
    assert not budget.left()
    now[0] = 9.9
    assert not budget.left()
    now[0] = 10.1
    assert budget.left()
    now[0] = 1e6
    assert budget.left()
    budget.spend(29.9)  # ten pieces were saved, not a day
    assert budget.left()
    budget.spend(0.2)
    assert not budget.left()
    assert not TimeBudget(0, 3).left()
