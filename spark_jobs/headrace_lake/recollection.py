"""Chooses how duplicates are told, by the settings and the master, and refuses what would be inexact."""

from __future__ import annotations

from typing import Final

from headrace_common.errors import ConfigError
from headrace_common.log import Log
from pyspark.sql import SparkSession

from headrace_lake.janino import CompilerError
from headrace_lake.jvm import java_class
from headrace_lake.map_memory import MapMemory
from headrace_lake.memory import Memory, NoMemory
from headrace_lake.settings import LakeSettings, location

_SHARE: Final = 4  # of the heap, unless LAKE__DEDUP_MEMORY says otherwise
_LEAST_SHARE: Final = 2  # what is left of the heap must do for landing


def open_memory(spark: SparkSession, settings: LakeSettings, topic_id: str, log: Log) -> Memory:
    """An empty memory of ids. Raises `ConfigError` for settings that contradict each other or the master."""
    if settings.dedup == "off" or settings.horizon == 0:
        return NoMemory()
    master = str(spark.sparkContext.master)
    one_jvm = master == "local" or master.startswith("local[")
    if settings.dedup == "map" and not one_jvm:
        raise ConfigError(
            f"LAKE__DEDUP is map, and the master is {master}: executors would each have a memory of their own and duplicates "
            "would land; set auto or arrays"
        )
    heap = int(java_class(spark, "java.lang.Runtime").getRuntime().maxMemory())
    most = settings.dedup_memory or heap // _SHARE
    where = (spark, location(settings.path), topic_id, round(settings.horizon * 1000), most)
    if settings.dedup != "arrays" and one_jvm:
        if most > heap // _LEAST_SHARE:
            raise ConfigError(
                f"LAKE__DEDUP_MEMORY ({most}) is more than half of the driver's heap ({heap}): raise LAKE__DRIVER_MEMORY"
            )
        try:
            memory = MapMemory(*where)
        except CompilerError as error:
            if settings.dedup == "map":
                raise ConfigError(f"LAKE__DEDUP is map, which this JVM does not allow: {error}") from error
            log.warning("remembers ids in arrays: this JVM does not allow the map", reason=str(error))
        else:
            log.info("remembers ids in a map", most_bytes=most)
            return memory
    try:
        from headrace_lake.arrays_memory import ArraysMemory
    except ImportError as error:
        raise ConfigError(f"LAKE__DEDUP needs NumPy and PyArrow for arrays: {error}") from error
    log.info("remembers ids in arrays", most_bytes=most)
    return ArraysMemory(*where)
