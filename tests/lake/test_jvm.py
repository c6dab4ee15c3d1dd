"""The JVM's classes: asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.storage import Storage
from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_file_that_is_not_there_costs_no_call_to_the_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Most looks at the tables' logs find nothing new."""
    storage, folder = Storage(spark), f"{scheme}{tmp_path}"
    for name in ("a", "with space", "%20", "q?", "hash#"):
        (tmp_path / name).write_text(name)
        assert storage.exists(f"{folder}/{name}")
        assert storage.read(f"{folder}/{name}") == name

    def asks(*_: object) -> None:
        raise AssertionError("asks the JVM")

    monkeypatch.setattr(Storage, "_class", asks)
    assert not storage.exists(f"{folder}/none")
    assert not storage.exists(f"{folder}/a/none")
    assert storage.read(f"{folder}/none") is None


@pytest.mark.spark
def test_it_is_started_with_our_options_and_then_with_the_users(spark: SparkSession) -> None:
    """A user's option of the same name counts: of two, Java takes the last."""
    given = java_class(spark, "java.lang.management.ManagementFactory").getRuntimeMXBean().getInputArguments()
    named = [argument.split("=")[0] for argument in given]
    assert named.index("-XX:Tier4InvocationThreshold") < named.index("-XX:ReservedCodeCacheSize")
