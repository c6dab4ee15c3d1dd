"""What becomes of log records: events, their ids, rejects, and both again from quarantine."""

from __future__ import annotations

import gzip
from typing import Any

import orjson
import pytest
from headrace_common.operations.settings import ServiceSettings
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_common.session.again import QuarantinedItem
from headrace_common.session.interface import Peer
from headrace_otlp.again import read
from headrace_otlp.logs import JSON, MOST_PIECES, MOST_VALUES, PROTOBUF, STEP, cut, prefixed
from headrace_otlp.wire import request
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from tests.driving import NOW_MS, PEER, Seen, feed
from tests.otlp.driving import NANOSECONDS, answers, body, drive, every_way, record, sent, session


def resource(**attributes: str) -> bytes:
    made = ResourceLogs(schema_url="https://r")
    for key, value in attributes.items():
        made.resource.attributes.add(key=key.replace("_", "."), value=AnyValue(string_value=value))
    return made.SerializeToString()


def event_of(record: LogRecord, **given: Any) -> Seen:
    (event,) = every_way(sent(record.SerializeToString()), **given).events
    return event


FULL_JSON = {
    "timeUnixNano": str(NANOSECONDS), "observedTimeUnixNano": str(NANOSECONDS + 1), "severityNumber": 9, "severityText": "INFO",
    "body": {"kvlistValue": {"values": [
        {"key": "n", "value": {"intValue": str(2**63 - 1)}}, {"key": "f", "value": {"doubleValue": 1.5}},
        {"key": "b", "value": {"bytesValue": "AP8="}}, {"key": "no", "value": {}},
        {"key": "a", "value": {"arrayValue": {"values": [{"boolValue": True}]}}},
    ]}},
    "attributes": [{"key": "k", "value": {"stringValue": "ü"}}], "droppedAttributesCount": 2, "flags": 1,
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "EEE19B7EC3C1B174", "eventName": "sold",
}  # fmt: skip
FULL = {
    "timeUnixNano": str(NANOSECONDS), "observedTimeUnixNano": str(NANOSECONDS + 1), "severityNumber": 9, "severityText": "INFO",
    "body": {"n": 2**63 - 1, "f": 1.5, "b": "AP8=", "no": None, "a": [True]},
    "attributes": {"k": "ü"}, "droppedAttributesCount": 2, "flags": 1,
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "eventName": "sold",
}  # fmt: skip


def full() -> bytes:
    made = LogRecord(
        time_unix_nano=NANOSECONDS, observed_time_unix_nano=NANOSECONDS + 1, severity_number=9, severity_text="INFO",  # type: ignore[arg-type]
        dropped_attributes_count=2, flags=1, trace_id=bytes.fromhex("5b8efff798038103d269b633813fc60c"),
        span_id=bytes.fromhex("eee19b7ec3c1b174"), event_name="sold",
    )  # fmt: skip
    made.attributes.add(key="k", value=AnyValue(string_value="ü"))
    add = made.body.kvlist_value.values.add
    add(key="n", value=AnyValue(int_value=2**63 - 1))
    add(key="f", value=AnyValue(double_value=1.5))
    add(key="b", value=AnyValue(bytes_value=b"\0\xff"))
    add(key="no", value=AnyValue())
    add(key="a").value.array_value.values.add(bool_value=True)
    return made.SerializeToString()


def test_both_encodings_make_the_same_event_with_all_fields() -> None:
    scope = ScopeLogs(schema_url="https://s")
    scope.scope.name, scope.scope.version = "cart", "1"
    binary = request(body(full(), resource=resource(service_name="shop"), scope=scope.SerializeToString()), PROTOBUF)
    names = [{"key": "service.name", "value": {"stringValue": "shop"}}]
    logs = {"scope": {"name": "cart", "version": "1"}, "schemaUrl": "https://s", "logRecords": [FULL_JSON]}
    text = {"resourceLogs": [{"resource": {"attributes": names}, "schemaUrl": "https://r", "scopeLogs": [logs]}]}
    for data in (binary, request(orjson.dumps(text), JSON)):
        (event,) = every_way(data).events
        about = {"attributes": {"service.name": "shop"}, "schemaUrl": "https://r"}
        assert event.json == {
            **FULL,
            "resource": about,
            "scope": {"name": "cart", "version": "1", "schemaUrl": "https://s"},
        }
        assert (event.time, event.subject) == ("2018-12-13T14:51:00.300000001Z", "shop")
        assert not event.attributes


@pytest.mark.parametrize(
    ("times", "time", "attributes"),
    [
        ({"time_unix_nano": 5, "observed_time_unix_nano": 9}, "1970-01-01T00:00:00.000000005Z", {}),
        ({"observed_time_unix_nano": 2**64 - 1}, "2554-07-21T23:34:33.709551615Z", {}),
        ({}, "2023-11-14T22:15:23.456Z", {"time": "received"}),
    ],
)
def test_a_time_is_the_events_own_or_that_of_receipt(times: Any, time: str, attributes: Any) -> None:
    event = event_of(LogRecord(**times))
    assert (event.time, event.attributes) == (time, attributes)


