"""The columns of the lake's tables, and how the tables are created."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace_lake.spark.literals import quoted
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.altered import unless_altered
from headrace_lake.tables.properties import VACUUMED_AT
from headrace_lake.tables.shape import Shape

EVENTS: Final = "events"
QUARANTINE: Final = "quarantine"
BATCHES: Final = "batches"
GAPS: Final = "gaps"
DAY: Final = "day"
CHECKPOINT_EVERY: Final = 50
"""Commits between two of Delta's checkpoints. A checkpoint costs a Spark job; without one, readers read as many small files."""


def _columns(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


_POSITION: Final = (
    ("topic", StringType()),
    ("topic_id", StringType()),  # Kafka's id of the topic: a topic that is deleted and recreated gets another
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("landed_at", TimestampType()),  # when the batch was landed
    (DAY, DateType()),  # of landed_at, UTC; the table is partitioned by it
)

SCHEMAS: Final = {
    EVENTS: _columns(
        ("event_id", StringType()),
        ("protocol", StringType()),
        ("source", StringType()),
        ("stream", StringType()),
        ("event_time", TimestampType()),  # null if the type cannot hold the time in event_time_text
        ("event_time_text", StringType()),  # as the client sent it, with all decimals
        ("received_time", TimestampType()),
        ("content_type", StringType()),
        ("body", StringType()),  # of application/json
        ("payload", BinaryType()),  # of any other content type
        ("attributes", StringType()),
        *_POSITION,
    ),
    QUARANTINE: _columns(
        ("raw", BinaryType()),
        ("reason", StringType()),
        ("detail", StringType()),
        ("protocol", StringType()),
        ("source", StringType()),
        ("stream", StringType()),
        ("id", StringType()),
        ("part", IntegerType()),  # what exceeds one record has `parts` rows with one sha256
        ("parts", IntegerType()),
        ("sha256", StringType()),  # of the whole
        ("attributes", StringType()),
        ("received_time", TimestampType()),
        *_POSITION,
    ),
    BATCHES: _columns(
        ("epoch", LongType()),
        ("batch", LongType()),
        ("topic", StringType()),
        ("topic_id", StringType()),
        ("partition", IntegerType()),
        ("from", LongType()),  # first offset
        ("to", LongType()),  # one past the last offset
        ("records", LongType()),  # in Kafka: fewer than to - from after compaction or an aborted transaction
        ("events", LongType()),
        ("duplicates", LongType()),
        ("quarantined", LongType()),
        ("skipped", LongType()),
        ("landed_at", TimestampType()),  # the earliest of its rows' `landed_at`
        ("number", LongType()),  # of this row in the table, from 1: a row that is missing leaves a hole
    ),
    GAPS: _columns(
        ("reason", StringType()),  # a `headrace_common.record.contract.GapReason`
        # of the missing offsets; of a Logjam gap: the place of its marker, like the next three
        ("topic", StringType()),
        ("topic_id", StringType()),
        ("partition", IntegerType()),  # null: the topic was recreated before any of it was landed
        ("offset", LongType()),  # of the marker of a Logjam gap; else null
        ("from", LongType()),  # first missing offset; null for a Logjam gap
        ("to", LongType()),  # one past the last; null if unknown (the topic was recreated)
        ("rows", LongType()),  # of this range that the tables hold nevertheless, from an unfinished batch
        ("source", StringType()),  # of a Logjam gap: the source of the numbers
        ("consumer", StringType()),  # the consumer that did not receive them
        ("device", LongType()),
        ("from_sequence", LongType()),
        ("to_sequence", LongType()),  # one past the last
        ("covered", BooleanType()),  # whether another consumer's events fill a Logjam gap; never true for offsets
        ("covered_at", TimestampType()),
        ("detail", StringType()),
        ("received_time", TimestampType()),  # of the marker
        ("epoch", LongType()),
        ("landed_at", TimestampType()),  # when the marker was landed or the loss accepted
    ),
}

PROPERTIES: Final = {
    "delta.enableDeletionVectors": "false",  # so that any engine can read the tables
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.autoOptimize.autoCompact": "false",
    "delta.checkpointPolicy": "classic",  # the form that `transaction_log` reads
}
"""Of every table."""


_LATER: Final = {BATCHES: ("number",)}
"""Columns that tables of older versions lack."""

_PLAIN: Final = Shape()
_SKIPPED_BY: Final = ("event_time", "received_time", "topic_id", "partition", "offset")
"""Columns with statistics: readers and this job skip files by them. Statistics of a body would cost CPU and help nobody."""


def statistics(name: str, shape: Shape) -> dict[str, str]:
    """The property that lists the columns of the table `name` that have statistics."""
    promoted = [promotion.name for promotion in shape.promoted] if name == EVENTS else []
    own = [column for column in _SKIPPED_BY if column in SCHEMAS[name].names]
    return {"delta.dataSkippingStatsColumns": ",".join([*own, *promoted])}


def columns(name: str, shape: Shape) -> list[str]:
    """The names of the columns of the table `name` that landing fills."""
    return [*SCHEMAS[name].names, *(shape.columns if name == EVENTS else ())]


def create(storage: Storage, lake: str, shape: Shape = _PLAIN) -> None:
    """Creates the missing tables, and columns that tables of older versions lack. Blocks on storage.

    Another job may do the same at the same time.
    """
    for name, schema in SCHEMAS.items():
        path = f"{lake}/{name}"
        if storage.exists(f"{path}/_delta_log"):
            _add_later_columns(storage, name, path)
            continue
        partitioned = f"PARTITIONED BY ({DAY})" if DAY in schema.names else ""
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        properties = {**PROPERTIES, VACUUMED_AT: str(int(time.time())), **statistics(name, shape)}
        if name == EVENTS:
            kinds |= shape.columns
            properties |= shape.properties
        listed_columns = ", ".join(f"`{column}` {kind}" for column, kind in kinds.items())
        listed = ", ".join(f"'{key}' = {quoted(value)}" for key, value in properties.items())
        statement = (
            f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({listed_columns}) USING delta {partitioned} "
            f"TBLPROPERTIES ({listed})"
        )
        try:
            storage.spark.sql(statement)
        except (PySparkException, Py4JJavaError):
            storage.spark.read.format("delta").load(path)  # raises unless another job has just created it


def _add_later_columns(storage: Storage, name: str, path: str) -> None:
    if name not in _LATER:
        return
    have = storage.spark.read.format("delta").load(path).schema.names
    missing = [SCHEMAS[name][column] for column in _LATER[name] if column not in have]
    if missing:
        listed = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in missing)
        storage.spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({listed})")


def set_properties(spark: SparkSession, path: str, properties: Mapping[str, str]) -> None:
    """Sets properties of the table at `path`, in a commit of its own. Blocks on storage."""
    listed = ", ".join(f"'{name}' = {quoted(value)}" for name, value in properties.items())
    unless_altered(lambda: spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed})"))
