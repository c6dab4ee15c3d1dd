"""The local files by which the JVM writes the checkpoint and Delta's log: as Hadoop's own, but a new one replaces no other."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from headrace_lake.spark.engine import LOCAL_FILES, _write_local_files, remarks
from headrace_lake.spark.jvm import define, java_array, java_class
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.tiers import sized

pytestmark = pytest.mark.spark

HADOOPS = "org.apache.hadoop.fs.local.LocalFs"
RACES = sized(1_000, 1_000, 30_000)


def context(spark: SparkSession, implementation: str) -> Any:
    """Hadoop's FileContext with a class of local files."""
    settings = java_class(spark, "org.apache.hadoop.conf.Configuration")(spark._jsc.hadoopConfiguration())
    settings.set(LOCAL_FILES, implementation)
    return java_class(spark, "org.apache.hadoop.fs.FileContext").getFileContext(settings)


class Files:
    """A folder, and the steps in which the checkpoint and Delta's log are written into it."""

    def __init__(self, spark: SparkSession, folder: Path, implementation: str) -> None:
        self._spark = spark
        self._context = context(spark, implementation)
        self.folder = folder
        folder.mkdir()

    def _class(self, name: str) -> Any:
        return java_class(self._spark, f"org.apache.hadoop.fs.{name}")

    def _path(self, name: str) -> Any:
        return self._class("Path")(f"file:{self.folder}/{name}")

    def create(self, name: str, *flags: str) -> None:
        kind = self._class("CreateFlag")
        chosen = java_class(self._spark, "java.util.EnumSet").of(*(getattr(kind, flag) for flag in ("CREATE", *flags)))
        stream = self._context.create(
            self._path(name), chosen, java_array(self._spark, "org.apache.hadoop.fs.Options$CreateOpts", [])
        )
        stream.write(bytearray(name.encode()))
        stream.close()

    def rename(self, name: str, to: str, *options: str) -> None:
        kind = self._class("Options$Rename")
        chosen = [getattr(kind, option) for option in options]
        self._context.rename(
            self._path(name), self._path(to), java_array(self._spark, "org.apache.hadoop.fs.Options$Rename", chosen)
        )

    def status(self, name: str) -> str:
        try:
            found = self._context.getFileLinkStatus(self._path(name))
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return f"{found.getPermission().toString()} {found.getLen()} {found.isSymlink()} {found.isDirectory()}"

    def there(self) -> dict[str, tuple[int, bytes]]:
        """Name -> mode and content, of all files in the folder."""
        return {
            path.name: (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
            for path in self.folder.iterdir()
            if path.is_file()
        }


def steps(files: Files) -> list[str]:
    """What each step says."""
    said = []

    def attempt(act: Any, *given: str) -> None:
        try:
            act(*given)
        except Py4JJavaError as error:
            said.append(f"{given}: {error.java_exception.getClass().getName()}")
        else:
            said.append(f"{given}: done")

    attempt(files.create, ".1.tmp")
    attempt(files.create, ".1.tmp")
    attempt(files.create, ".1.tmp", "OVERWRITE")
    attempt(files.rename, ".1.tmp", "1")
    attempt(files.create, ".2.tmp")
    attempt(files.rename, ".2.tmp", "1")
    attempt(files.rename, ".2.tmp", "1", "OVERWRITE")
    attempt(files.rename, ".3.tmp", "3")
    attempt(files.create, "no/folder/4")
    (files.folder / "link").symlink_to(files.folder / "1")
    (files.folder / "dangling").symlink_to(files.folder / "5")
    return said + [files.status(name) for name in ("1", "2", "link", "dangling", "")]


def test_what_they_do_is_what_hadoops_do(spark: SparkSession, tmp_path: Path) -> None:
    ours = Files(spark, tmp_path / "ours", "headrace.lake.LocalFiles")
    hadoops = Files(spark, tmp_path / "hadoops", HADOOPS)
    said = steps(ours)
    assert said == steps(hadoops)
    assert [each.rsplit(" ", 1)[1].rsplit(".", 1)[-1] for each in said[:9]] == [
        "done", "FileAlreadyExistsException", "done", "done", "done", "FileAlreadyExistsException", "done",
        "FileNotFoundException", "FileNotFoundException",
    ]  # fmt: skip
    assert ours.there() == hadoops.there()


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
