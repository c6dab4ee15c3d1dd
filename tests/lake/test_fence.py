"""Transaction identifiers on real Delta tables: claims, repeated writes, and jobs that were shut out."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from headrace_lake.spark.halt import HaltError, SupersededError
from headrace_lake.tables.append import append
from headrace_lake.tables.fence import Fence, claim_of, transaction
from headrace_lake.tables.layout import BATCHES, SCHEMAS
from headrace_lake.tables.on_spark import Tables
from headrace_lake.tables.properties import APP_ID
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.lake.lander import version

_OF_ONE_COMMIT = {"timestamp", "txnId", "path", "size", "modificationTime", "lastUpdated", "operationMetrics"}


@pytest.fixture
def lake(tmp_path: Path, empty_tables: Path) -> Path:
    return Path(shutil.copytree(empty_tables, tmp_path / "lake"))


def row(spark: SparkSession, batch: int) -> DataFrame:
    """A row of `batches`."""
    values = (1, batch, "t", "id", 0, batch, batch + 1, 1, datetime(2026, 1, 1, tzinfo=UTC), None, batch + 1)
    return spark.createDataFrame([values], SCHEMAS[BATCHES])


def batches(spark: SparkSession, lake: Path) -> list[int]:
    found = spark.read.format("delta").load(str(lake / BATCHES)).select("batch").collect()
    return sorted(number for (number,) in found)


@pytest.mark.spark
def test_a_batch_counts_once_and_excludes_an_older_job(spark: SparkSession, lake: Path) -> None:
    older, newer = (Fence(Tables(spark, str(lake))) for _ in range(2))
    assert (older.epoch(), older.claim()) == (0, 1)
    assert {version(lake, name) for name in SCHEMAS} == {claim_of(1)}
    older.write(BATCHES, row(spark, 0), transaction(1, 0))
    with pytest.raises(HaltError, match="was not committed, and another job's was"):
        older.write(BATCHES, row(spark, 0), transaction(1, 0))
    assert newer.claim() == 2
    for call in (
        partial(older.write, BATCHES, row(spark, 1), transaction(1, 1)),
        partial(older.check, transaction(1, 1)),
        partial(older.check_epoch, 1),
    ):
        with pytest.raises(SupersededError, match="it claimed epoch 2 of the tables, this job holds epoch 1"):
            call()
    newer.check_epoch(2)
    newer.write(BATCHES, row(spark, 2), transaction(2, 0))
    assert batches(spark, lake) == [0, 2]

    log = newer._logs[BATCHES]

    def overtaken() -> int:
        """Called after the transaction has begun. Its answer is true, but outdated at once."""
        found = log.latest()
        assert older.claim() == 3
        return found

    with pytest.raises((Py4JJavaError, PySparkException), match=r"ConcurrentTransaction|CONCURRENT_TRANSACTION"):
        newer._tables.append(BATCHES, row(spark, 3), transaction(2, 1), "late", overtaken)
    assert batches(spark, lake) == [0, 2]


@pytest.mark.spark
def test_a_commit_is_tried_again_behind_an_altered_table(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim, and a batch: each meets an ALTER TABLE between its beginning and its end."""
    fence = Fence(Tables(spark, str(lake)))
    land = fence._tables.append
    tries: list[int] = []
    met: set[int] = set()

    def altered(name: str, rows: DataFrame, number: int, token: str, latest: Any, accept: Any = None) -> None:
        def alters_first() -> int:
            tries.append(number)
            if name == BATCHES and number not in met:
                met.add(number)
                spark.sql(f"alter table delta.`{lake / name}` set tblproperties ('a' = '{number}')")
            return latest()

        land(name, rows, number, token, alters_first, accept)

    monkeypatch.setattr(fence._tables, "append", altered)
    assert fence.claim() == 1
    assert tries.count(claim_of(1)) == len(SCHEMAS) + 1
    fence.write(BATCHES, row(spark, 0), transaction(1, 0))
    assert tries.count(transaction(1, 0)) == 2
    assert batches(spark, lake) == [0]


@pytest.mark.spark
def test_the_steps_are_those_of_deltas_writer(spark: SparkSession, tmp_path: Path, empty_tables: Path) -> None:
    def by_delta(path: str, rows: DataFrame | None, number: int, token: str, _: object) -> None:
        rows = spark.read.format("delta").load(path).where("false") if rows is None else rows
        writer = rows.write.format("delta").mode("append").option("userMetadata", token)
        writer.option("txnAppId", APP_ID).option("txnVersion", number).save(path)

    def shapes(path: Path) -> list[Any]:
        """The actions of the commits, without the fields that differ from commit to commit."""
        found = []
        for file in sorted((path / BATCHES / "_delta_log").glob("*.json"))[1:]:
            for line in file.read_text().splitlines():
                ((kind, action),) = json.loads(line).items()
                same = {name: value for name, value in action.items() if name not in _OF_ONE_COMMIT}
                found.append((kind, sorted(action), same))
        return found

    def commits(path: Path, land: Any) -> None:
        shutil.copytree(empty_tables, path)
        for number in (0, 0, 1):
            latest = Fence(Tables(spark, str(path)))._logs[BATCHES].latest
            land(str(path / BATCHES), row(spark, number).coalesce(1), transaction(1, number), f"token {number}", latest)
        land(str(path / BATCHES), row(spark, 0).where("false"), transaction(1, 2), "no rows", lambda: -1)
        land(str(path / BATCHES), None, transaction(1, 3), "nothing", lambda: -1)

    commits(tmp_path / "steps", partial(append, spark, APP_ID))
    commits(tmp_path / "writer", by_delta)
    assert shapes(tmp_path / "steps") == shapes(tmp_path / "writer")
    kinds = [kind for kind, _, _ in shapes(tmp_path / "steps")]
    assert kinds == ["commitInfo", "txn", "add"] * 2 + ["commitInfo", "txn"] * 2
    assert batches(spark, tmp_path / "steps") == [0, 1]
