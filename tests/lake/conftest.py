"""One Spark for all tests of this folder that run in the test's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_cli.toolchain import jars, java_home
from headrace_common.settings import KafkaSettings, LogSettings
from headrace_lake.engine import session
from headrace_lake.settings import LakeSettings
from pyspark.sql import SparkSession

from tests.lake.bench import Bench
from tests.lake.runs import Runs


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what is marked `full`, visibly, unless HEADRACE_FULL=1."""
    if os.environ.get("HEADRACE_FULL") == "1":
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC")  # it lives for minutes: optimising pays
    running = session(LakeSettings(jars=jars("spark"), master="local[2]"), LogSettings())
    yield running
    running.stop()


@pytest.fixture
def runs(spark: SparkSession, topics: KafkaSettings, tmp_path: Path) -> Runs:
    return Runs(spark, topics, tmp_path)


@pytest.fixture
def bench(topics: KafkaSettings, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(topics, tmp_path)
    yield made
    made.stop()
