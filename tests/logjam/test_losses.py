"""Which numbers of a device were lost, against what random devices published and random consumers heard.

All runs through the session that the service runs and the query that `check-loss` runs; sockets, Kafka and the lake are played. A
history is made of its number, so a failure names what to run again.
"""

from __future__ import annotations

import random
from collections import deque
from itertools import pairwise
from typing import Any

import pytest
from headrace_common.session.interface import Message
from headrace_logjam.devices.consumer import ConsumerSession, SubscriptionMaker
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import LogjamMessage, Meta, encode_meta

from tests.contract.waiting import there
from tests.logjam.losses import Row, losses
from tests.tiers import sized

LIMITS = LogjamLimits()
HISTORIES = sized(30, 300, 5000)
STEPS = 80
Number = tuple[int, int]
"""A start of the device, and a number since then: only the model knows the first."""


class Consumer:
    """One consumer through all its kills. What waits in its socket, or was read and is not stored, is lost with the process."""

    def __init__(self, world: World, name: str, skew: int) -> None:
        self.world, self.name, self.skew = world, name, skew
        self.maker = SubscriptionMaker("one", name, LIMITS)
        self.connected = False
        self.start()

    def start(self) -> None:
        self.session = ConsumerSession("one", self.name, LIMITS)
        self.waiting: deque[tuple[Number, list[bytes]]] = deque()
        self.last: Number | None = None
        self.frames: list[Any] = []
        self.ended = 0

    def kill(self) -> None:
        self.connected = False
        self.start()

    def cut(self) -> None:
        self.ended += self.connected
        self.connected = False

    def hear(self, number: Number, frames: list[bytes]) -> None:
        if self.connected and self.world.chance.random() > self.world.drops:
            self.waiting.append((number, frames))

    def read(self, most: int) -> None:
        some = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        for _ in range(self.ended if some else 0):
            self.session.ended()
            self.ended -= 1
        now_ms = self.world.passes() + self.skew
        for number, frames in some:
            before = [self.last] if self.last is not None else self.world.stored
            if max((each[1] for each in before if each[0] < number[0]), default=number[1]) < number[1]:
                self.world.hidden = True  # the device restarted, and its numbers do not show it
            self.last = number
            self.session.receive(Message(frames), now_ms)
        self.frames += self.session.frames()

    def store(self, share: float) -> None:
        """Kafka stores some of what it was sent, in any order."""
        left = []
        for frame in self.frames:
            if self.world.chance.random() >= share:
                left.append(frame)
                continue
            for item in frame.items:
                if isinstance(item, LogjamMessage) and item.meta is not None:
                    about = there(self.maker.about(item)).decode()
                    self.world.rows.append((b"|".join(item.frames).hex(), about, frame.received_ms))
                    life, number = map(int, item.frames[2].split(b"/"))
                    self.world.stored.add((life, number))
            self.session.stored(frame.ticket, len(frame.items), True)
        self.frames = left


class World:
    """A device, its consumers, and time."""

    def __init__(self, seed: int, consumers: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now = 1_700_000_000_000
        self.drops = chance.choice((0.0, 0.02, 0.2))
        self.rows: list[Row] = []
        self.stored: set[Number] = set()
        self.hidden = False
        self.life, self.sequence = 1, chance.choice((0, 0, 3, 400))
        self.consumers = [Consumer(self, name, chance.choice((0, -900, 900))) for name in "ab"[:consumers]]

    def passes(self, most: int = 20) -> int:
        self.now += self.chance.randrange(most)
        return self.now

    def publish(self) -> None:
        for _ in range(self.chance.randrange(1, 9)):
            self.sequence += 1
            meta = encode_meta(Meta(0, 7, self.passes(), self.sequence))
            frames = [self.chance.choice((b"a-b", b"c-d")), b"logs", b"%d/%d" % (self.life, self.sequence), meta]
            for each in self.consumers:
                each.hear((self.life, self.sequence), frames)

    def connect(self, each: Consumer) -> None:
        """With several consumers, a new process does not begin in the seconds around a restart of the device: see the table."""
        if len(self.consumers) > 1 and each.last is None:
            self.now += 8000
        each.connected = True

    def restart(self) -> None:
        for each in self.consumers:
            each.cut()
        self.now += 8000 if len(self.consumers) > 1 else 100
        self.life, self.sequence = self.life + 1, 0

    def run(self) -> None:
        chance = self.chance
        for _ in range(STEPS):
            step, each = chance.random(), chance.choice(self.consumers)
            if step < 0.4:
                self.publish()
                if len(self.consumers) > 1:  # each keeps up: see the page's table
                    for one in self.consumers:
                        one.read(1000)
            elif step < 0.6:
                each.read(chance.randrange(12))
            elif step < 0.75:
                each.store(0.6)
            elif step < 0.92:
                self.connect(each)
            elif step < 0.95:
                each.cut()
            elif step < 0.975:
                each.kill()
            else:
                self.restart()
        for each in self.consumers:
            self.connect(each)
        self.publish()
        for each in self.consumers:
            each.read(10_000)
            each.read(1)
            each.store(1.1)

    def truth(self) -> list[Number]:
        """Numbers between two stored ones of a start, and those before the first of each start but the oldest."""
        lives = sorted({life for life, _ in self.stored})
        lost = []
        for life in lives:
            there = [number for each, number in self.stored if each == life]
            begin = min(there) if life == lives[0] else 1
            lost += [(life, number) for number in range(begin, max(there)) if (life, number) not in self.stored]
        return lost


def wrong(seed: int, consumers: int) -> str:
    """What the query says otherwise than it was; empty if it is right, or cannot know."""
    world = World(seed, consumers)
    world.run()
    spans = [
        [number for each, number in world.stored if each == life] for life in sorted({each for each, _ in world.stored})
    ]
    if world.hidden or any(min(later) > max(earlier) for earlier, later in pairwise(spans)):
        return ""
    found = sorted(number for _, start, end in losses(world.rows) for number in range(start, end))
    true = sorted(number for _, number in world.truth())
    return "" if found == true else f"history {seed}: {len(found)} numbers are said, {len(true)} were lost"


def test_what_is_said_to_be_lost_was_lost_number_by_number() -> None:
    assert [told for seed in range(HISTORIES) if (told := wrong(seed, 1 + seed % 2))] == []


def said(*numbers: tuple[int, int]) -> list[Row]:
    """Rows of a consumer that heard these numbers, each at its time (s)."""
    session, maker, rows = ConsumerSession("one", "a", LIMITS), SubscriptionMaker("one", "a", LIMITS), []
    for number, second in numbers:
        session.receive(Message([b"a-b", b"logs", b"%d" % second, encode_meta(Meta(0, 7, 1, number))]), second * 1000)
        for frame in session.frames():
            item = frame.items[-1]  # type: ignore[attr-defined]
            rows.append((f"{number} {second}", there(maker.about(item)).decode(), frame.received_ms))
    return rows


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        # Late: what is behind it is not told from another device's.
        (said((3, 0), (4, 1), (9, 2), (6, 3), (10, 4)), [(5, 6)]),
        (said((900, 0), (5, 0), (901, 1), (6, 1), (902, 2), (7, 2)), []),  # two devices of one number
        (said((5, 0), (900, 0), (6, 1), (901, 1), (7, 2), (902, 2)), []),
    ],
)
def test_of_what_comes_late_and_of_two_devices_of_one_number(rows: list[Row], lost: list[tuple[int, int]]) -> None:
    assert [(start, end) for _, start, end in losses(rows)] == lost
