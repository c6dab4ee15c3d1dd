"""The JVM's classes: asked for by name, and kept for later starts in an archive that is used only if it is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_lake.spark import classes
from headrace_lake.spark.jvm import call_method, java_class
from headrace_lake.spark.storage import Storage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.lake.lander import CLASSES


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
def test_an_overload_is_named_by_its_types(spark: SparkSession) -> None:
    assert call_method(spark, "java.lang.String", "valueOf", ["java.lang.Object"], ["12"]) == "12"
    with pytest.raises(Py4JJavaError, match="NoSuchMethodException"):
        call_method(spark, "java.lang.String", "valueOf", ["java.lang.CharSequence"], ["12"])


@pytest.mark.spark
def test_it_is_started_with_our_options_and_then_with_the_users(spark: SparkSession) -> None:
    """A user's option of the same name counts: of two, Java takes the last."""
    given = java_class(spark, "java.lang.management.ManagementFactory").getRuntimeMXBean().getInputArguments()
    named = [argument.split("=")[0] for argument in given]
    assert named.index("-XX:Tier4InvocationThreshold") < named.index("-XX:ReservedCodeCacheSize")


RECORDS = "+RecordDynamicDumpInfo"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of a Java that has its own classes in one."""
    (tmp_path / "java/lib/server").mkdir(parents=True)
    (tmp_path / "java/lib/server/classes.jsa").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    mark = classes._mark(None)
    path = tmp_path / "classes" / f"{mark}.8.jsa"
    path.parent.mkdir()
    path.write_bytes(b"archived")
    return path


def test_a_start_takes_a_whole_archive(archive: Path) -> None:
    given = classes.options(archive.parent, None)
    assert given.endswith(f"-XX:SharedArchiveFile={archive}")
    assert "-Xshare:auto" in given
    assert RECORDS not in given


def test_a_start_leaves_a_cut_archive_alone_and_makes_another(archive: Path) -> None:
    """Java 17 dies of one that is shorter than it says (SIGBUS)."""
    archive.write_bytes(b"arch")
    given = classes.options(archive.parent, None)
    assert "SharedArchiveFile" not in given
    assert RECORDS in given


def test_an_archive_of_other_jars_is_not_taken(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "one.jar").touch()
    with_jar = classes.options(archive.parent, tmp_path)
    assert "SharedArchiveFile" not in with_jar
    (tmp_path / "java/release").write_text("another")
    assert "SharedArchiveFile" not in classes.options(archive.parent, None)


def test_a_java_that_can_keep_none_is_not_asked_again(archive: Path) -> None:
    archive.rename(archive.with_name(archive.name.replace(".8.", ".0."))).write_bytes(b"")
    given = classes.options(archive.parent, None)
    assert "SharedArchiveFile" not in given
    assert RECORDS not in given


def test_a_folder_that_cannot_be_made_stops_nothing(archive: Path) -> None:
    nowhere = archive / "classes"
    assert "SharedArchiveFile" not in classes.options(nowhere, None)
    classes.keep(cast("SparkSession", None), nowhere, None)


def test_the_archives_of_replaced_jars_go(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each update of the environment left 170 MB there, and so did each run that was killed while it wrote."""
    monkeypatch.setattr(classes, "_dump", lambda _, draft: draft.write_bytes(b"archived"))
    others = {archive.with_name(name) for name in ("java-0123456789abcdef.8.jsa", "of a user.jsa")}
    for path in (archive.with_name("0123456789abcdef.17"), *others):
        path.touch()
    for number in range(3):
        for path in archive.parent.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
        (archive.parents[1] / "java/release").write_text(str(number))
        classes.keep(cast("SparkSession", None), archive.parent, None)
    kept = set(archive.parent.iterdir())
    assert others < kept
    assert len(kept - others) == 2
    assert archive.with_name(f"{classes._mark(None)}.8.jsa") in kept


@pytest.mark.spark
def test_what_spark_has_loaded_is_kept_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    classes.keep(spark, CLASSES, jars("spark"))
    (kept,) = classes._found(CLASSES, classes._mark(jars("spark")))
    assert kept.stat().st_size > 10 << 20
    before = os.stat(kept)
    classes.keep(spark, CLASSES, jars("spark"))
    assert os.stat(kept) == before
