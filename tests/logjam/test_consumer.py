"""What a consumer makes of a device's messages, and of those that it did not get."""

from __future__ import annotations

import json
from typing import Any

import pytest
from headrace_common.record.contract import GAP_TYPE, Reason
from headrace_common.record.event import Reject
from headrace_common.session.interface import KeepUntil, Message
from headrace_logjam.devices.consumer import AGAIN, ALL, ConsumerSession, TopicChoice
from headrace_logjam.devices.gaps import Notice, NumbersBehind
from headrace_logjam.devices.positions import DevicePosition, decode
from headrace_logjam.wire import BodyLimits, Meta, encode_meta, split

from tests.driving import NOW_MS, Seen, parts_of
from tests.fuzz.subjects import made
from tests.logjam.driving import event
from tests.logjam.test_vectors import by_the_rule
from tests.tiers import sized

LIMITS = BodyLimits(1500, 3000, 1000, 5)
CREATED = 1_700_000_000_123


class Consumer:
    """A session, and all that came of it."""

    def __init__(self, chosen: TopicChoice = ALL) -> None:
        self.notices: list[tuple[Notice, int]] = []
        self.lost = 0
        self.now = 1000.0
        self.now_ms = NOW_MS
        self.session = ConsumerSession(
            "device-1",
            "us",
            LIMITS,
            lambda notice, device: self.notices.append((notice, device)),
            self._lost,
            chosen=chosen,
            now_ms=lambda: self.now_ms,
        )

    def _lost(self, numbers: int) -> None:
        self.lost += numbers

    def send(self, *messages: list[bytes]) -> list[Any]:
        """Messages of one turn: the frames that they make."""
        for parts in messages:
            self.session.receive(Message(parts), NOW_MS)
            assert list(self.session.frames()) == []
        return self.tick()

    def tick(self, seconds: float = 0) -> list[Any]:
        self.now += seconds
        due = self.session.deadline()
        if due is not None and due <= self.now:
            self.session.tick(self.now)
        assert self.session.outgoing() is None
        return list(self.session.frames())

    def parts(self, *messages: list[bytes]) -> list[Seen | Reject]:
        found: list[Seen | Reject] = []
        for frame in self.send(*messages):
            made = parts_of(frame, pauses=False)
            self.session.stored(frame.ticket, len(made), True)
            found += made
        assert self.session.status().idle
        return found


def published(sequence: int, body: Any = b'{"started_ms":1}', method: int = 0, **more: Any) -> list[bytes]:
    return event(body, method, **{"device": 7, "created_ms": CREATED, "sequence": sequence, **more})


def heartbeat(sequence: int) -> list[bytes]:
    meta = encode_meta(Meta(0, 7, CREATED, sequence))
    return [b"heartbeat", b"tcp://device.example:9606", b"{}", meta]


def marks(parts: list[Seen | Reject]) -> list[dict[str, Any]]:
    return [part.json for part in parts if isinstance(part, Seen) and part.headers["ce_type"].decode() == GAP_TYPE]


@pytest.mark.parametrize("method", range(4))
def test_an_event_is_the_same_at_every_consumer(method: int) -> None:
    frames = published(1, b'{"started_ms":1700000000000}', method)
    (part,) = Consumer().parts(frames)
    assert isinstance(part, Seen)
    assert part.id == by_the_rule(*frames)
    assert part.source == "/logjam/device-1"
    assert part.subject == "shop-production/logs.shop.production"
    assert part.time == "2023-11-14T22:13:20.000Z"
    assert part.attributes == {"device": 7, "sequence": 1, "created": CREATED, "consumer": "us"}
    assert part.value == b'{"started_ms":1700000000000}'


def test_nothing_expires_and_nobody_is_answered() -> None:
    (frame,) = Consumer().send(published(1), published(2))
    assert frame.kept is KeepUntil.REFUSAL
    assert not frame.acknowledged
    assert frame.ordering_key == b"device-1/shop-production"


