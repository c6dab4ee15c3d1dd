"""Decoding: each record lands as a row of one table, whatever it holds, and nothing throws; at last through the whole job."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from headrace_common.record.contract import REQUIRED_HEADERS, RecordFault
from headrace_lake.rows import decode
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.layout import EVENTS, QUARANTINE, SCHEMAS
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.contract.waiting import there
from tests.lake.runs import Runs
from tests.lake.stream import Message, put

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


FAULTY: dict[str, tuple[Record, RecordFault, str]] = {
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
        RecordFault.MALFORMED_HEADER, "ce_id, ce_time",
    ),
    "time is a word": (Record(changed("ce_time", b"yesterday")), RecordFault.MALFORMED_HEADER, "ce_time"),
    "time without a day": (Record(changed("ce_time", b"T12:00:00Z")), RecordFault.MALFORMED_HEADER, "ce_time"),
    "value no UTF-8": (Record(value=b'{"a":"\xff"}'), RecordFault.INVALID_UTF8, ""),
    "faulty in another order": (Record(changed("ce_id", b"")[::-1]), RecordFault.MALFORMED_HEADER, "ce_id"),
    "no value and no headers": (Record(None, None), RecordFault.NULL_VALUE, ""),
    "a key and no value": (Record(value=None, key=b"k"), RecordFault.NULL_VALUE, ""),
    "a reject": (Record(REJECT), RecordFault.MISSING_HEADER, "ce_specversion, ce_id, ce_type, ce_time, content-type"),
    "a reject without a value": (Record(REJECT, None), RecordFault.NULL_VALUE, ""),
    "one is missing, one there twice": (Record([*GOOD[1:], GOOD[1]]), RecordFault.MISSING_HEADER, "ce_specversion"),
    "one is null, one there twice": (Record([*changed("ce_id", None), GOOD[2]]), RecordFault.REPEATED_HEADER, "ce_source"),
    "null and there twice": (Record([*GOOD, ("ce_id", None)]), RecordFault.REPEATED_HEADER, "ce_id"),
    "a malformed header, and a value no UTF-8": (
        Record(changed("ce_type", b"x"), b"\xff"), RecordFault.MALFORMED_HEADER, "ce_type"
    ),
}  # fmt: skip

SOUND = {
    "as it should be": Record(),
    "no attributes": Record(without("ce_attributes")),
    "another order": Record(GOOD[::-1]),
    "a stranger behind": Record([*GOOD, ("traceparent", None)]),
    "strangers twice": Record([*GOOD, ("x", b"1"), ("x", b"2"), ("", b"\xff")]),
    "a huge stranger": Record([*GOOD, ("x", b"\x00" * 1_000_000)]),
    "a key": Record(key=b"\xff\x00"),
    "an empty key": Record(key=b""),
    "a long key": Record(key=b"\xff" * 1_000),
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
    rows = decode.events(decode.decoded(frame(spark, records)), TOPICS, LANDED)
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
    headers, value = dict(there(record.headers)), there(record.value)
    is_json = headers["content-type"] == b"application/json"
    assert (row["body"], row["payload"]) == ((value.decode(), None) if is_json else (None, value))
    assert row["stream"] == there(headers["ce_subject"]).decode()
    assert row["attributes"] == (there(headers["ce_attributes"]).decode() if "ce_attributes" in headers else None)


def test_a_time_that_cannot_be_held_is_kept_as_text(spark: SparkSession) -> None:
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


DAY: Final = 86_400_000
TIMESTAMPS: Final = (0, DAY, 253_402_300_799_999, 253_402_300_800_000, 8_000_000_000_000_000, -1, -62_135_596_800_001)
"""Milliseconds: 1970, the year 9999 and one later, the year 255486, before 1970, before the year 1."""

GREGORIAN: Final = -12_219_292_800_000
"""15 October 1582. Spark's source reads earlier times by the Julian calendar, and so is off by days."""

ANYTHING: Final = {
    "message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1", "max.message.bytes": str(1 << 22),
}  # fmt: skip
"""How a topic takes any time, and keeps it."""

