"""How the writing query marks duplicates when the index is in the driver."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from headrace_lake.dedup import lookup
from headrace_lake.dedup.arrays_index import _READ, _marked, _rows, _written
from headrace_lake.dedup.index import DUPLICATE, OFFSET_BITS
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAR = (1 << OFFSET_BITS) - 1  # the last offset that a place can hold


def place(partition: int, offset: int) -> int:
    return partition << OFFSET_BITS | offset


@pytest.mark.parametrize(
    "named",
    [
        [],
        [(0, 0)],
        [(0, 5), (0, 7), (2, 6), (2, 7)],
        [(3, 0), (3, 9)],
        [(1, FAR), (1, FAR - 3), (0, 9)],
        random.Random(5).sample([(partition, offset) for partition in range(4) for offset in range(10)], 17),
    ],
)
def test_rows_are_marked_by_their_places(spark: SparkSession, named: list[tuple[int, int]]) -> None:
    rows = [(partition, offset) for partition in range(5) for offset in (*range(10), FAR - 3, FAR - 2, FAR - 1, FAR)]
    frame = spark.createDataFrame(rows, "partition int, offset long")
    marked = _marked(frame, sorted(place(*where) for where in named)).collect()
    assert {row[DUPLICATE] for row in marked} <= {True, False}, "never unknown"
    assert sorted((row["partition"], row["offset"]) for row in marked if row[DUPLICATE]) == sorted(named)


def test_ids_of_files_are_those_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """Of the rows of a file, and of a file without rows; while `u.` ids are looked for, and while they are not."""
    moment = datetime(2026, 5, 6, 12, 0, 0, 7999, tzinfo=UTC)
    events = spark.createDataFrame(
        [
            ("d." + "0123456789abcdef" * 2, moment, None, 0, 0),
            ("u." + "f" * 32, moment, '{"republished":true}', 3, 1 << 32),
            ("d." + "8" * 32, moment, '{"republished":true}', (1 << 18) - 1, FAR),
            ("u." + "0" * 32, moment, '{"a":1}', 0, 7),
            ("d." + "A" * 32, moment, None, 0, 8),  # no id of ours
            ("d." + "0" * 31 + "g", moment, None, 0, 9),
        ],
        "event_id string, received_time timestamp, attributes string, partition int, offset long",
    )
    for number, rows in enumerate((events, events.where("false"))):
        rows.select(*_READ).coalesce(1).write.parquet(str(tmp_path / str(number)))
        table = pq.read_table(tmp_path / str(number))
        for uniques in (False, True):
            kind = lookup.kind(uniques=uniques, no_event="false")
            asked = _rows(
                rows.selectExpr("event_id", f"{lookup.TIME} as time", f"{lookup.place()} as place", f"{kind} as kind")
            )
            found = _written(table, uniques=uniques)
            assert len(found) == (0 if number else 4 if uniques else 3)
            for one, other in zip(vars(found).values(), vars(asked).values(), strict=True):
                assert (one.tolist(), one.dtype) == (other.tolist(), other.dtype)