@pytest.mark.parametrize(
    ("times", "names", "peer", "kind"),
    [
        ({"time_unix_nano": 10**18 + 1}, {"service_instance_id": "i"}, PEER, "d."),
        ({"time_unix_nano": 10**18, "observed_time_unix_nano": 10**18 + 999_999}, {"host_name": "h"}, PEER, "d."),
        ({"time_unix_nano": 10**18 + 1}, {}, Peer("192.0.2.7", 1, "shop", certified=True), "d."),
        ({"time_unix_nano": 10**18 + 1}, {"service_name": "s"}, PEER, "u."),
        ({"time_unix_nano": 10**18 + 10**6}, {"host_name": "h"}, PEER, "u."),
        ({}, {"host_name": "h"}, PEER, "u."),
    ],
)
def test_who_may_say_the_same_twice_has_random_ids(times: Any, names: Any, peer: Peer, kind: str) -> None:
    """Two processes without a name, or one whose clock has milliseconds."""
    data = request(body(LogRecord(**times).SerializeToString(), resource=resource(**names)), PROTOBUF)
    (event,) = drive([data], peer=peer).events
    assert event.id[:2] == kind


@pytest.mark.parametrize(
    ("peer", "host", "source"),
    [
        (PEER, "", "/otlp/192.0.2.7"),
        (PEER, "web-1", "/otlp/web-1"),
        (PEER, "w" * 1025, "/otlp/192.0.2.7"),
        (Peer("192.0.2.7", 1, "shop", certified=True), "web-1", "/otlp/shop"),
    ],
)
def test_a_source_is_certified_or_named_or_an_address(peer: Peer, host: str, source: str) -> None:
    data = request(body(record(), resource=resource(host_name=host)), PROTOBUF)
    assert [event.source for event in drive([data], peer=peer).events] == [source]


def test_what_is_sent_again_has_the_ids_it_had() -> None:
    content = body(record(), record(), record("b"))
    plain, packed = request(content, PROTOBUF), request(gzip.compress(content), PROTOBUF, "gzip")
    (first,), (second,) = drive([plain]).parts, drive([packed], peer=Peer("192.0.2.8", 1, "192.0.2.8")).parts
    assert [part.id for part in first] == [part.id for part in second]
    assert len({part.id for part in first}) == 3
    certified = drive([plain], peer=Peer("192.0.2.7", 1, "shop", certified=True)).flat
    other = drive([sent(record(), record(), record("c"))]).flat
    assert not {part.id for part in first} & {part.id for part in (*certified, *other)}


@pytest.mark.parametrize(
    ("number", "text"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")]
)
def test_numbers_that_json_lacks_are_texts_and_noted(number: float, text: str) -> None:
    event = event_of(LogRecord(time_unix_nano=1, body=AnyValue(double_value=number)))
    assert event.json["body"] == text
    assert event.attributes["notes"] == ["numbers"]


def test_repeated_keys_are_repeated_and_noted() -> None:
    made = LogRecord(time_unix_nano=1)
    for value in ("1", "2"):
        made.attributes.add(key="k", value=AnyValue(string_value=value))
    event = event_of(made)
    assert b'"attributes":{"k":"1","k":"2"}' in event.value
    assert event.attributes["notes"] == ["repeated_keys"]


def test_one_record_that_is_not_understood_concerns_no_other() -> None:
    broken = record("b")[:-1]
    outcome = every_way(sent(record("a"), broken, record("c")))
    assert [event.json["body"] for event in outcome.events] == ["a", "c"]
    assert [(reject.reason, reject.raw) for reject in outcome.rejects] == [(Reason.BAD_RECORD, body(broken))]
    assert outcome.answers[0].status == 200
    assert outcome.answers[0].body == b"\x0a\x21\x08\x01\x12\x1din quarantine: bad_record (1)"


def test_a_frame_that_is_built_again_counts_its_rejects_once() -> None:
    driven, broken = session(), record("b")[:-1]
    feed(driven, sent(broken))
    (frame,) = driven.frames()
    assert frame.size > len(body(broken))
    assert len(list(frame.parts())) == len(list(frame.parts())) == 1
    driven.stored(frame.ticket, 1, True)
    assert [answer.rejected for answer in answers(driven.outgoing())] == [1]


def nested(depth: int) -> bytes:
    """A record whose event has so many objects in each other."""
    made = LogRecord(time_unix_nano=1)
    value = made.body
    for _ in range(depth - 1):
        value = value.kvlist_value.values.add(key="k").value
    return made.SerializeToString()


def valued(count: int) -> bytes:
    made = LogRecord(time_unix_nano=1)
    made.body.array_value.values.extend([AnyValue(bool_value=True)] * count)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("within", "beyond", "limits", "reason"),
    [
        (nested(34), nested(35), {}, Reason.BAD_RECORD),
        (valued(MOST_VALUES), valued(MOST_VALUES + 1), {}, Reason.OVERSIZED),
        (record("x" * 900), record("x" * 1000), {"event_bytes": 1024}, Reason.OVERSIZED),
        (record("x" * 900), record("x" * 1100), {"event_bytes": 1024}, Reason.OVERSIZED),
    ],
    ids=["depth", "values", "event", "record"],
)
def test_a_record_beyond_a_limit_is_quarantined(within: bytes, beyond: bytes, limits: Any, reason: Reason) -> None:
    outcome = drive([sent(within, beyond)], **limits)
    assert [part.reason if isinstance(part, Reject) else None for part in outcome.flat] == [None, reason]


