"""The Spark session that landing wants. What it sets is measured; `docs/lake.md` says what each line is worth."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, cast

from headrace_common.errors import ConfigError
from headrace_common.settings import LogSettings
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headrace_lake.compaction import ZSTD_LEVEL
from headrace_lake.settings import LakeSettings
from headrace_lake.storage import Storage

_LOCAL: Final = "local[*]"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the JVM runs already

# The generated method that decodes a record is larger than what the JIT compiles unasked (8,000 bytes); interpreted, a
# record costs twice as much.
_JIT: Final = "-XX:-DontCompileHugeMethods"
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"

_NEEDED: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.ansi.enabled": "false",  # nothing that a record holds may throw
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Without these the rows would be others: nobody may set them to anything else."""

_UNLIKE: Final = ("event_id", "event_time_text", "body", "payload", "attributes")
"""Columns whose values hardly repeat: a dictionary would be begun and thrown away, and no range of theirs skips a page."""

_TUNED: Final = {
    "spark.sql.parquet.compression.codec": "zstd",
    f"spark.hadoop.{ZSTD_LEVEL}": "1",  # what is merged later is compressed harder
    "spark.hadoop.parquet.size.statistics.enabled": "false",
    **{f"spark.hadoop.parquet.enable.dictionary#{column}": "false" for column in (*_UNLIKE, "offset")},
    **{f"spark.hadoop.parquet.column.statistics.enabled#{column}": "false" for column in _UNLIKE},
    "spark.sql.adaptive.enabled": "false",  # a batch has no shuffle that could be adapted, planning twice costs
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",  # default: 50 tasks for each commit
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What landing is fastest with; the LAKE__SPARK setting and spark-submit's ``--conf`` win."""


def session(settings: LakeSettings, log: LogSettings) -> SparkSession:
    """Starts Spark, or takes up the one that spark-submit started. Blocks for seconds; needs JAVA_HOME or java.

    Raises `ConfigError` for settings that cannot have the effect that is wanted of them.
    """
    submitted = _SUBMITTED in os.environ
    if submitted and settings.jars is not None:
        raise ConfigError("LAKE__JARS comes too late under spark-submit: name the jars there (--jars)")
    options = session_options(_given() if submitted else {}, settings.spark)
    builder = SparkSession.Builder().appName("headrace-lake")
    for name, value in options.items():
        builder = builder.config(name, value)
    if settings.master or not submitted:
        builder = builder.master(settings.master or _LOCAL)
    if submitted:
        spark = builder.getOrCreate()
    else:
        with as_file(files(__package__) / "log4j2.properties") as logging:
            level = "warn" if log.level == "debug" else "off"
            java = f"{_JIT} -Dlog4j2.configurationFile={logging} -Dheadrace.jvm.level={level}"
            java = f"{java} {settings.spark.get('spark.driver.extraJavaOptions', '')}".rstrip()
            builder = builder.config("spark.driver.extraJavaOptions", java)
            builder = builder.config("spark.driver.memory", settings.driver_memory)
            spark = _with_jars(builder, settings).getOrCreate()
    hadoop = cast("Any", spark)._jsc.hadoopConfiguration()
    for name, secret in settings.spark_secrets.items():  # only now: what Spark starts with stands in the process list
        hadoop.set(name.removeprefix("spark.hadoop."), secret.get_secret_value())
    return spark


def remarks(spark: SparkSession, paths: Mapping[str, str]) -> list[str]:
    """What the operator should know about where this job runs; a sentence each. `paths`: by the name of their setting."""
    if str(spark.sparkContext.master).startswith("local"):
        return []
    storage = Storage(spark)
    return [
        f"{name} ({path}) is a local folder: every host of the cluster must see the same one there"
        for name, path in paths.items()
        if storage.scheme(path) == "file"
    ]


def session_options(given: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What the session is built with, when spark-submit was `given` options and LAKE__SPARK says what is `wanted`."""
    for source, options in (("LAKE__SPARK", wanted), ("spark-submit", given)):
        wrong = [name for name, value in _NEEDED.items() if options.get(name, value) != value]
        if wrong:
            raise ConfigError(f"{source} sets {wrong[0]} to {options[wrong[0]]}: the job needs {_NEEDED[wrong[0]]}")
    tuned = {name: value for name, value in _TUNED.items() if name not in given}
    executors = [_JIT, given.get(_EXECUTOR_OPTIONS, ""), wanted.get(_EXECUTOR_OPTIONS, "")]
    return {**tuned, **wanted, **_NEEDED, _EXECUTOR_OPTIONS: " ".join(filter(None, executors))}


def _given() -> dict[str, str]:
    """What spark-submit was given."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


@contextmanager
def running(settings: LakeSettings, log: LogSettings) -> Iterator[SparkSession]:
    """`session`, which ends with the block."""
    spark = session(settings, log)
    try:
        yield spark
    finally:
        spark.stop()


def _with_jars(builder: SparkSession.Builder, settings: LakeSettings) -> SparkSession.Builder:
    """Adds LAKE__JARS to what LAKE__SPARK names already."""
    if settings.jars is None:
        return builder
    jars = sorted(str(path.absolute()) for path in Path(settings.jars).glob("*.jar"))
    # in one JVM nothing has to be shipped
    local = (settings.master or _LOCAL).startswith("local")
    name, separator = ("spark.driver.extraClassPath", os.pathsep) if local else ("spark.jars", ",")
    return builder.config(name, separator.join([*jars, *filter(None, [settings.spark.get(name)])]))