def test_a_heartbeat_is_an_event_and_takes_a_number() -> None:
    consumer = Consumer()
    part = consumer.parts(published(1), heartbeat(2), published(3))[-1]
    assert isinstance(part, Seen)
    assert part.headers["ce_type"] == b"headrace.logjam.heartbeat"
    assert part.attributes == {"device": 7, "sequence": 2, "created": CREATED, "consumer": "us"}
    assert part.time == "2023-11-14T22:13:20.123Z"
    assert consumer.lost == 0


def test_a_gap_is_an_event_in_front_of_what_shows_it() -> None:
    consumer = Consumer()
    consumer.parts(published(1))
    marker, after = consumer.parts(published(5, created_ms=CREATED + 9))
    assert isinstance(marker, Seen)
    assert marker.headers["ce_type"].decode() == GAP_TYPE
    assert marker.source == "/logjam/device-1"
    assert marker.json == {
        "consumer": "us", "device": 7, "from": 2, "to": 5, "after": NOW_MS, "before": NOW_MS,
    }  # fmt: skip
    assert isinstance(after, Seen)
    assert after.attributes["sequence"] == 5
    assert consumer.lost == 3


def test_joining_late_is_a_gap_with_nothing_before_it() -> None:
    consumer = Consumer()
    (mark,) = marks(consumer.parts(published(4)))
    assert mark == {"consumer": "us", "device": 7, "from": 1, "to": 4, "before": NOW_MS}
    assert consumer.notices == [(Notice.JOINED, 7)]
    assert consumer.lost == 0


def test_a_message_that_cannot_be_understood_keeps_its_number() -> None:
    consumer = Consumer()
    frames = published(2, b"no JSON")
    _, part, _ = consumer.parts(published(1), frames, published(3))
    assert isinstance(part, Reject)
    assert part.reason is Reason.BAD_JSON
    assert split(part.raw) == frames
    assert json.loads(part.attributes) == {"device": 7, "sequence": 2, "created": CREATED, "consumer": "us"}
    assert consumer.lost == 0


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


def test_what_kafka_refuses_for_good_is_marked() -> None:
    consumer = Consumer()
    (frame,) = consumer.send(published(1), published(2), published(5), published(6))
    consumer.session.abandon(frame.ticket)
    assert consumer.tick(AGAIN - 1) == []
    (again,) = consumer.tick(1)
    found = marks(parts_of(again, pauses=False))
    assert [(mark["from"], mark["to"]) for mark in found] == [(1, 3), (3, 5), (5, 7)]
    assert consumer.lost == 6
    consumer.session.abandon(again.ticket)
    assert consumer.lost == 6
    (again,) = consumer.tick(2 * AGAIN)
    assert marks(parts_of(again, pauses=False)) == found
    consumer.session.stored(again.ticket, 3, True)
    assert consumer.session.status().idle
    assert consumer.session.deadline() is None


def test_a_marker_has_the_time_at_which_it_is_published() -> None:
    """Our clock was two hours ahead: Kafka refused the messages for it, and the marker in their place until it was that late."""
    consumer = Consumer()
    (frame,) = consumer.send(published(1))
    consumer.session.abandon(frame.ticket)
    for consumer.now_ms in (NOW_MS - 7_200_000, NOW_MS - 7_100_000):
        (again,) = consumer.tick(AGAIN)
        assert again.received_ms == consumer.now_ms
        assert [(mark["from"], mark["to"]) for mark in marks(parts_of(again, pauses=False))] == [(1, 2)]
        consumer.session.abandon(again.ticket)


def test_what_is_stored_of_a_refused_frame_is_not_marked() -> None:
    consumer = Consumer()
    (frame,) = consumer.send(published(1), published(2), published(5), published(6))
    consumer.session.stored(frame.ticket, 2, False)
    consumer.session.abandon(frame.ticket)
    consumer.tick(AGAIN - 1)
    (again,) = consumer.tick(AGAIN)
    assert [(mark["from"], mark["to"]) for mark in marks(parts_of(again, pauses=False))] == [(3, 5), (5, 7)]
    assert consumer.lost == 4


