"""Chooses the index by the settings and the Spark master."""

from __future__ import annotations

from typing import Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import Log
from pyspark.sql import SparkSession

from headrace_lake.configuration.settings import LakeSettings, location
from headrace_lake.dedup.arrays_index import ArraysIndex
from headrace_lake.dedup.index import DedupIndex
from headrace_lake.dedup.map_index import MapIndex
from headrace_lake.spark.jvm import CompilerError, java_class

_SHARE: Final = 4  # the index takes a quarter of the heap, unless LAKE__DEDUP_MEMORY is set
_LEAST_SHARE: Final = 2  # in the heap the index may take at most half: landing needs the rest


def open_index(spark: SparkSession, settings: LakeSettings, topic_id: str, log: Log) -> DedupIndex | None:
    """Returns an empty index, or None for no horizon. Raises `ConfigError` if it would take more than half of the heap."""
    if settings.horizon == 0:
        return None
    master = str(spark.sparkContext.master)
    heap = int(java_class(spark, "java.lang.Runtime").getRuntime().maxMemory())
    most = settings.dedup_memory or heap // _SHARE
    where = (spark, location(settings.path), topic_id, round(settings.horizon * 1000), most)
    # a map is in one JVM: on a cluster each executor would have its own, and duplicates would land
    if settings.dedup != "arrays" and (master == "local" or master.startswith("local[")):
        if most > heap // _LEAST_SHARE:
            raise ConfigError(
                f"LAKE__DEDUP_MEMORY ({most}) is more than half of the driver's heap ({heap}): raise LAKE__DRIVER_MEMORY"
            )
        try:
            index = MapIndex(*where)
        except CompilerError as error:
            log.warning("ids cannot be kept in a map", reason=str(error))
        else:
            log.info("remembers ids in a map", most_bytes=most)
            return index
    log.info("remembers ids in arrays", most_bytes=most)
    return ArraysIndex(*where)