HUGE: Final = [
    (Record([*GOOD, ("x", b"\x00" * 1_000_000)]), None),
    (Record(value=b"[" + b"1," * 1_500_000 + b"1]"), None),
    (Record([*GOOD, *(("x", b"1") for _ in range(10_000))]), None),
    (Record(changed("ce_id", b"\xff" * 1_000_000)), RecordFault.MALFORMED_HEADER),
    (Record([*GOOD, *[GOOD[1]] * 10_000]), RecordFault.REPEATED_HEADER),
]


def records() -> list[tuple[Record, int | None, RecordFault | None]]:
    """Records, their timestamps (None: now) and faults."""
    found: list[tuple[Record, int | None, RecordFault | None]] = [(record, None, fault) for record, fault in HUGE]
    found += [
        (record, None, None) for record in (*SOUND.values(), *(Record(changed("ce_time", text)) for text in TIMES))
    ]
    found += [(record, None, fault) for record, fault, _ in FAULTY.values()]
    for stamp in TIMESTAMPS:
        found += [(Record(), stamp, None), (Record(None), stamp, RecordFault.MISSING_HEADER)]
    return [(_with_id(record, b"d.%032x" % index), stamp, fault) for index, (record, stamp, fault) in enumerate(found)]


def _with_id(record: Record, event_id: bytes) -> Record:
    """Gives the record its own id if it has the usual one; otherwise most would be resends."""
    usual = GOOD[1]
    headers = record.headers and [(usual[0], event_id) if header == usual else header for header in record.headers]
    return replace(record, headers=headers)


def send(runs: Runs, sent: list[tuple[Record, int | None]], partition: int) -> None:
    """Sends each record as a batch of its own, since some have a size or a time that no other has."""
    messages = [Message(record.value, record.headers or [], stamp, record.key) for record, stamp in sent]
    offsets = put(runs.kafka, [(runs.kafka.events_topic, partition, [message]) for message in messages])
    assert offsets == [*range(len(sent))]


@pytest.mark.kafka
def test_each_record_lands_and_an_impossible_time_is_named(runs: Runs) -> None:
    sent, topic = records(), runs.kafka.events_topic
    anything = ConfigResource(ConfigResourceType.TOPIC, topic, configs=ANYTHING)
    runs.admin(lambda admin: admin.alter_configs([anything]))
    send(runs, [(record, stamp) for record, stamp, _ in sent], 2)
    stamps = (None, nanoseconds := 1_778_068_800_000_000_000, None)
    send(runs, [(_with_id(Record(), b"d.a%031x" % n), stamp) for n, stamp in enumerate(stamps)], 1)
    with pytest.raises(
        HaltError, match=rf"Record at topic {topic} partition 1 offset 1 has timestamp value {nanoseconds} that"
    ):
        runs.run()
    runs.delete_records({1: 2})
    runs.run(accept_loss=True)
    assert [row["offset"] for row in runs.query('select "offset" from events where partition = 1')] == [2]
    assert runs.query('select "from", "to" from gaps') == [{"from": 0, "to": 2}]
    assert runs.proven()
    stamp_of = "epoch_us(received_time) as stamp"  # Python has no date for some of them
    of_records = f"{stamp_of} from events where partition = 2"
    events = {row["offset"]: row for row in runs.query(f'select "offset", body, payload, {of_records}')}
    rejects = {row["offset"]: row for row in runs.query(f'select "offset", reason, raw, {stamp_of} from quarantine')}
    for offset, (record, stamp, fault) in enumerate(sent):
        row = events.get(offset, rejects.get(offset))
        assert row is not None, record
        assert (offset in rejects) is (fault is not None), (record, row)
        if stamp is not None and stamp >= GREGORIAN:
            assert row["stamp"] == stamp * 1000
        if offset in rejects:
            assert (row["reason"], row["raw"]) == (fault, record.value)
        else:
            assert (row["body"].encode() if row["payload"] is None else row["payload"]) == record.value
    assert len(events) + len(rejects) == len(sent)
    assert {row["reason"] for row in rejects.values()} == {str(fault) for fault in RecordFault}


def _naive(instant: datetime) -> datetime:
    """A timestamp as Spark gives it to Python: in local time, without a zone."""
    return instant.astimezone().replace(tzinfo=None)


def _micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