def test_a_position_waits_for_the_marker_of_what_was_refused() -> None:
    consumer = Consumer()
    (one,) = consumer.send(published(1))
    (two,) = consumer.send(published(2))
    consumer.session.abandon(one.ticket)
    consumer.session.stored(two.ticket, 1, True)
    assert consumer.session.positions() == {7: (0, NOW_MS)}
    (again,) = consumer.tick(AGAIN)
    consumer.session.stored(again.ticket, 1, True)
    assert consumer.session.positions() == {7: (2, NOW_MS)}


def test_while_kafka_refuses_everything_the_memory_does_not_grow() -> None:
    """For hours, it may be: the topic's rights are gone, or the clock is wrong. Nobody is kept waiting by that."""
    consumer = Consumer()
    for number in range(1, 2001, 2):
        frames = consumer.send(published(number), published(number + 1, app_env=b"cafe-preview"))
        for frame in frames:
            consumer.session.abandon(frame.ticket)
    (again,) = consumer.tick(AGAIN)
    assert [(mark["from"], mark["to"]) for mark in marks(parts_of(again, pauses=False))] == [(1, 2001)]
    assert again.size < 10_000
    consumer.session.abandon(again.ticket)
    assert consumer.session.positions() == {7: (0, NOW_MS)}
    assert len(consumer.session._turns) == 1
    assert len(consumer.session._refused_for) == 1
    assert consumer.lost == 2000
    (one,) = consumer.send(published(2001))
    consumer.session.abandon(one.ticket)
    (again,) = consumer.tick(AGAIN)
    found = marks(parts_of(again, pauses=False))
    assert [(mark["from"], mark["to"]) for mark in found] == [(1, 2001), (2001, 2002)]
    consumer.session.stored(again.ticket, 2, True)
    assert consumer.session.positions() == {7: (2001, NOW_MS)}
    assert consumer.session.status().idle


def test_behind_one_that_waits_the_memory_does_not_grow() -> None:
    """Its partition has no leader, and all others go on."""
    consumer = Consumer()
    (first,) = consumer.send(published(1))
    (stuck,) = consumer.send(published(2, app_env=b"cafe-preview"))
    (more,) = consumer.send(published(3, app_env=b"cafe-preview"))
    consumer.session.stored(first.ticket, 1, True)
    for number in range(4, 1000):
        (frame,) = consumer.send(published(number))
        consumer.session.stored(frame.ticket, 1, True)
    assert consumer.session.positions() == {7: (1, NOW_MS)}
    assert len(consumer.session._turns) <= 2
    consumer.session.stored(more.ticket, 1, True)
    assert consumer.session.positions() == {7: (1, NOW_MS)}
    consumer.session.stored(stuck.ticket, 1, True)
    assert consumer.session.positions() == {7: (999, NOW_MS)}


def test_a_message_that_comes_late_or_twice_does_not_set_the_position_back() -> None:
    """Or the next start would mark numbers that were stored."""
    consumer = Consumer()
    consumer.parts(*map(published, (1, 2, 3, 5, 6)))
    for late in (4, 2):  # 4 fills the gap, 2 is a duplicate
        consumer.parts(published(late))
        assert consumer.session.positions() == {7: (6, NOW_MS)}
    assert consumer.notices == [(Notice.WENT_BACK, 7), (Notice.DUPLICATE, 7)]


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", '{"a":1}', '{"a":{"b":[1,2]}}', '{"a":{"1":[]}}', '{"a":{"1":null}}']
)
def test_a_commit_of_somebody_else_is_no_position(text: str) -> None:
    assert decode(text) == {}


def test_any_frames_are_events_rejects_or_markers() -> None:
    """Those that the fuzzer makes."""
    for number in range(sized(200, 2000, 20_000)):
        _, messages, _ = made("logjam", f"consumer-{number}")
        parts = Consumer().parts(*messages)
        assert len(parts) - len(marks(parts)) == len(messages)
        assert all(not isinstance(part, Reject) or part.reason is not Reason.INTERNAL for part in parts)


