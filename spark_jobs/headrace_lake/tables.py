"""The lake's tables: their columns, where they lie and how they are made."""

from __future__ import annotations

import time
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
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

from headrace_lake.literals import quoted
from headrace_lake.properties import VACUUMED_AT
from headrace_lake.shape import Shape
from headrace_lake.storage import Storage

EVENTS: Final = "events"
QUARANTINE: Final = "quarantine"
BATCHES: Final = "batches"
GAPS: Final = "gaps"
DAY: Final = "day"
CHECKPOINT_EVERY: Final = 50
"""Commits between two checkpoints of Delta's: one is a Spark job; without one readers replay that many small files."""


def _columns(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


_POSITION: Final = (
    ("topic", StringType()),
    ("topic_id", StringType()),  # Kafka's own id: a topic that is deleted and made again has another
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("landed_at", TimestampType()),  # when its batch was landed
    (DAY, DateType()),  # of landed_at, UTC; what the table is partitioned by
)

SCHEMAS: Final = {
    EVENTS: _columns(
        ("event_id", StringType()),
        ("protocol", StringType()),
        ("source", StringType()),
        ("stream", StringType()),
        ("event_time", TimestampType()),  # null when event_time_text names a time that the type cannot hold
        ("event_time_text", StringType()),  # as the client sent it, with all its decimals
        ("received_time", TimestampType()),
        ("content_type", StringType()),
        ("body", StringType()),  # of application/json
        ("payload", BinaryType()),  # of everything else
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
        ("part", IntegerType()),  # what is larger than one record lies in `parts` rows of one sha256
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
        (
            "records",
            LongType(),
        ),  # that Kafka held in it: fewer than to - from after compaction or an aborted transaction
        ("events", LongType()),
        ("duplicates", LongType()),
        ("quarantined", LongType()),
        ("skipped", LongType()),
        ("landed_at", TimestampType()),
    ),
    GAPS: _columns(
        ("reason", StringType()),  # a `headrace_common.event.GapReason`
        ("topic", StringType()),  # of the missing offsets; of a Logjam gap: where its marker lies, like the next three
        ("topic_id", StringType()),
        ("partition", IntegerType()),  # null: of a topic that was made anew before anything of it was landed
        ("offset", LongType()),  # of the marker of a Logjam gap, else null
        ("from", LongType()),  # first missing offset; null for a Logjam gap
        ("to", LongType()),  # one past the last; null when nobody knows (the topic was made anew)
        ("rows", LongType()),  # of that range that are in the tables all the same: of a batch that was left half done
        ("source", StringType()),  # of a Logjam gap: whose numbers
        ("consumer", StringType()),  # who did not receive them
        ("device", LongType()),
        ("from_sequence", LongType()),
        ("to_sequence", LongType()),  # one past the last
        ("covered", BooleanType()),  # whether another consumer's events fill a Logjam gap; never true of offsets
        ("covered_at", TimestampType()),
        ("detail", StringType()),
        ("received_time", TimestampType()),  # of the marker
        ("epoch", LongType()),
        ("landed_at", TimestampType()),  # when the marker was landed, or the loss accepted
    ),
}

_PROPERTIES: Final = {
    "delta.enableDeletionVectors": "false",  # any engine shall read the tables
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.autoOptimize.autoCompact": "false",
}


_PLAIN: Final = Shape()
_SKIPPED_BY: Final = ("event_time", "received_time", "topic_id", "partition", "offset")
"""Columns with statistics, by which readers and this job skip files; on a body they would cost CPU and serve nobody."""


def statistics(name: str, shape: Shape) -> dict[str, str]:
    """The property of the table `name` that says which columns have statistics."""
    promoted = [promotion.name for promotion in shape.promoted] if name == EVENTS else []
    own = [column for column in _SKIPPED_BY if column in SCHEMAS[name].names]
    return {"delta.dataSkippingStatsColumns": ",".join([*own, *promoted])}


def columns(name: str, shape: Shape) -> list[str]:
    """The names of the columns of the table `name` that landing fills."""
    return [*SCHEMAS[name].names, *(shape.columns if name == EVENTS else ())]


def create(storage: Storage, lake: str, shape: Shape = _PLAIN) -> None:
    """Makes the tables that are not there yet; another job may do so at the same time. Blocks on storage."""
    for name, schema in SCHEMAS.items():
        path = f"{lake}/{name}"
        if storage.exists(f"{path}/_delta_log"):
            continue
        partitioned = f"PARTITIONED BY ({DAY})" if DAY in schema.names else ""
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        properties = {**_PROPERTIES, VACUUMED_AT: str(int(time.time())), **statistics(name, shape)}
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
            storage.spark.read.format("delta").load(path)  # raises unless somebody else has just made it
