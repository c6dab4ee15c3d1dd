"""A table's rows by the files that its log names are those that Delta reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.transaction_log import LiveFiles, live_rows
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def minutes(since: int, count: int = 2) -> pa.Table:
    """Rows of `count` minutes, one each, from the minute `since` after noon on; their microseconds are beyond the log's times."""
    numbers = range(since, since + count)
    times = [NOON + timedelta(minutes=number, microseconds=999) for number in numbers]
    return pa.table(
        {"offset": list(numbers), "time": pa.array(times, pa.timestamp("us", "UTC")), "day": ["2026-11-27"] * count}
    )


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Ten files of two minutes, of which a merge has replaced the first six by one; a checkpoint comes before or after it."""
    path = str(tmp_path / "a table")
    for number in range(6):
        write_deltalake(path, minutes(2 * number), mode="append", partition_by=["day"])
    return path


def offsets(spark: SparkSession, table: str, since: datetime | None = None) -> list[int]:
    limit = None if since is None else ("time", int(since.timestamp() * 1000))
    return sorted(row.offset for row in live_rows(spark, table, ["offset", "time"], limit).collect())


@pytest.mark.parametrize("checkpoints", [(), (5,), (6,), (3, 9), (9,)], ids=str)
def test_rows_are_those_of_the_files_that_are_live(
    spark: SparkSession, table: str, checkpoints: tuple[int, ...]
) -> None:
    """The log's checkpoint is before the merge, after it, or behind all. Files that end before a time are left out."""
    delta = DeltaTable(table)
    for version in range(6, 10):
        if version - 1 in checkpoints:
            delta.create_checkpoint()
        if version == 6:
            delta.optimize.compact()
        else:
            write_deltalake(table, minutes(2 * (version - 1)), mode="append")
        delta.update_incremental()
    if 9 in checkpoints:
        delta.create_checkpoint()
    assert offsets(spark, table) == [*range(18)]
    log = LiveFiles(Storage(spark), table)
    log.latest()
    assert len(log.paths()) == 4
    last = NOON + timedelta(minutes=13)
    assert offsets(spark, table, last) == offsets(spark, table, last + timedelta(milliseconds=1)) == [*range(12, 18)]
    assert offsets(spark, table, last + timedelta(milliseconds=2)) == [*range(14, 18)], "the log has no microseconds"
    assert offsets(spark, table, NOON + timedelta(minutes=18)) == []
