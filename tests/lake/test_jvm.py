"""Access to the JVM's classes by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace_lake.spark.jvm import call_method, java_class
from headrace_lake.spark.storage import Storage
from py4j.java_gateway import JVMView
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_hadoops_options_are_sent_without_the_names_of_their_files(spark: SparkSession) -> None:
    """Each task that writes gets them all, and Hadoop compresses the name of each one's file by itself."""
    kind = java_class(spark, "org.apache.hadoop.conf.Configuration")
    ours, plain = kind(spark._jsc.hadoopConfiguration()), kind()  # type: ignore[attr-defined]

    def sent(options: Any) -> int:
        stream = java_class(spark, "java.io.ByteArrayOutputStream")()
        options.write(java_class(spark, "java.io.DataOutputStream")(stream))
        return int(stream.size())

    name = "io.map.index.skip"
    assert str(ours.get(name)) == str(plain.get(name))
    assert plain.getPropertySources(name) is not None
    assert ours.getPropertySources(name) is None
    assert ours.size() >= plain.size()
    assert sent(ours) < sent(plain)


def test_small_files_are_read_without_looking_for_packages(
    spark: SparkSession, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part of a dotted name costs a search of all jars: 7 % of a short run's CPU."""
    storage = Storage(spark)

    def looks(_: JVMView, name: str) -> None:
        raise AssertionError(f"looks for {name}")

    monkeypatch.setattr(JVMView, "__getattr__", looks)
    storage.write(f"{tmp_path}/a", "text")
    assert storage.read(f"{tmp_path}/a") == "text"
    assert storage.names(str(tmp_path)) == ["a"]
    assert storage.delete(f"{tmp_path}/a")


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


def test_an_overload_is_named_by_its_types(spark: SparkSession) -> None:
    assert call_method(spark, "java.lang.String", "valueOf", ["java.lang.Object"], ["12"]) == "12"
    with pytest.raises(Py4JJavaError, match="NoSuchMethodException"):
        call_method(spark, "java.lang.String", "valueOf", ["java.lang.CharSequence"], ["12"])


def test_it_is_started_with_our_options_and_then_with_the_users(spark: SparkSession) -> None:
    """A user's option of the same name counts: of two, Java takes the last."""
    given = java_class(spark, "java.lang.management.ManagementFactory").getRuntimeMXBean().getInputArguments()
    named = [argument.split("=")[0] for argument in given]
    assert named.index("-XX:Tier4InvocationThreshold") < named.index("-XX:ReservedCodeCacheSize")
