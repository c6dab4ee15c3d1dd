"""The columns of the lake's tables, and how the tables are created."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BinaryType,
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

EVENTS: Final = "events"
QUARANTINE: Final = "quarantine"
BATCHES: Final = "batches"
GAPS: Final = "gaps"
DUPLICATES: Final = "duplicates"
DAY: Final = "day"
KEY: Final = ("topic_id", "partition", "offset")
"""The columns that name a record."""
CHECKPOINT_EVERY: Final = 50
"""Commits between two of Delta's checkpoints. A checkpoint costs a Spark job; without one, readers read as many small files."""


def _columns(*columns: tuple[str, DataType, str]) -> StructType:
    """Returns the columns; the third entry is the comment that every engine shows, and the text of the table in docs/lake.md."""
    return StructType([StructField(name, kind, metadata={"comment": text}) for name, kind, text in columns])


_POSITION: Final = (
    ("topic", StringType(), "topic of the record in Kafka"),
    ("topic_id", StringType(), "Kafka's id of the topic: one that is deleted and created again has another"),
    ("partition", IntegerType(), "partition of the record in Kafka"),
    ("offset", LongType(), "offset of the record in its partition"),
    ("landed_at", TimestampType(), "when the landing of its batch began; the row is there from its commit on"),
    (DAY, DateType(), "day of landed_at, UTC; the table is partitioned by it"),
)

SCHEMAS: Final = {
    EVENTS: _columns(
        (
            "event_id", StringType(),
            "ce_id: d. and 32 hex digits, the same when the event is sent again; u. and 32 if a resend cannot be recognised",
        ),
        ("protocol", StringType(), "protocol by which the event came, as forward, lumberjack or relp"),
        ("source", StringType(), "/protocol/identity of the client"),
        (
            "stream", StringType(),
            "Forward tag, Beats index, Logjam topic or segment; - if there is none",
        ),
        (
            "event_time", TimestampType(),
            "when the event happened; null if the type cannot hold the time in event_time_text",
        ),
        ("event_time_text", StringType(), "the time as it was sent, with all its decimals"),
        (
            "received_time", TimestampType(),
            "when the receiver took the event: the timestamp of the Kafka record",
        ),
        ("content_type", StringType(), "media type of the value, such as application/json"),
        ("body", StringType(), "the value, byte for byte, if it is application/json"),
        ("payload", BinaryType(), "the value of any other content type"),
        ("attributes", StringType(), "JSON object of facts of the protocol (chunk, index); null if there are none"),
        *_POSITION,
    ),
    QUARANTINE: _columns(
        ("raw", BinaryType(), "the bytes; null for a record without a value"),
        (
            "reason", StringType(),
            "the receiver's (bad_json, oversized), or the job's: null_value, missing_header, repeated_header,"
            " malformed_header, invalid_utf8",
        ),
        ("detail", StringType(), "what exactly is wrong: which header, at which byte"),
        ("protocol", StringType(), "as in events, if it is known"),
        ("source", StringType(), "as in events, if it is known"),
        ("stream", StringType(), "as in events, if it is known"),
        ("id", StringType(), "id of the record, if it has one"),
        ("part", IntegerType(), "number of this part, from 1: what exceeds one record has several rows"),
        ("parts", IntegerType(), "how many parts the whole has"),
        ("sha256", StringType(), "of the whole: sort its rows by part and join raw"),
        (
            "attributes", StringType(),
            "JSON object; for the job's own reasons the record's headers (values in base64) and record_key",
        ),
        ("received_time", TimestampType(), "timestamp of the Kafka record"),
        *_POSITION,
    ),
    DUPLICATES: _columns(
        ("event_id", StringType(), "id of the event that had landed before, or was erased; of a record for quarantine: its id"),
        ("topic_id", StringType(), "Kafka's id of the topic"),
        ("partition", IntegerType(), "partition of the record that was left out"),
        ("offset", LongType(), "offset of the record in its partition"),
        ("landed_at", TimestampType(), "when the landing of its batch began"),
        (DAY, DateType(), "day of landed_at, UTC; the table is partitioned by it"),
    ),
    BATCHES: _columns(
        ("epoch", LongType(), "which job: its claim of the tables"),
        ("batch", LongType(), "number of the batch in this epoch; -1: the claim, whose lines cover no offset"),
        ("topic", StringType(), "topic in Kafka"),
        ("topic_id", StringType(), "Kafka's id of the topic"),
        ("partition", IntegerType(), "partition in Kafka"),
        ("from", LongType(), "first offset"),
        ("to", LongType(), "one past the last offset"),
        (
            "records", LongType(),
            "records that Kafka held in this range: fewer than to - from after an aborted transaction or compaction",
        ),
        ("landed_at", TimestampType(), "when the landing of the batch began: the earliest landed_at of its rows"),
        ("strays", LongType(), "of a claim: one past the last row beyond its end, which a job left when it was shut out"),
        ("number", LongType(), "of this row in the table, from 1, without holes"),
    ),
    GAPS: _columns(
        (
            "reason", StringType(),  # a `headrace_common.record.contract.GapReason`
            "retention: deleted before it was landed; recreated: the topic was deleted and created again",
        ),
        ("topic", StringType(), "topic in Kafka"),
        ("topic_id", StringType(), "Kafka's id of the topic"),
        ("partition", IntegerType(), "null if the topic was created again before any of it was landed"),
        ("from", LongType(), "first missing offset"),
        ("to", LongType(), "one past the last; null if the topic is gone and the end unknown"),
        (
            "rows", LongType(),
            "rows of this range that the tables hold nevertheless, from a batch that a kill interrupted",
        ),
        ("epoch", LongType(), "which job recorded it"),
        ("landed_at", TimestampType(), "when the loss was accepted"),
    ),
}  # fmt: skip

