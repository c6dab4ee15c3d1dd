"""Hand-made records in the form of Spark's Kafka source, and what each of them should become."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from headrace_common.record.contract import HEADERS, REQUIRED_HEADERS, RecordFault
from headrace_lake.rows.decode import Topics
from pyspark.sql import DataFrame, SparkSession

TOPICS: Final = Topics("e", "q", {"e": "id-of-e", "q": "id-of-q"})
LANDED: Final = datetime(2026, 5, 6, 23, 59, 59, 123456, tzinfo=UTC)
RECEIVED: Final = datetime(2026, 5, 6, 12, 0, 0, 7000, tzinfo=UTC)
SCHEMA: Final = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary,"
    "headers array<struct<key string, value binary>>"
)

Headers = list[tuple[str, bytes | None]]

GOOD: Final[Headers] = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"d.00112233445566778899aabbccddeeff"),
    ("ce_source", b"/forward/web-1.example.org"),
    ("ce_type", b"headrace.forward.event"),
    ("ce_subject", b"app.web"),
    ("ce_time", b"2026-05-06T11:59:58.123456789Z"),
    ("content-type", b"application/json"),
    ("ce_attributes", b'{"chunk":"x","index":0}'),
]
REJECT: Final[Headers] = [
    ("reason", b"bad_json"),
    ("detail", b"at byte 3"),
    ("protocol", b"forward"),
    ("ce_source", b"/forward/web-1"),
    ("ce_subject", b"app"),
    ("id", b"u.00112233445566778899aabbccddeeff"),
    ("part", b"2/3"),
    ("sha256", b"ab" * 32),
    ("attributes", b'{"tag":"app"}'),
]


@dataclass
class Record:
    headers: Headers | None = field(default_factory=lambda: list(GOOD))
    value: bytes | None = b'{"a":1}'
    topic: str = "e"
    key: bytes | None = None


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    """The records in partition 3 of their topic, from offset 100."""
    rows = [
        (record.topic, 3, 100 + index, RECEIVED, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def changed(name: str, value: bytes | None) -> Headers:
    """The good headers with another value for one of them."""
    return [(key, value if key == name else kept) for key, kept in GOOD]


def without(*names: str) -> Headers:
    return [(key, value) for key, value in GOOD if key not in names]


def expected_fault(record: Record) -> str | None:
    """The fault that the contract sees in a record of the events topic; independent of the code under test."""
    headers = record.headers or []
    names = [name for name, _ in headers]
    if record.value is None:
        return RecordFault.NULL_VALUE
    if any(names.count(name) == 0 for name in REQUIRED_HEADERS):
        return RecordFault.MISSING_HEADER
    if any(names.count(name) > 1 for name in HEADERS):
        return RecordFault.REPEATED_HEADER
    values = dict(headers)
    if any(not _well_formed(name, values[name]) for name in HEADERS if name in values):
        return RecordFault.MALFORMED_HEADER
    if values["content-type"] == b"application/json" and not _is_utf8(record.value):
        return RecordFault.INVALID_UTF8
    return None


_SHAPES: Final = {
    "ce_specversion": rb"1\.0",
    "ce_id": rb"[du]\.[\x00-\x7f]{32}",
    "ce_source": rb"/.*",
    "ce_type": rb"headrace\..+",
    "ce_subject": rb".+",
    "ce_time": rb"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    "content-type": rb".+",
    "ce_attributes": rb"\{.*\}",
}


def _well_formed(name: str, value: bytes | None) -> bool:
    return value is not None and _is_utf8(value) and re.fullmatch(_SHAPES[name], value, re.DOTALL) is not None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
