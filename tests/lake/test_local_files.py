"""The local files by which the JVM writes the checkpoint and Delta's log: as Hadoop's own, but a new one replaces no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headrace_lake.spark.engine import LOCAL_FILES, _write_local_files, remarks
from headrace_lake.spark.jvm import define, java_class
from pyspark.sql import SparkSession

from tests.tiers import sized

pytestmark = pytest.mark.spark

HADOOPS = "org.apache.hadoop.fs.local.LocalFs"
RACES = sized(1_000, 1_000, 30_000)


def test_the_job_writes_by_them(spark: SparkSession) -> None:
    assert spark._jsc.hadoopConfiguration().get(LOCAL_FILES) == "headrace.lake.LocalFiles"
    new = java_class(spark, "org.apache.hadoop.fs.FileContext").getFileContext(spark._jsc.hadoopConfiguration())
    assert new.getDefaultFileSystem().getClass().getName() == "headrace.lake.LocalFiles"


def test_of_two_writers_of_a_commit_one_hears_success(spark: SparkSession, tmp_path: Path) -> None:
    configuration = spark._jsc.hadoopConfiguration()
    store = java_class(spark, "io.delta.storage.HDFSLogStore")(configuration)
    won, ready = map(java_class(spark, "java.util.concurrent.atomic.AtomicIntegerArray"), (RACES, 1))
    racer = define(spark, "tests.lake", "Racer")
    racers = [racer(store, configuration, f"file:{tmp_path}", won, ready) for _ in range(2)]
    for each in racers:
        each.start()
    for each in racers:
        each.join()
    assert won.toString() == str([1] * RACES)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{commit:020d}.json" for commit in range(RACES)]


def test_where_a_folder_has_no_hard_links_hadoops_own_stay_and_it_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    places = {"LAKE__PATH": str(tmp_path / "lake"), "LAKE__CHECKPOINT": str(tmp_path / "checkpoint")}
    spark._jsc.hadoopConfiguration().set(LOCAL_FILES, HADOOPS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        _write_local_files(spark, *places.values())
    said = remarks(spark, places)
    _write_local_files(spark, *places.values())
    assert [each.partition(" ")[0] for each in said] == ["LAKE__PATH"]
    assert remarks(spark, places) == []
    assert [*tmp_path.iterdir()] == []