def test_only_chosen_topics_are_taken_and_nothing_is_counted() -> None:
    consumer = Consumer(TopicChoice((b"logs", b"events.shop"), whole=False))
    topics = (b"logs.shop", b"events.shop.production", b"events.cart", b"mobile")
    broken = [b"shop-production", b"mobile", b"{}", b"no meta"]
    sent = [published(10 * n, topic=topic) for n, topic in enumerate(topics, 1)]
    parts = consumer.parts(*sent, heartbeat(90), broken)
    assert [part.headers["ce_subject"] for part in parts if isinstance(part, Seen)] == [
        b"shop-production/logs.shop",
        b"shop-production/events.shop.production",
        b"heartbeat",
    ]
    assert sum(isinstance(part, Reject) for part in parts) == 1
    assert (consumer.notices, consumer.lost, dict(consumer.session.positions())) == ([], 0, {})
    assert len(Consumer(TopicChoice(whole=False)).parts(*sent)) == len(sent)  # with chosen app-envs alone


def begun(**more: Any) -> ConsumerSession:
    """A session that counts from where its consumer stood."""
    return ConsumerSession("device-1", "us", LIMITS, now_ms=lambda: NOW_MS, **more)


def hears(session: ConsumerSession, *numbers: tuple[int, int], now_ms: int = NOW_MS) -> None:
    """Messages by device and number."""
    for device, number in numbers:
        session.receive(Message(event({}, device=device, sequence=number)), now_ms)


HELD = {7: NumbersBehind([(8, 9)], 3)}


def test_it_stands_behind_what_the_topics_hold() -> None:
    """Killed, and ended in order before the device has said anything: the next process does not look at the topics any more."""
    whole = begun(known={7: DevicePosition(7, 1), 8: DevicePosition(2, 1)}, held=HELD)
    whole.resume(NOW_MS)
    assert whole.positions() == {7: DevicePosition(8, 3), 8: DevicePosition(2, 1)}
    holed = begun(known={7: DevicePosition(5, 1)}, held=HELD)
    holed.resume(NOW_MS)
    assert holed.positions() == {7: DevicePosition(5, 1)}
    holed.tick(0.0)
    (marker,) = holed.frames()
    holed.stored(marker.ticket, 1, True)
    assert holed.positions() == {7: DevicePosition(8, 3)}


def test_a_position_behind_a_restart_is_later_than_all_before_it() -> None:
    """What the topics hold of the start before must not be taken for the new one's, though it was received in the same moment."""
    session = begun(known={7: DevicePosition(5, 1)})
    hears(session, (7, 6), (7, 900), (7, 1))
    session.tick(0.0)
    for frame in session.frames():
        session.stored(frame.ticket, 4, True)
    assert session.positions()[7] == DevicePosition(1, NOW_MS + 1)


def test_what_waits_for_a_position_keeps_the_time_at_which_it_came() -> None:
    session = begun(first=lambda: None)
    came = {1: NOW_MS, 2: NOW_MS + 5_000, 3: NOW_MS + 9_000}
    for number, now_ms in came.items():
        hears(session, (7, number), now_ms=now_ms)
    session.written()
    session.tick(0.0)
    assert [frame.received_ms for frame in session.frames()] == list(came.values())
    assert session.positions()[7] == DevicePosition(0, NOW_MS)


def test_a_device_that_is_heard_for_the_first_time_is_written_down_before_it_is_stored() -> None:
    """A kill until then would make it new once more: what it published meanwhile would be no loss of ours."""
    written: list[dict[int, DevicePosition]] = []
    session: ConsumerSession = begun(
        known={8: DevicePosition(5, 1)}, first=lambda: written.append(dict(session.positions()))
    )
    hears(session, (8, 6), (7, 40), (7, 41), (8, 7), (9, 1))
    one = {8: DevicePosition(5, 1), 7: DevicePosition(39, NOW_MS)}
    assert written == [one, one | {9: DevicePosition(0, NOW_MS)}]
    session.tick(0.0)
    assert not list(session.frames())
    assert session.deadline() is None
    assert not session.status().idle
    session.written()
    assert session.deadline() == 0.0
    session.tick(0.0)
    assert list(session.frames())