def in_json(*records: Any, **more: Any) -> bytes:
    """A request in JSON."""
    return request(orjson.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}], **more}]}), JSON)


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize(
    "data",
    [
        sent(*[record()] * 3),
        in_json(*[{"flags": 1}] * 3),
        request(b"\x0a\x00" * 2 + body(record()), PROTOBUF),
        request(b'{"resourceLogs":[{"scopeLogs":[{},{"logRecords":[{"flags":1}]}]},{}]}', JSON),
    ],
)
def test_records_scopes_and_resources_of_a_body_are_limited(data: bytes, over: int) -> None:
    outcome = every_way(data, frame_events=5 - over)
    assert outcome.statuses == [400 if over else 200]
    assert [reject.reason for reject in outcome.rejects] == [Reason.TOO_MANY_EVENTS] * over


def test_what_has_no_records_takes_no_long_turn() -> None:
    """Not even where each scope repeats a large resource, which is read for its records alone."""
    scopes = prefixed(2, b"") * 3 * STEP
    cutting = cut(prefixed(1, resource(service_name="x" * 1000) + scopes) + prefixed(1, b"") * 3 * STEP, 10_000)
    assert len(list(cutting)) == 12


@pytest.mark.parametrize("over", [0, 1])
def test_the_values_of_a_json_body_are_limited(over: int) -> None:
    padded = b'{"x":[%b]}' % b",".join([b"1"] * (MOST_PIECES - 1 + over))
    (reject,) = drive([request(padded, JSON)]).rejects
    assert reject.reason == (Reason.TOO_MANY_EVENTS if over else Reason.BAD_RECORD)
    values = [{"stringValue": ""}] * (2 * MOST_VALUES - 3 + over)
    outcome = drive([in_json({"body": {"arrayValue": {"values": values}}})])
    assert {reject.reason for reject in outcome.rejects} == {Reason.OVERSIZED}
    assert outcome.statuses == [400 if over else 200]


@pytest.mark.parametrize("over", [0, 1])
def test_a_resource_that_each_event_repeats_is_counted(over: int) -> None:
    about, records = resource(service_name="x" * 1000), [record("y")] * 100
    content = body(*records, resource=about)
    most = len(content) + 100 * len(about) - over
    outcome = drive([request(content, PROTOBUF)], inflated_bytes=most)
    assert [reject.reason for reject in outcome.rejects] == [Reason.INFLATED_LIMIT] * over
    assert len(outcome.events) == 100 * (1 - over)


@pytest.mark.parametrize("over", [0, 1])
def test_a_resource_is_limited(over: int) -> None:
    about = resource(service_name="x" * 2000)
    (part,) = drive([request(body(record(), resource=about), PROTOBUF)], event_bytes=len(about) + 20 - 21 * over).flat
    assert isinstance(part, Reject)
    assert ("resource" in part.detail) == bool(over)


def test_what_is_said_of_a_fault_is_short() -> None:
    (reject,) = every_way(in_json({"flags": "x" * 10_000})).rejects
    assert len(reject.detail) <= 256


def test_json_with_one_strange_record_is_quarantined_whole() -> None:
    data = in_json({"traceId": "5b8e"}, {"traceId": "no"})
    (reject,) = every_way(data).rejects
    assert (reject.reason, reject.raw) == (Reason.BAD_RECORD, data.partition(b"\r\n\r\n")[2])


def item(reject: Reject) -> QuarantinedItem:
    about = orjson.loads(reject.attributes)
    return QuarantinedItem(
        reject.id.decode(), reject.reason, "otlp", reject.subject, reject.source, NOW_MS, "", about, reject.raw
    )


@pytest.mark.parametrize("encoding", [PROTOBUF, JSON])
def test_a_record_comes_back_from_quarantine_as_its_event(encoding: str) -> None:
    names = {"attributes": [{"key": "host.name", "value": {"stringValue": "web-1"}}]}
    told = {"timeUnixNano": str(NANOSECONDS), "body": {"stringValue": "x" * 2000}}
    data = sent(record("x" * 2000)) if encoding == PROTOBUF else in_json(told, resource=names)
    (stored,) = drive([data]).events
    (reject,) = drive([data], event_bytes=1024).rejects
    (event,) = read(item(reject), ServiceSettings()).events
    assert (event.value, event.id) == (stored.value, stored.id)


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_body_comes_back_from_quarantine_with_its_ids(coding: str) -> None:
    content = body(record("a"), record("b"))
    data = request(gzip.compress(content) if coding else content, PROTOBUF, coding)
    stored = drive([data]).events
    (reject,) = drive([data], frame_events=1).rejects
    assert [event.id for event in read(item(reject), ServiceSettings()).events] == [event.id for event in stored]
