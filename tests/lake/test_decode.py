"""Decoding: each record lands as a row of one table, whatever it holds, and nothing throws."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pytest
from headrace_common.record.contract import HEADERS, QUARANTINE_HEADERS, REQUIRED_HEADERS, RecordFault
from headrace_lake.rows import decode
from headrace_lake.rows.decode import counts, keyed_counts
from headrace_lake.tables.layout import EVENTS, QUARANTINE, SCHEMAS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from tests.contract.waiting import there

pytestmark = pytest.mark.spark

TOPICS: Final = decode.Topics("e", "q", {"e": "id-of-e", "q": "id-of-q"})
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


FAULTY = {
    "no headers": (Record(None), RecordFault.MISSING_HEADER, ", ".join(REQUIRED_HEADERS)),
    "one is missing": (Record(without("ce_time")), RecordFault.MISSING_HEADER, "ce_time"),
    "two are missing": (Record(without("ce_id", "content-type")), RecordFault.MISSING_HEADER, "ce_id, content-type"),
    "header twice": (Record([*GOOD, ("ce_id", b"x")]), RecordFault.REPEATED_HEADER, "ce_id"),
    "eight, one twice": (Record([*GOOD[:7], GOOD[6]]), RecordFault.REPEATED_HEADER, "content-type"),
    "tombstone": (Record(value=None), RecordFault.NULL_VALUE, ""),
    "null header": (Record(changed("ce_subject", None)), RecordFault.MALFORMED_HEADER, "ce_subject"),
    "null attributes": (Record(changed("ce_attributes", None)), RecordFault.MALFORMED_HEADER, "ce_attributes"),
    "attributes no object": (Record(changed("ce_attributes", b"[]")), RecordFault.MALFORMED_HEADER, "ce_attributes"),
    "version 2": (Record(changed("ce_specversion", b"2.0")), RecordFault.MALFORMED_HEADER, "ce_specversion"),
    "id too short": (Record(changed("ce_id", b"d.00")), RecordFault.MALFORMED_HEADER, "ce_id"),
    "source is no path": (Record(changed("ce_source", b"web")), RecordFault.MALFORMED_HEADER, "ce_source"),
    "type cut short": (Record(changed("ce_type", b"headrace.")), RecordFault.MALFORMED_HEADER, "ce_type"),
    "header no UTF-8": (Record(changed("ce_subject", b"a\xff")), RecordFault.MALFORMED_HEADER, "ce_subject"),
    "two malformed": (
        Record([(key, b"\xff" if key in ("ce_id", "ce_time") else value) for key, value in GOOD]),
        RecordFault.MALFORMED_HEADER,
        "ce_id, ce_time",
    ),
    "time is a word": (Record(changed("ce_time", b"yesterday")), RecordFault.MALFORMED_HEADER, "ce_time"),
    "time without a day": (Record(changed("ce_time", b"T12:00:00Z")), RecordFault.MALFORMED_HEADER, "ce_time"),
    "value no UTF-8": (Record(value=b'{"a":"\xff"}'), RecordFault.INVALID_UTF8, ""),
    "faulty in another order": (Record(changed("ce_id", b"")[::-1]), RecordFault.MALFORMED_HEADER, "ce_id"),
}

SOUND = {
    "as it should be": Record(),
    "no attributes": Record(without("ce_attributes")),
    "another order": Record(GOOD[::-1]),
    "a stranger behind": Record([*GOOD, ("traceparent", None)]),
    "strangers twice": Record([*GOOD, ("x", b"1"), ("x", b"2"), ("", b"\xff")]),
    "a huge stranger": Record([*GOOD, ("x", b"\x00" * 1_000_000)]),
    "a key": Record(key=b"\xff\x00"),
    "empty value": Record(value=b""),
    "not JSON at all": Record(value=b"{"),
    "bytes": Record(changed("content-type", b"application/octet-stream"), b"\xff\x00"),
    "an unknown content type": Record(changed("content-type", b"text/plain"), b"\xff"),
    "characters beyond the first plane": Record(changed("ce_subject", "𝄞".encode()), '{"a":"𝄞\\u0000"}'.encode()),
}

TIMES = {
    b"2026-05-06T11:59:58.123456789Z": datetime(2026, 5, 6, 11, 59, 58, 123456, tzinfo=UTC),
    b"2026-05-06T11:59:58Z": datetime(2026, 5, 6, 11, 59, 58, tzinfo=UTC),
    b"2026-05-06T13:59:58+02:00": datetime(2026, 5, 6, 11, 59, 58, tzinfo=UTC),
    b"0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    b"9999-12-31T23:59:59.999999999Z": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    b"9999-12-31T23:59:59-00:01": None,  # the year 10000, which other readers do not have
    b"0001-01-01T00:00:00+00:01": None,
    b"0000-01-01T00:00:00Z": None,
    b"2016-12-31T23:59:60Z": None,
    b"2026-02-30T00:00:00Z": None,
    b"2026-05-06T25:00:00Z": None,
    b"2026-05-06T11:59:58.1234567890123456789012345678901234567890Z": datetime(
        2026, 5, 6, 11, 59, 58, 123456, tzinfo=UTC
    ),
}
LOOSE = {
    b"2026-05-06T11:59:58.1": datetime(2026, 5, 6, 11, 59, 58, 100_000, tzinfo=UTC),
    b"2026-05-06T1:2:3.4567Z": datetime(2026, 5, 6, 1, 2, 3, 456_700, tzinfo=UTC),
}
"""No RFC 3339, and taken all the same: see docs/lake.md."""


def events(spark: SparkSession, records: list[Record]) -> list[dict[str, Any]]:
    """`event_time` in microseconds, because PySpark cannot convert the first day of the calendar for Python."""
    rows = decode.events(frame(spark, records), TOPICS, LANDED)
    rows = rows.withColumn("event_time", sf.unix_micros("event_time")).orderBy("offset")
    return [row.asDict() for row in rows.collect()]


def decoded(spark: SparkSession, records: list[Record], how: Callable[..., DataFrame]) -> list[dict[str, Any]]:
    return [row.asDict() for row in how(frame(spark, records), TOPICS, LANDED).orderBy("offset").collect()]


@pytest.fixture(scope="module")
def faulty(spark: SparkSession) -> dict[str, dict[str, Any]]:
    return dict(zip(FAULTY, decoded(spark, [record for record, _, _ in FAULTY.values()], decode.faults), strict=True))


@pytest.fixture(scope="module")
def sound(spark: SparkSession) -> dict[str, dict[str, Any]]:
    return dict(zip(SOUND, events(spark, list(SOUND.values())), strict=True))


def test_an_event_has_every_column(spark: SparkSession) -> None:
    (row,) = events(spark, [Record()])
    # datetimes come back in the test's own zone; as instants they are the same
    assert row == {
        decode.FAULT: None,
        "event_id": "d.00112233445566778899aabbccddeeff",
        "protocol": "forward",
        "source": "/forward/web-1.example.org",
        "stream": "app.web",
        "event_time": _micros(datetime(2026, 5, 6, 11, 59, 58, 123456, tzinfo=UTC)),
        "event_time_text": "2026-05-06T11:59:58.123456789Z",
        "received_time": _naive(RECEIVED),
        "content_type": "application/json",
        "body": '{"a":1}',
        "payload": None,
        "attributes": '{"chunk":"x","index":0}',
        "topic": "e",
        "topic_id": "id-of-e",
        "partition": 3,
        "offset": 100,
        "landed_at": _naive(LANDED),
        "day": date(2026, 5, 6),
    }
    assert [name for name in row if name in SCHEMAS[EVENTS].names] == SCHEMAS[EVENTS].names


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_record_goes_to_quarantine_whole(faulty: dict[str, dict[str, Any]], name: str) -> None:
    record, fault, detail = FAULTY[name]
    row = faulty[name]
    assert (row["reason"], row["detail"]) == (fault, detail)
    assert expected_fault(record) == fault
    assert row["raw"] == record.value
    assert row["sha256"] == (None if record.value is None else hashlib.sha256(record.value).hexdigest())
    kept = json.loads(row["attributes"])
    headers = [
        (item["key"], base64.b64decode(item["value"]) if "value" in item else None) for item in kept.get("headers", [])
    ]
    assert headers == (record.headers or [])
    assert (base64.b64decode(kept["record_key"]) if "record_key" in kept else None) == record.key
    assert (row["part"], row["parts"], row["topic_id"], row["partition"]) == (1, 1, "id-of-e", 3)
    assert list(row) == SCHEMAS[QUARANTINE].names


def test_a_faulty_record_says_what_can_be_known_of_it(faulty: dict[str, dict[str, Any]]) -> None:
    row = faulty["value no UTF-8"]
    known = ("forward", "/forward/web-1.example.org", "app.web", "d.00112233445566778899aabbccddeeff")
    assert (row["protocol"], row["source"], row["stream"], row["id"]) == known
    assert (faulty["header no UTF-8"]["stream"], faulty["no headers"]["protocol"]) == (None, None)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_record_lands_as_an_event(sound: dict[str, dict[str, Any]], name: str) -> None:
    record, row = SOUND[name], sound[name]
    assert row[decode.FAULT] is None
    assert expected_fault(record) is None
    headers, value = dict(there(record.headers)), there(record.value)
    is_json = headers["content-type"] == b"application/json"
    assert (row["body"], row["payload"]) == ((value.decode(), None) if is_json else (None, value))
    assert row["stream"] == there(headers["ce_subject"]).decode()
    assert row["attributes"] == (there(headers["ce_attributes"]).decode() if "ce_attributes" in headers else None)


def test_a_time_that_cannot_be_held_is_null_and_its_text_is_kept(spark: SparkSession) -> None:
    times = {**TIMES, **LOOSE}
    rows = events(spark, [Record(changed("ce_time", text)) for text in times])
    for row, (text, instant) in zip(rows, times.items(), strict=True):
        assert row[decode.FAULT] is None, text
        assert row["event_time_text"] == text.decode()
        assert row["event_time"] == (instant and _micros(instant)), text


def test_the_quarantine_topic_lands_as_it_is(spark: SparkSession) -> None:
    (row,) = decoded(spark, [Record(REJECT, b"\xff\x00", "q"), Record()], decode.rejects)
    assert row == {
        "raw": b"\xff\x00",
        "reason": "bad_json",
        "detail": "at byte 3",
        "protocol": "forward",
        "source": "/forward/web-1",
        "stream": "app",
        "id": "u.00112233445566778899aabbccddeeff",
        "part": 2,
        "parts": 3,
        "sha256": "ab" * 32,
        "attributes": '{"tag":"app"}',
        "received_time": _naive(RECEIVED),
        "topic": "q",
        "topic_id": "id-of-q",
        "partition": 3,
        "offset": 100,
        "landed_at": _naive(LANDED),
        "day": date(2026, 5, 6),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_a_broken_record_of_the_quarantine_topic_is_kept_too(spark: SparkSession, order: int) -> None:
    def but(name: str, value: bytes | None) -> list[tuple[str, bytes | None]]:
        return [(key, value if key == name else kept) for key, kept in REJECT]

    broken = [
        (None, REJECT, "null_value", ""),
        (b"x", REJECT[1:], "missing_header", "reason"),
        (b"x", [*REJECT, REJECT[0]], "repeated_header", "reason"),
        (b"x", but("part", b"4/3"), "malformed_header", "part"),
        (b"x", but("part", b"99999999999999999999/99999999999999999999"), "malformed_header", "part"),
        (b"x", but("detail", b"\xff"), "malformed_header", "detail"),
        (b"x", but("attributes", None), "malformed_header", "attributes"),
    ]
    rows = decoded(spark, [Record(headers[::order], value, "q") for value, headers, *_ in broken], decode.rejects)
    assert [(row["raw"], row["reason"], row["detail"]) for row in rows] == [(raw, *said) for raw, _, *said in broken]


_NAMES = st.sampled_from([*HEADERS, *QUARANTINE_HEADERS, "x", ""])
_VALUES = st.one_of(
    st.none(), st.binary(max_size=40), st.sampled_from([value for _, value in GOOD]), st.sampled_from(list(TIMES))
)


@st.composite
def _records(draw: st.DrawFn) -> Record:
    headers = list(GOOD)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(headers)))
        change = draw(st.sampled_from(["insert", "delete", "value", "swap"]))
        if change == "insert":
            headers.insert(place, (draw(_NAMES), draw(_VALUES)))
        elif place < len(headers):
            if change == "delete":
                del headers[place]
            elif change == "value":
                headers[place] = (headers[place][0], draw(_VALUES))
            else:
                headers.append(headers.pop(place))
    return Record(headers, draw(st.one_of(st.none(), st.just(b"{}"), st.binary(max_size=20))))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=st.lists(_records(), min_size=150, max_size=400))
def test_every_record_is_an_event_or_a_fault(spark: SparkSession, records: list[Record]) -> None:
    rows = events(spark, records)
    assert [row[decode.FAULT] for row in rows] == [expected_fault(record) for record in records]
    wrong = Counter({row["offset"]: 1 for row in rows if row[decode.FAULT] is not None})
    assert Counter(row["offset"] for row in decoded(spark, records, decode.faults)) == wrong


@pytest.mark.parametrize(("keys", "tasks"), [(7, 3), (5_000, 2)])
def test_rows_are_counted_exactly_by_their_key(spark: SparkSession, keys: int, tasks: int) -> None:
    """Each task meets every key; some rows have none."""
    rows = 6 * keys + 1
    key = f"if(id % 5 = 0, null, id * 7919 % {keys})"
    observation = Observation()
    frame = spark.range(0, rows, 1, tasks).observe(observation, keyed_counts(key).alias("found"))
    frame.write.format("noop").mode("append").save()
    assert counts(observation.get["found"]) == Counter(number * 7919 % keys for number in range(rows) if number % 5)


def _naive(instant: datetime) -> datetime:
    """A timestamp as Spark gives it to Python: in local time, without a zone."""
    return instant.astimezone().replace(tzinfo=None)


def _micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
