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
from headrace_lake.upkeep.merging.choice import MOST_SMALL, SETTLED, choose, is_small
from headrace_lake.upkeep.merging.parquet_merge import Form, merge_files

TODAY, YESTERDAY = "2026-05-06", "2026-05-05"
NOW = 1e9
FINAL = 6**4  # the levels are 6**3, 6**2 …


ENOUGH = [1] * MOST_SMALL
DUE: dict[str, tuple[str, list[int], float, list[int]]] = {
    "a day that grows waits": (TODAY, ENOUGH[1:], SETTLED * 9, []),
    "for enough files": (TODAY, ENOUGH, 0, ENOUGH),
    "a table without days waits": ("", ENOUGH[1:], SETTLED * 9, []),
    "for as many": ("", ENOUGH, 0, ENOUGH),
    "two large files wait": (TODAY, [600, 600], 0, []),
    "for small ones that fill what is left": (TODAY, [600, 600, 150, 90, 80, 40, 30], 0, [30, 40, 150, 600, 600]),
    "a day that is over has one file": (YESTERDAY, [7], SETTLED, []),
    "or waits until nobody writes to it": (YESTERDAY, [7, 3], SETTLED - 1, []),
    "and is merged to the end": (YESTERDAY, [7, 3], SETTLED, [3, 7]),
    "a file from the future of this clock": (YESTERDAY, [7, 3], -SETTLED, []),
}
"""A day, the sizes of its files, how many seconds ago they were added, and the sizes of those that become one."""


@pytest.mark.parametrize("name", DUE)
def test_which_files_are_merged_next(name: str) -> None:
    day, sizes, age, merged = DUE[name]
    files = {f"day={day}/{n:03}" if day else f"{n:03}": File(size, NOW - age, None) for n, size in enumerate(sizes)}
    piece = choose({"events": files}, today=TODAY, now=NOW, file_bytes=FINAL)
    assert sorted(piece.files.values() if piece else ()) == merged
    assert piece is None or (piece.table, piece.day) == ("events", day)


@pytest.mark.parametrize("size", [9_000, 7_000_000])
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


def write(path: Path, given: list[dict[str, Any]]) -> Path:
    with pq.ParquetWriter(path, SCHEMA, store_schema=False) as writer:
        writer.add_key_value_metadata({"org.apache.spark.version": "4.2.0"})
        writer.write_table(pa.Table.from_pylist(given, schema=SCHEMA), row_group_size=70)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return pa.table(pq.read_table(path)).to_pylist()


@pytest.mark.parametrize("a_pass", [1 << 14, 128 << 20])
def test_the_rows_are_the_same_and_in_order(tmp_path: Path, a_pass: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_merge, "_PASS", a_pass)
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
