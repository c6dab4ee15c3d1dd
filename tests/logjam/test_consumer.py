"""What a consumer makes of a device's messages, and of those that it did not get."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.record.contract import GAP_TYPE, Reason
from headrace_common.record.event import Reject
from headrace_common.session.interface import Message
from headrace_logjam.devices.consumer import ConsumerSession
from headrace_logjam.wire import BodyLimits, split

from tests.driving import NOW_MS, Seen, parts_of
from tests.fuzz.subjects import made
from tests.logjam.driving import event
from tests.tiers import sized

LIMITS = BodyLimits(1500, 1000, 5)
CREATED = 1_700_000_000_123
START = {"start": NOW_MS, "restarts": 0}


class Consumer:
    """A session, and all that came of it."""

    def __init__(self) -> None:
        self.lost = 0
        self.session = ConsumerSession("device-1", "us", LIMITS, self._lost)

    def _lost(self, numbers: int) -> None:
        self.lost += numbers

    def send(self, *messages: list[bytes]) -> list[Any]:
        """Messages that are read together: the frames that they make."""
        for parts in messages:
            self.session.receive(Message(parts), NOW_MS)
        assert self.session.outgoing() is None
        return list(self.session.frames())

    def parts(self, *messages: list[bytes]) -> list[Seen | Reject]:
        found: list[Seen | Reject] = []
        for frame in self.send(*messages):
            made = parts_of(frame)
            self.session.stored(frame.ticket, len(made), True)
            found += made
        assert not self.session.status().partial_bytes
        return found


def published(sequence: int, body: Any = b'{"started_ms":1}', method: int = 0, **more: Any) -> list[bytes]:
    return event(body, method, **{"device": 7, "created_ms": CREATED, "sequence": sequence, **more})


def marks(parts: list[Seen | Reject]) -> list[dict[str, Any]]:
    return [part.json for part in parts if isinstance(part, Seen) and part.headers["ce_type"].decode() == GAP_TYPE]


def test_nothing_expires_and_nobody_is_answered() -> None:
    (frame,) = Consumer().send(published(1), published(2))
    assert frame.kept
    assert not frame.acknowledged
    assert frame.ordering_key == b"device-1/shop-production"


@pytest.mark.parametrize(
    "frames",
    [[b"x"], published(1)[:3], [*published(1)[:3], b"short"], [*published(1), b""], published(1, app_env=b"shop"),
     published(1, topic=b"x" * 2000)],
)  # fmt: skip
def test_what_is_no_message_is_kept(frames: list[bytes]) -> None:
    (part,) = Consumer().parts(frames)
    assert isinstance(part, Reject)
    assert part.reason is Reason.BAD_MESSAGE
    assert split(part.raw) == frames


def test_what_kafka_refuses_for_good_is_counted_as_lost() -> None:
    consumer = Consumer()
    (frame,) = consumer.send(published(1), published(2), published(5), published(6))
    assert consumer.lost == 2
    consumer.session.stored(frame.ticket, 1, False)
    consumer.session.abandon(frame.ticket)
    assert consumer.lost == 2 + 4


def test_any_frames_are_events_rejects_or_markers() -> None:
    """Those that the fuzzer makes."""
    for number in range(sized(200, 2000, 20_000)):
        _, messages, _ = made("logjam", f"consumer-{number}")
        parts = Consumer().parts(*messages)
        assert len(parts) - len(marks(parts)) == len(messages)
        assert all(not isinstance(part, Reject) or part.reason is not Reason.INTERNAL for part in parts)
