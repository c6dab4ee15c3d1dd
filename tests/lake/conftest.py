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

from tests.lake import classes
from tests.lake.bench import Bench
from tests.lake.runs import Runs

LONG_LIFE = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""For a JVM that lives for minutes: only what runs really often is optimised, for the tests share two cores."""


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
    options = {"spark.driver.extraJavaOptions": f"{LONG_LIFE} {classes.given()}"}
    running = session(LakeSettings(jars=jars("spark"), master="local[2]", spark=options), LogSettings())
    yield running
    running.stop()


@pytest.fixture
def runs(spark: SparkSession, topics: KafkaSettings, tmp_path: Path) -> Iterator[Runs]:
    yield Runs(spark, topics, tmp_path)
    classes.keep(spark)


@pytest.fixture
def bench(topics: KafkaSettings, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(topics, tmp_path)
    yield made
    made.stop()
