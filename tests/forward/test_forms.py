"""Forms that no capture shows, rebuilt by hand from what fluentd, Fluent Bit and Docker's log driver send."""

from __future__ import annotations

import gzip
from itertools import pairwise
from typing import Any

import pytest

from tests.forward.driving import TIME, event_time, every_way, message, pack

CHUNK = b"\xb9" + b"Y2h1bmsxY2h1bmsxY2h1bmsx\n"
"""fluentd's: Base64 with a newline, 25 bytes, in a fixstr."""

RECORDS = [{"m": "one"}, {"m": "two", "n": {"k": [1, None]}}, {"m": "žluť"}]
ENTRIES = [pack([event_time(1_700_000_000, number), record]) for number, record in enumerate(RECORDS)]
BODY = b"".join(ENTRIES)


def str32(data: bytes) -> bytes:
    """How fluentd packs every payload, gzip too: a str of bytes that are no UTF-8."""
    return b"\xdb" + len(data).to_bytes(4, "big") + data


def fluentd(payload: bytes, compressed: str = "text", *, chunk: bytes = CHUNK) -> bytes:
    option = b"\x83" + pack("size") + pack(len(ENTRIES)) + pack("chunk") + chunk + pack("compressed") + pack(compressed)
    return b"\x93" + pack("app.log") + str32(payload) + option


def cut(data: bytes, *places: int) -> list[bytes]:
    bounds = [0, *places, len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


FORMS = {
    "text": fluentd(BODY),
    "gzip": fluentd(gzip.compress(BODY), "gzip"),
    "a member for each entry": fluentd(b"".join(map(gzip.compress, ENTRIES)), "gzip"),
    "members that end inside entries": fluentd(b"".join(map(gzip.compress, cut(BODY, 5, 23, 24, 40))), "gzip"),
    "empty members": fluentd(gzip.compress(b"") + gzip.compress(BODY) + gzip.compress(b""), "gzip"),
    "gzip that is not said": fluentd(gzip.compress(BODY)),
    "members, padded": fluentd(gzip.compress(BODY) + b"\0" * 7, "gzip"),
    "size that is wrong": fluentd(BODY).replace(pack("size") + b"\x03", pack("size") + b"\x7f"),
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_fluentds_messages(data: bytes) -> None:
    outcome = every_way(data)
    assert outcome.error is None
    assert outcome.rejects == []
    assert [event.record for event in outcome.events] == RECORDS
    assert [event.time[-10:] for event in outcome.events] == ["000000000Z", "000000001Z", "000000002Z"]
    assert {event.tag for event in outcome.events} == {"app.log"}
    assert outcome.replies == [b"\x81\xa3ack" + CHUNK]
    assert all(event.id.startswith("d.") for event in outcome.events)
    assert len({event.id for event in outcome.events}) == 3


def test_all_forms_of_the_same_entries_have_the_same_ids() -> None:
    assert len({tuple(event.id for event in every_way(data).events) for data in FORMS.values()}) == 1


class TestMetadata:
    def event(self, data: bytes) -> Any:
        (event,) = every_way(data).events
        return event

    def test_with_an_entry(self) -> None:
        entry = pack([[TIME, {"k": {"n": 1}}], {"m": 1}])
        for data in (pack(["t", entry, {"chunk": "c"}]), b"\x93\xa1t\x91" + entry + pack({"chunk": "c"})):
            event = self.event(data)
            assert event.record == {"m": 1}
            assert event.time == "2023-11-14T22:13:20.123456789Z"
            assert event.attributes == {"chunk": "c", "metadata": {"k": {"n": 1}}}

    def test_in_the_option_of_a_message(self) -> None:
        """Fluent Bit's Message mode has no entry to put it in."""
        event = self.event(message(pack({"m": 1}), option={"chunk": "c", "metadata": {"k": "v"}}))
        assert event.record == {"m": 1}
        assert event.attributes == {"chunk": "c", "metadata": {"k": "v"}}

    def test_that_is_empty_or_no_map_is_none(self) -> None:
        for metadata in ({}, None, 7, "x", [1]):
            event = self.event(message(pack({"m": 1}), option={"chunk": "c", "metadata": metadata}))
            assert (event.record, event.attributes) == ({"m": 1}, {"chunk": "c"})

    def test_in_the_option_of_many_entries_is_not_theirs(self) -> None:
        event = self.event(pack(["t", [[TIME, {"m": 1}]], {"chunk": "c", "metadata": {"k": "v"}}]))
        assert event.attributes == {"chunk": "c"}


def test_a_time_of_every_kind() -> None:
    times: list[tuple[Any, str]] = [
        (1, "1970-01-01T00:00:01Z"),
        (-3, "1969-12-31T23:59:57Z"),  # -1 and -2 begin and end a group
        (1.5, "1970-01-01T00:00:01.5Z"),
        (-0.25, "1969-12-31T23:59:59.75Z"),
        (1700000000.123456, "2023-11-14T22:13:20.123456Z"),
        (1e-9, "1970-01-01T00:00:00.000000001Z"),
        (253402300799, "9999-12-31T23:59:59Z"),
        (-62135596800, "0001-01-01T00:00:00Z"),
        (event_time(0, 0), "1970-01-01T00:00:00.000000000Z"),
        (event_time(2**32 - 1, 999_999_999), "2106-02-07T06:28:15.999999999Z"),
        (event_time(1, 2**32 - 1), "1970-01-01T00:00:05.294967295Z"),
    ]
    for time, text in times:
        (event,) = every_way(message(pack({}), time)).events
        assert (event.time, "time" in event.attributes) == (text, False)
    for time in (0, None, 0.0, -0.0):
        (event,) = every_way(message(pack({}), time)).events
        assert (event.time, event.attributes["time"]) == ("2023-11-14T22:15:23.456Z", "received")
    for time in (253402300800, -62135596801, 2**64 - 3, float("nan"), float("inf"), 1e300, True, "1", b"", [1], {}):
        (reject,) = every_way(b"\x93\xa1t\x91\x92" + pack(time) + b"\x80" + pack({"chunk": "c"})).rejects
        assert reject.reason.value == "bad_time", time