ABOUT: Final = {
    EVENTS: "Headrace: one row for each event. Written by the landing job alone",
    QUARANTINE: "Headrace: what could not be understood, byte for byte, with a reason. Written by the landing job alone",
    DUPLICATES: "Headrace: records that were left out because the same event had landed, or was erased",
    BATCHES: "Headrace: one row for each batch and partition, the books of the landing job. Keep all rows",
    GAPS: "Headrace: what is missing, and why. Keep all rows",
}
"""Table -> its comment."""

LOG_AGE: Final = 86_400
"""Seconds that a table's commits stay in its log: how far a reader that follows the table commit by commit may lag. Well above
the pause after which `transaction_log` reads a log again from its checkpoint."""

PROPERTIES: Final = {
    "delta.enableDeletionVectors": "false",  # so that any engine can read the tables
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.autoOptimize.autoCompact": "false",
    "delta.enableExpiredLogCleanup": "false",  # maintenance does it, and only if the clock is right
    "delta.checkpointPolicy": "classic",  # the form that `transaction_log` reads
}
"""Of every table."""


SKIPPED_BY: Final = ("stream", "source", "event_time", "received_time", "topic_id", "partition", "offset")
"""Columns with statistics: readers and this job skip files by them. Statistics of a body would cost CPU for nothing."""
STATISTICS: Final = "delta.dataSkippingStatsColumns"


def create(storage: Storage, lake: str) -> None:
    """Creates the missing tables. Blocks on storage. Another job may do the same at the same time."""
    for name, schema in SCHEMAS.items():
        path = f"{lake}/{name}"
        if storage.exists(f"{path}/_delta_log"):
            continue
        partitioned = f"PARTITIONED BY ({DAY})" if DAY in schema.names else ""
        skipped_by = ",".join(column for column in SKIPPED_BY if column in schema.names)
        properties = {**PROPERTIES, STATISTICS: skipped_by}
        columns = ", ".join(
            f"`{field.name}` {field.dataType.simpleString()} COMMENT {quoted(field.metadata['comment'])}"
            for field in schema.fields
        )
        listed = ", ".join(f"'{key}' = {quoted(value)}" for key, value in properties.items())
        statement = (
            f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta {partitioned} "
            f"COMMENT {quoted(ABOUT[name])} TBLPROPERTIES ({listed})"
        )
        make(storage, path, statement)


def make(storage: Storage, path: str, statement: str) -> None:
    """Makes the table at `path` by `statement`, unless another job makes it at this moment. Blocks on storage."""
    try:
        storage.spark.sql(statement)
    except (PySparkException, Py4JJavaError) as error:
        try:
            storage.spark.read.format("delta").load(path)
        except (PySparkException, Py4JJavaError):
            raise error from None
