"""The Spark session that landing wants. What it sets is measured; `docs/lake.md` says what each line is worth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from headrace_common.settings import LogSettings
from pyspark.sql import SparkSession

from headrace_lake.settings import LakeSettings

_LOCAL: Final = "local[*]"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the JVM runs already

# The generated method that decodes a record is larger than what the JIT compiles unasked (8,000 bytes); interpreted, a
# record costs twice as much.
_JIT: Final = "-XX:-DontCompileHugeMethods"

_FIXED: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.ansi.enabled": "false",  # nothing that a record holds may throw
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.adaptive.enabled": "false",  # a batch has no shuffle that could be adapted, planning twice costs
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",  # default: 50 tasks for each commit
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.extraJavaOptions": _JIT,
}


def session(settings: LakeSettings, log: LogSettings) -> SparkSession:
    """Starts Spark, or takes up the one that spark-submit started. Blocks for seconds; needs JAVA_HOME or java."""
    builder = SparkSession.Builder().appName("headrace-lake")
    for name, value in _FIXED.items():
        builder = builder.config(name, value)
    if settings.master or _SUBMITTED not in os.environ:
        builder = builder.master(settings.master or _LOCAL)
    if _SUBMITTED not in os.environ:
        with as_file(files(__package__) / "log4j2.properties") as logging:
            level = "warn" if log.level == "debug" else "off"
            options = f"{_JIT} -Dlog4j2.configurationFile={logging} -Dheadrace.jvm.level={level}"
            builder = builder.config("spark.driver.extraJavaOptions", options)
            builder = builder.config("spark.driver.memory", settings.driver_memory)
            return _with_jars(builder, settings).getOrCreate()
    return _with_jars(builder, settings).getOrCreate()


@contextmanager
def running(settings: LakeSettings, log: LogSettings) -> Iterator[SparkSession]:
    """`session`, which ends with the block."""
    spark = session(settings, log)
    try:
        yield spark
    finally:
        spark.stop()


def _with_jars(builder: SparkSession.Builder, settings: LakeSettings) -> SparkSession.Builder:
    if settings.jars is None:
        return builder
    jars = sorted(str(path.absolute()) for path in Path(settings.jars).glob("*.jar"))
    if (settings.master or _LOCAL).startswith("local"):  # one JVM: nothing has to be shipped
        return builder.config("spark.driver.extraClassPath", os.pathsep.join(jars))
    return builder.config("spark.jars", ",".join(jars))
