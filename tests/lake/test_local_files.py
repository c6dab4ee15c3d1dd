"""The local files by which the JVM writes the checkpoint and Delta's log, where a folder has no hard links: Hadoop's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headrace_lake.spark.engine import LOCAL_FILES, _write_local_files, remarks
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_where_a_folder_has_no_hard_links_hadoops_own_stay_and_it_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    places = {"LAKE__PATH": str(tmp_path / "lake"), "LAKE__CHECKPOINT": str(tmp_path / "checkpoint")}
    spark._jsc.hadoopConfiguration().set(LOCAL_FILES, "org.apache.hadoop.fs.local.LocalFs")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        _write_local_files(spark, *places.values())
    said = remarks(spark, places)
    _write_local_files(spark, *places.values())
    assert [each.partition(" ")[0] for each in said] == ["LAKE__PATH"]
    assert remarks(spark, places) == []
    assert [*tmp_path.iterdir()] == []
