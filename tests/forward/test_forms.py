"""Forms that no capture shows, rebuilt by hand from what fluentd, Fluent Bit and Docker's log driver send."""

from __future__ import annotations

from typing import Any

import pytest

from tests.forward.driving import TIME, event_time, every_way, message, pack


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

    def test_that_is_empty_or_no_map_is_none(self) -> None:
        metadatas: tuple[object, ...] = ({}, None, 7, "x", [1])
        for metadata in metadatas:
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
        (-1e-30, "1969-12-31T23:59:59.999999999Z"),
        (253402300799.9, "9999-12-31T23:59:59.9Z"),
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


# Groups, whose marks have the times -1 and -2 (flb_log_event.h): Fluent Bit has them from OTLP

RECEIVED = "2023-11-14T22:15:23.456Z"
RESOURCE = {"resource": {"attributes": {"service.name": "shop"}}, "scope": {}}
FORMS: dict[str, tuple[Any, Any]] = {
    "EventTime": (event_time(0xFFFF_FFFF, 0), event_time(0xFFFF_FFFE, 0)),
    "integer": (-1, -2),
    "unsigned integer": (2**64 - 1, 2**64 - 2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bare", [False, True])
def test_marks_are_events_of_no_time_of_their_own(form: str, bare: bool) -> None:
    """They are kept, as the group's resource stands there alone; no event is of the year 2106 or 1969."""
    start, end = FORMS[form]
    schema = {"schema": "otlp", "resource_id": 0, "scope_id": 0}
    entries = [
        [start if bare else [start, schema], RESOURCE],
        [[event_time(1_700_000_000, 5), {}], {"log": "1"}],
        [end if bare else [end, {}], {}],
    ]
    outcome = every_way(pack(["t", b"".join(map(pack, entries)), {"chunk": "c"}]))
    first, log, last = outcome.events
    assert (first.time, log.time, last.time) == (RECEIVED, "2023-11-14T22:13:20.000000005Z", RECEIVED)
    assert first.record == RESOURCE
    assert [event.attributes.get("group") for event in outcome.events] == ["start", None, "end"]
    assert [event.attributes.get("time") for event in outcome.events] == ["received", None, "received"]
    assert first.attributes.get("metadata") == (None if bare else schema)
    assert len({event.id for event in outcome.events}) == 3


def test_the_last_times_that_are_times() -> None:
    times = [event_time(0xFFFF_FFFD, 0), event_time(0xFFFF_FFFF, 1)]
    outcome = every_way(pack(["t", b"".join(pack([time, {}]) for time in times), {}]))
    assert [event.time for event in outcome.events] == [
        "2106-02-07T06:28:13.000000000Z",
        "2106-02-07T06:28:15.000000001Z",
    ]
    assert not any("group" in event.attributes for event in outcome.events)
