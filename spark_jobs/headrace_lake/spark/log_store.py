"""On S3, makes Delta commit by conditional writes (``If-None-Match: *``), so that two drivers cannot overwrite each other's.

Delta's own log store for `s3a` locks only inside one JVM. Ours is a small class over it (`ConditionalLogStore.java`); the option
of S3A that it uses is Hadoop's `fs.option.create.conditional.overwrite` (Hadoop 3.4.2 and later).
"""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.jvm import CompilerError, define, java_class

_CLASS: Final = "ConditionalLogStore"
_SETTING: Final = "spark.delta.logStore.s3a.impl"
_PROBE: Final = "headrace-conditional-write"
"""The object below LAKE__PATH by which a start sees whether the server honours the condition. It stays."""


def install(spark: SparkSession, lake: str) -> str | None:
    """Makes Delta's commits in `lake` conditional if that is on S3. Blocks: one or two requests.

    Returns why it could not, as a sentence for the operator; None if it did, if `lake` is elsewhere, or if the operator has
    chosen a log store. Call it before Delta is used.
    """
    if urlsplit(lake).scheme != "s3a":
        return None
    settings = java_class(spark, "org.apache.spark.SparkEnv").get().conf()
    if settings.contains(_SETTING):
        return None
    one_driver = "a second driver could overwrite its commits, so run one at a time"
    if not str(spark.sparkContext.master).startswith("local"):  # executors would look for the class when they vacuum
        return f"LAKE__PATH ({lake}): commits are conditional writes only with a local master: {one_driver}"
    try:
        if not _honoured(spark, define(spark, __package__, _CLASS), lake):
            return f"LAKE__PATH ({lake}): the server ignores If-None-Match: {one_driver}"
    except (CompilerError, Py4JError) as error:
        why = root_cause(error) if isinstance(error, Py4JJavaError) else str(error)
        return f"LAKE__PATH ({lake}): conditional writes cannot be used ({why}): {one_driver}"
    settings.set(_SETTING, f"headrace.lake.{_CLASS}")
    return None


def _honoured(spark: SparkSession, log_store: Any, lake: str) -> bool:
    """Returns whether the server refuses to write a file that exists."""
    hadoop = cast("Any", spark)._jsc.hadoopConfiguration()
    probe, lines = (
        java_class(spark, "org.apache.hadoop.fs.Path")(f"{lake}/{_PROBE}"),
        java_class(spark, "java.util.ArrayList")(),
    )
    store = log_store(hadoop)
    for _ in range(2):
        try:
            store.write(probe, lines.iterator(), False, hadoop)
        except Py4JJavaError as error:
            if "FileAlreadyExists" in error.java_exception.getClass().getName():
                return True
            raise
    return False
