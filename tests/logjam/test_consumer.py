"""What a consumer makes of a device's messages, and how many it did not get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_logjam.devices.consumer import ConsumerSession
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import split

from tests.driving import Seen
from tests.fuzz.subjects import made
from tests.logjam.driving import Driven, event
from tests.tiers import sized

LIMITS = LogjamLimits()
CREATED = 1_700_000_000_123


def consumer(lost: Callable[[int], None] = lambda numbers: None) -> Driven:
    return Driven(ConsumerSession("device-1", "us", LIMITS, lost))


def parts(*messages: list[bytes]) -> list[Seen | Reject]:
    """What they make, which is stored."""
    found = consumer()
    for frame in found.send(*messages):
        found.store(frame)
    assert found.hear() == []
    return found.flat


def published(sequence: int, body: Any = b'{"started_ms":1}', method: int = 0, **more: Any) -> list[bytes]:
    return event(body, method, **{"device": 7, "created_ms": CREATED, "sequence": sequence, **more})


@pytest.mark.parametrize(
    "frames",
    [[b"x"], published(1)[:3], [*published(1)[:3], b"short"], [*published(1), b""], published(1, app_env=b"shop"),
     published(1, topic=b"x" * 2000)],
)  # fmt: skip
def test_what_is_no_message_is_kept(frames: list[bytes]) -> None:
    (part,) = parts(frames)
    assert isinstance(part, Reject)
    assert part.reason is Reason.BAD_MESSAGE
    assert split(part.raw) == frames


def test_what_kafka_refuses_for_good_is_counted_as_lost() -> None:
    lost: list[int] = []
    found = consumer(lost.append)
    (frame,) = found.send(published(1), published(2), published(5), published(6))
    found.session.stored(frame.ticket, 1, False)
    found.session.abandon(frame.ticket)
    assert lost == [2, 4]


def test_any_frames_are_events_or_rejects() -> None:
    """Those that the fuzzer makes."""
    for number in range(sized(200, 2000, 20_000)):
        _, messages, _ = made("logjam", f"consumer-{number}")
        found = parts(*messages)
        assert len(found) == len(messages)
        assert all(not isinstance(part, Reject) or part.reason is not Reason.INTERNAL for part in found)
