"""Which files are merged next, what that costs over days, and what Arrow makes of them: the same rows. Without Spark."""

from __future__ import annotations

import math
import random
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from headrace_lake.tables.statistics import statistics
from headrace_lake.tables.transaction_log import File
from headrace_lake.upkeep.maintenance import rest_after
from headrace_lake.upkeep.merging import parquet_merge
from headrace_lake.upkeep.merging.choice import MOST_SMALL, SETTLED, Piece, choose, is_small
from headrace_lake.upkeep.merging.parquet_merge import Form, merge_files

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


SCHEMA = pa.schema(
    [
        ("stream", pa.string()), ("event_time", pa.timestamp("us", "UTC")), ("body", pa.string()), ("offset", pa.int64()),
        ("day", pa.date32()), ("part", pa.int32()),
    ]
)  # fmt: skip
FORM = Form(("stream", "event_time"), 3, 2_000, plain=("body",))
MOST = 2**63 - 1


def rows(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "stream": rng.choice([None, "", "a", "é", "😀", "s" * 40]), "event_time": rng.choice([None, -1, 0, 5, 10**15]),
            "body": rng.choice([None, "", "x" * rng.randrange(200)]), "offset": seed * 10_000 + number,
            "day": date(2026, 5, 6), "part": rng.choice([None, 3]),
        }
        for number in range(count)
    ]  # fmt: skip


def write(path: Path, given: list[dict[str, Any]], schema: pa.Schema = SCHEMA, group: int = 70) -> Path:
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        writer.add_key_value_metadata({"org.apache.spark.version": "4.2.0"})
        writer.write_table(pa.Table.from_pylist(given, schema=schema), row_group_size=group)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return pa.table(pq.read_table(path)).to_pylist()


@pytest.fixture(params=[1 << 14, 128 << 20], ids=["many passes", "one pass"])
def a_pass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_merge, "_PASS", request.param)


@pytest.mark.usefixtures("a_pass")
def test_the_rows_are_the_same_and_in_order(tmp_path: Path) -> None:
    given = [rows(seed, 150) for seed in range(5)]
    files = [write(tmp_path / str(number), each) for number, each in enumerate(given)]
    merged = tmp_path / "merged"
    merge_files(files, merged, FORM)
    found = read(merged)
    flat = [row for path in files for row in read(path)]

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        """Spark's order: null first, texts by their bytes; rows with equal keys stay in the order of the files."""
        stream, at = row["stream"], row["event_time"]
        return stream is not None, (stream or "").encode(), at is not None, at.timestamp() if at else 0, row["offset"]

    assert found == sorted(flat, key=key)
    file = pq.ParquetFile(merged)
    assert file.num_row_groups > 3
    assert file.metadata.metadata == {b"org.apache.spark.version": b"4.2.0"}
    assert file.schema_arrow.equals(SCHEMA)
    place = file.schema.names.index
    group = file.metadata.row_group(0)
    assert not group.column(place("body")).is_stats_set
    assert group.column(place("stream")).has_column_index, "readers skip pages, too"
    said = statistics(merged, ("stream", "event_time", "offset", "day"))
    assert said["numRecords"] == 750
    assert said["nullCount"]["stream"] == sum(row["stream"] is None for row in flat)
    assert said["minValues"] == {
        "stream": "", "event_time": "1969-12-31T23:59:59.999999Z", "offset": 0, "day": "2026-05-06",
    }  # fmt: skip
    assert said["maxValues"] == {
        "stream": "😀", "event_time": "2001-09-09T01:46:40.000000Z", "offset": 40_149, "day": "2026-05-06",
    }  # fmt: skip


@pytest.mark.parametrize("micros", [-62_135_596_800_000_001, 253_402_300_800_000_000, MOST])
def test_a_year_that_four_digits_cannot_hold_has_no_range(micros: int, tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([0, micros], pa.timestamp("us", "UTC"))}), tmp_path / "file")
    said = statistics(tmp_path / "file", ("at",))
    assert said == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"at": 0}}
