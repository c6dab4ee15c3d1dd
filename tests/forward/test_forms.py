"""Forms that no capture shows, rebuilt by hand from what fluentd, Fluent Bit and Docker's log driver send."""

from __future__ import annotations

from typing import Any

import pytest

from tests.forward.driving import event_time, every_way, pack

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
