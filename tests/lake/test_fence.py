"""Transaction identifiers on real Delta tables: claims, repeats, and jobs that were shut out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_lake import tables
from headrace_lake.fence import Fence, claim_of, epoch_of, transaction
from headrace_lake.halt import SupersededError
from headrace_lake.storage import Storage
from headrace_lake.tables import BATCHES, EVENTS, QUARANTINE, SCHEMAS
from pyspark.sql import DataFrame, SparkSession

from tests.lake.lander import version


def test_versions_order_claims_and_batches() -> None:
    assert transaction(3, 7) == 3 * 2**32 + 7
    assert transaction(1, 2**32 - 2) < claim_of(2) < transaction(2, 0)
    assert [epoch_of(number) for number in (-1, claim_of(1), transaction(1, 0), claim_of(2), transaction(2, 9))] == [
        0, 1, 1, 2, 2,
    ]  # fmt: skip


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    tables.create(Storage(spark), str(tmp_path))
    return tmp_path


def row(spark: SparkSession, batch: int) -> DataFrame:
    values = (1, batch, "t", "id", 0, batch, batch + 1, 1, 1, 0, 0, 0, datetime(2026, 1, 1, tzinfo=UTC))
    return spark.createDataFrame([values], SCHEMAS[BATCHES])


def batches(spark: SparkSession, lake: Path) -> list[int]:
    found = spark.read.format("delta").load(str(lake / BATCHES)).select("batch").collect()
    return sorted(number for (number,) in found)


@pytest.mark.spark
def test_a_batch_counts_once_and_an_older_job_is_shut_out(spark: SparkSession, lake: Path) -> None:
    older = Fence(spark, str(lake))
    assert (older.epoch(), older.claim()) == (0, 1)
    assert {version(lake, name) for name in SCHEMAS} == {claim_of(1)}

    assert not older.written(BATCHES, transaction(1, 0))
    assert older.write(BATCHES, row(spark, 0), transaction(1, 0))
    assert older.written(BATCHES, transaction(1, 0))
    assert not older.write(BATCHES, row(spark, 0), transaction(1, 0))  # again, after a crash
    older.write(BATCHES, row(spark, 1), transaction(1, 1))
    assert batches(spark, lake) == [0, 1]

    with pytest.raises(SupersededError, match="an old copy: the table batches holds batch 1 of epoch 1"):
        older.write(BATCHES, row(spark, 0), transaction(1, 0))
    with pytest.raises(SupersededError, match="old copy"):
        older.check_batch(1, 0)
    older.check_batch(1, 1)

    newer = Fence(spark, str(lake))
    assert newer.claim() == 2
    for call in (
        lambda: older.write(BATCHES, row(spark, 2), transaction(1, 2)),
        lambda: older.check(transaction(1, 2)),
        lambda: older.check_epoch(1),
        lambda: older.written(EVENTS, transaction(1, 2)),
        lambda: older.check_batch(1, -1),
    ):
        with pytest.raises(SupersededError, match="it claimed epoch 2 of the tables, this job holds epoch 1"):
            call()
    assert batches(spark, lake) == [0, 1]
    newer.check_epoch(2)
    newer.check_batch(2, -1)
    newer.write(BATCHES, row(spark, 2), transaction(2, 0))
    assert batches(spark, lake) == [0, 1, 2]


@pytest.mark.spark
def test_of_two_claims_at_once_one_wins(spark: SparkSession, lake: Path) -> None:
    one, two = Fence(spark, str(lake)), Fence(spark, str(lake))
    assert (one.epoch(), two.epoch()) == (0, 0)
    assert one._claim_in(BATCHES, 1)
    with pytest.raises(SupersededError, match="another job claimed the tables at the same time"):
        two._claim_in(BATCHES, 1)
    assert Fence(spark, str(lake)).claim() == 2
    with pytest.raises(SupersededError):  # the first one's claim of the other tables comes too late now
        one._claim_in(EVENTS, 1)


@pytest.mark.spark
def test_versions_are_found_behind_a_checkpoint_of_the_log(spark: SparkSession, lake: Path) -> None:
    fence = Fence(spark, str(lake))
    fence.claim()
    fence.write(BATCHES, row(spark, 0), transaction(1, 0))
    identity = fence.lake_id()
    table = DeltaTable(str(lake / BATCHES))
    table.create_checkpoint()
    for old in sorted((lake / BATCHES / "_delta_log").glob("0*.json"))[:-1]:  # as the log's clean-up does after a month
        old.unlink()
    after = Fence(spark, str(lake))
    assert after.written(BATCHES, transaction(1, 0))
    assert after.lake_id() == identity == str(table.metadata().id)
    after.write(BATCHES, row(spark, 1), transaction(1, 1))
    assert after.epoch() == 1
    assert batches(spark, lake) == [0, 1]


@pytest.mark.spark
def test_making_the_tables_again_changes_nothing(spark: SparkSession, lake: Path) -> None:
    before = {name: DeltaTable(str(lake / name)).metadata().id for name in SCHEMAS}
    tables.create(Storage(spark), str(lake))
    assert {name: DeltaTable(str(lake / name)).metadata().id for name in SCHEMAS} == before
    for name, schema in SCHEMAS.items():
        assert [field.name for field in DeltaTable(str(lake / name)).schema().fields] == schema.names
    assert DeltaTable(str(lake / QUARANTINE)).metadata().partition_columns == ["day"]


@pytest.mark.spark
def test_names_are_those_in_the_folder(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark)
    folder = tmp_path / "with, comma {and} space" / "x"
    folder.mkdir(parents=True)
    assert storage.names(str(folder)) == []
    for name in ("b.json", "a=1, 2", "c"):
        (folder / name).write_text("")
    assert storage.names(str(folder)) == ["a=1, 2", "b.json", "c"]
    assert storage.names(f"{folder}/none") == []
    assert storage.delete(f"{folder}/c")
    assert not storage.delete(f"{folder}/c")
    assert storage.names(str(folder)) == ["a=1, 2", "b.json"]
