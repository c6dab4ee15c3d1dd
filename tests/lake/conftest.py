"""One Spark for all tests of this folder that run the job in their own process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from headrace_cli.machine.jars import jars
from headrace_cli.machine.java import java_home
from headrace_common.operations.settings import KafkaSettings, LogSettings
from headrace_lake.configuration.settings import LakeSettings
from headrace_lake.landing import on_spark
from headrace_lake.spark.engine import session
from headrace_lake.spark.jvm import java_class
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.on_spark import Tables
from pyspark.sql import SparkSession

from tests.lake.runs import Runs
from tests.tiers import Tier, chosen, sized

FOLDER = Path(__file__).parent

collect_ignore = [] if find_spec("pyiceberg") else ["test_mirror.py"]  # an extra
if chosen() is Tier.QUICK:
    collect_ignore.append("test_s3.py")  # all long, and its imports take each worker most of a CPU-second

LONG_LIFE = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m -Xmn400m -XX:MetaspaceSize=256m"
"""For a JVM that lives for minutes: it has room for the code and the classes of all tests, and collects garbage seldom."""

GENERATED: Final = {"spark.sql.codegen.cache.maxEntries": "1000"}
"""Spark keeps 100 generated classes. A test's statements need more, so that each start of a job would compile its own anew. It
keeps their sources, too, so it may not keep all.
"""

SMALL_PAGES: Final = {"spark.buffer.pageSize": "1m"}
"""An aggregation begins with a page, for which Spark by its own rule takes 32 MB of this heap. Many grow old in use, and a
collection of the old ones takes half a CPU-second.
"""


QUICK = ("test_an_event_has", "test_a_faulty_record", "test_a_sound_record", "test_the_quarantine_topic")
"""The tests of test_decode.py that start Spark and run in the quick tier nevertheless: rows as they should be."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what starts Spark as `long`, but for what is named above. Tests of functions alone are all quick."""
    for item in items:
        quick = item.path.name == "test_decode.py" and item.name.startswith(QUICK)
        if item.path.parent == FOLDER and item.get_closest_marker("spark") and not quick:
            item.add_marker("long")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = {"spark.driver.extraJavaOptions": LONG_LIFE, **GENERATED, **SMALL_PAGES}
    settings = LakeSettings(jars=jars("spark"), master="local[2]", driver_memory="2g", spark=options)
    running = session(settings, LogSettings(), once=sized(True, True, False))  # most code runs seldom
    yield running
    running.stop()


@pytest.fixture(scope="session")
def empty_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New tables, to be copied: to make them costs as much as to land two batches. Nobody has claimed them."""
    folder = tmp_path_factory.mktemp("empty") / "lake"
    layout.create(Storage(spark), str(folder))
    return folder


@pytest.fixture(scope="session")
def claimed_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, empty_tables: Path) -> Path:
    """The same, claimed by a job that holds epoch 1."""
    folder = Path(shutil.copytree(empty_tables, tmp_path_factory.mktemp("claimed") / "lake"))
    assert Fence(Tables(spark, str(folder))).claim() == 1
    return folder


@pytest.fixture
def runs(
    spark: SparkSession, topics: KafkaSettings, tmp_path: Path, empty_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runs]:
    """Runs of the job on new tables; several tasks land even a small batch. Without its folder `lake`, the job makes them."""
    monkeypatch.setattr(on_spark, "_TASK", 1)
    made = Runs(spark, topics, tmp_path)
    shutil.copytree(empty_tables, made.lake)
    yield made
    made.stop()
    # Delta keeps what it knows of each test's tables for an hour.
    java_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
