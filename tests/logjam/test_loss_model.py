"""What a consumer says it lost, against what it lost: random devices, connections, clocks and kills, with nothing but the truth.

All runs through the session that the service runs, its positions as a commit keeps them, and what it looks for at a start; only
sockets and Kafka are played. A history is made of its number, so a failure names what to run again.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import orjson
import pytest
from headrace_common.record.contract import GAP_TYPE
from headrace_common.session.interface import Message
from headrace_logjam.devices.consumer import ConsumerSession
from headrace_logjam.devices.gaps import Gap, MessageFacts, Notice, Numbers, _Device
from headrace_logjam.devices.held import StoredNumbers
from headrace_logjam.devices.positions import DevicePosition, decode, encode
from headrace_logjam.devices.subscription import DeviceMessage, SubscriptionFrame
from headrace_logjam.wire import HEARTBEAT, BodyLimits, Meta, encode_meta

from tests.tiers import sized

LIMITS = BodyLimits(1500, 3000, 1000, 5)
HOUR, YEAR = 3_600_000, 31_557_600_000
WRONG = (0, 0, 0, -HOUR, -5_000, 6_000, HOUR, 10 * YEAR, 1_700_000_000_000 * 999)
"""What producers' clocks are off by, in ms; the last one has microseconds."""

STEPS = 60
HISTORIES = sized(300, 2_000, 60_000)

Number = tuple[int, int]
"""A start of the device, and a number since then: only the model knows the first."""


class Consumer:
    """One consumer through all its kills, and what is true of it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.waiting: deque[tuple[Number, list[bytes]]] = (
            deque()
        )  # what ZeroMQ has read, of one connection after the other
        self.delayed: list[tuple[Number, list[bytes]]] = []  # somewhere on the way
        self.ended = False
        self.connected = True
        self.committed = encode({})
        self.life_of: dict[tuple[int, ...], int] = {}  # by position
        self.stored: dict[Number, int] = {}  # when their frames began
        self.marked: set[Number] = set()
        self.marked_before: set[Number] = set()
        self.late: set[Number] = set()
        self.first: Number | None = None
        self.named_before_us = -1
        self.untold: dict[int, int] = {}  # a start that its numbers do not show, and up to which number
        self.heard: dict[int, int] = {}  # the highest number of each start
        self.restored: set[int] = set()  # starts that the position has not heard of, after a kill
        self.excused = 0  # numbers that may be reported though they came
        self.start()

    def start(self) -> None:
        known = decode(self.committed).get("one", {})
        held = StoredNumbers(self.name, known)
        for record in self.world.topic:
            held.add(*record)
        behind = held.behind()
        self.session = ConsumerSession(
            "one", self.name, LIMITS, now_ms=lambda: 0, known=known, held=behind, first=self._hears_first
        )
        self.session.resume(self.world.passes())
        self.frames: list[SubscriptionFrame] = []
        self.last: Number | None = None
        if 7 in known:
            past = behind[7].numbers[-1][1] if behind else known[7].sequence + 1
            self.last = self.life_of[known[7]], past - 1
            if behind:
                self.life_of.setdefault(DevicePosition(past - 1, behind[7].received), self.last[0])
            # of a start that began in the same moment
            self.excused += sum(
                life == self.last[0] and number > known[7].sequence and at < known[7].received
                for (life, number), at in self.stored.items()
            )
        self.came = self.last[1] if self.last else 0  # by the last message
        self.joined = self.since = (
            0,
            0,
        )  # the first number of this process, if none was known; the last before this connection
        if not known:
            assert not self.stored, "it was stored, and nothing is written"
            self.first, self.heard, self.untold, self.late = None, {}, {}, set()
            return
        life = self.last[0] if self.last else 0
        self.restored |= {each for each in self.heard if each > life}
        self.heard = {each: number for each, number in self.heard.items() if each < life} | {life: known[7].sequence}

    def kill(self) -> None:
        self.waiting.clear()
        self.delayed.clear()
        self.connected = self.ended = False
        self.start()

    def cut(self) -> None:
        """The connection ends. What ZeroMQ has read stays."""
        self.ended = self.ended or self.connected
        self.connected = False
        if not self.world.bridge:
            self.delayed.clear()

    def hear(self, number: Number, frames: list[bytes]) -> None:
        chance = self.world.chance
        if not self.connected or chance.random() < 0.08:
            return
        copies = 2 if self.world.hiccups and chance.random() < 0.06 else 1
        for _ in range(copies):
            if self.world.hiccups and chance.random() < 0.06:
                self.delayed.append((number, frames))
            else:
                self.waiting.append((number, frames))
        if self.delayed and chance.random() < 0.3:
            self.waiting.append(self.delayed.pop(chance.randrange(len(self.delayed))))

    def read(self) -> None:
        """Some of what is there, as the socket's reader does it: messages first, then what is said of connections."""
        some = [self.waiting.popleft() for _ in range(min(self.world.chance.randrange(12), len(self.waiting)))]
        ended, sure = self.ended, self.session.sure
        self.session.read(ended=ended, empty=not some and not self.waiting)
        if ended or sure is not self.session.sure:
            self.since = self.last or self.since
        self.ended = False
        for number, frames in some:
            self._know(number)
            now = self.world.passes()
            self.session.receive(Message(frames), now)
            for at in (self.session._positions.get(7), self.session._seen.get(7)):
                if at is not None:
                    self.life_of.setdefault(at, number[0])
        if self.session.deadline() is not None:
            self.session.tick(self.world.now)
        self.frames += self.session.frames()  # type: ignore[arg-type]

    def _know(self, number: Number) -> None:
        """What can be known from here on: see what the rule says that it cannot see."""
        life, sequence = number
        ordered = self.session.sure and not self.world.bridge
        if self.last is None:
            self.first = self.joined = number
        elif life > self.last[0] and sequence > (self.last[1] if ordered else self.came):
            self.untold[life] = max(self.last[1], self.untold.get(life, 0))
        elif life in self.restored:
            self.excused += sequence  # killed before the position was of this start
        elif number <= self.last:
            self.late.add(number)
            if not ordered or number < max(self.joined, self.since):
                self.excused += sequence + self.last[1]
        self.restored.discard(life)
        self.came = sequence
        self.last = max(number, self.last or number)
        self.heard[life] = max(sequence, self.heard.get(life, 0))

    def store(self) -> None:
        """Kafka stores some of what it was sent: frames in any order, of each the beginning."""
        chance = self.world.chance
        left = []
        for frame in self.frames:
            whole = chance.random() < 0.6
            done = len(frame.items) if whole else chance.randrange(len(frame.items))
            for at in range(done):
                self._on_topic(frame.items[at:], frame.received_ms)
            if whole:
                self.session.stored(frame.ticket, done, True)
            else:
                left.append(frame)
        self.frames = left

    def _on_topic(self, items: Any, received: int) -> None:
        item = items[0]
        if isinstance(item, DeviceMessage):
            assert item.meta is not None
            about = {"device": 7, "sequence": item.meta.sequence, "consumer": self.name}
            self.world.topic.append((b"", orjson.dumps(about), b"", received))
            self.stored[truth(item)] = received
            return
        assert isinstance(item, Gap)
        marker = {"consumer": self.name, "device": 7, "from": item.start, "to": item.end}
        self.world.topic.append((GAP_TYPE.encode(), b"", orjson.dumps(marker), received))
        if item.before_us:
            self.named_before_us = item.end
        elif item.before is None:  # found at a start: of one of the device's starts until then
            numbers = range(item.start, item.end)
            self.marked_before.update((life, number) for life in range(1, self.world.life + 1) for number in numbers)
        else:
            life, _ = truth(next(each for each in items if isinstance(each, DeviceMessage)))
            self.marked.update((life, number) for number in range(item.start, item.end))

    def _hears_first(self) -> None:
        """Kafka takes the position at once, or later than a kill."""
        if self.world.chance.random() < 0.5:
            self.commit()

    def commit(self) -> None:
        self.committed = encode({"one": self.session.positions()})
        self.session.written()

    def judge(self) -> None:
        """Nothing is lost in silence, and nothing that came is called lost but what may be."""
        for life, highest in self.heard.items():
            lowest = 1 if self.first is None or life > self.first[0] else self.first[1]
            lost = {(life, number) for number in range(max(lowest, self.untold.get(life, 0) + 1), highest + 1)}
            silent = lost - self.stored.keys() - self.marked - self.marked_before
            assert not silent, f"lost without a marker: {sorted(silent)}"
        if self.first is not None and self.first[1] > 1:
            assert self.named_before_us in (self.first[1], -1)
        false = (self.marked & self.stored.keys()) - self.late
        assert len(false) <= self.excused, f"not lost, and in a marker: {sorted(false)}"


def truth(item: DeviceMessage) -> Number:
    life, number = item.frames[2].split(b"/")
    return int(life), int(number)


class World:
    """A device, its two consumers, and time."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now = 1_700_000_000_000
        self.hiccups = chance.random() < 0.5  # messages come late and twice, by the same connection
        self.bridge = self.hiccups and chance.random() < 0.5  # … or by a later one
        self.wrong = chance.choice((0.0, 0.01, 0.3, 1.0))
        self.topic: list[tuple[bytes, bytes, bytes, int]] = []
        self.life, self.sequence = 1, chance.choice((0, 0, 3, 400))
        self.consumers = [Consumer(self, name) for name in ("us", "other")]

    def passes(self) -> int:
        self.now += self.chance.choice((0, 0, 1, 2, 20, 300))
        return self.now

    def publish(self) -> None:
        """A few messages, with the clocks of their producers."""
        chance = self.chance
        if chance.random() < 0.1:
            self.sequence += chance.choice((2, 30))  # to nobody
        for _ in range(chance.randrange(1, 9)):
            self.sequence += 1
            beats = chance.random() < 0.1
            created = self.now + (chance.choice(WRONG) if not beats and chance.random() < self.wrong else 0)
            name, topic = (HEARTBEAT, b"tcp://a:1") if beats else (chance.choice((b"a-b", b"c-d")), b"logs")
            meta = encode_meta(Meta(0, 7, created, self.sequence))
            frames = [name, topic, b"%d/%d" % (self.life, self.sequence), meta]
            for each in self.consumers:
                each.hear((self.life, self.sequence), frames)

    def restart(self) -> None:
        self.life, self.sequence = self.life + 1, 0
        for each in self.consumers:
            each.cut()
            each.delayed.clear()

    def run(self) -> None:
        chance = self.chance
        for _ in range(STEPS):
            step = chance.random()
            each = chance.choice(self.consumers)
            if step < 0.35:
                self.publish()
            elif step < 0.55:
                each.read()
            elif step < 0.7:
                each.store()
            elif step < 0.78:
                each.commit()
            elif step < 0.92:
                each.connected = True
            elif step < 0.95:
                each.cut()
            elif step < 0.975:
                each.kill()
            else:
                self.restart()
        for each in self.consumers:
            for _ in range(200):
                each.read()
                each.commit()
            for _ in range(100):
                each.store()
            each.judge()


def history(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except AssertionError as error:
        error.add_note(f"history {seed}")
        raise
    return world


def test_no_loss_is_silent_and_none_is_invented() -> None:
    for seed in range(HISTORIES):
        history(seed)


@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ((Numbers, "connection"), lambda self, *, sure: None),
        ((_Device, "is_duplicate"), lambda self, told: told.sequence in {seen for seen, _ in self._seen.values()}),
        ((StoredNumbers, "add"), lambda *record: None),
        ((ConsumerSession, "_unwritten"), property(lambda self: False, lambda self, unwritten: None)),
    ],
    ids=[
        "connections do not matter",
        "a number alone makes a duplicate",
        "the topics are not looked at",
        "what was heard first is handed out before that is written down",
    ],
)
def test_a_rule_that_is_taken_out_breaks_the_promise(
    rule: tuple[type, str], instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*rule, instead, raising=False)
    with pytest.raises(AssertionError, match=r"lost without a marker|not lost, and in a marker|nothing is written"):
        deque(map(history, range(1000)), maxlen=0)


def test_an_endpoint_that_moves_between_two_devices_hides_no_loss() -> None:
    """Devices of one number, one connection after the other, each long enough for a heartbeat: it is said, and whatever a device
    has published between two of its heartbeats came, or is in a marker that was made between them.
    """
    for seed in range(sized(40, 300, 10_000)):
        chance = random.Random(seed)
        numbers = Numbers()
        at = [chance.randrange(3000) for _ in range(2)]
        since: list[set[int]] = [set(), set()]  # what came or was marked since each one's last heartbeat
        beat: list[int | None] = [None, None]
        notices = []
        for visit in range(10):
            device = visit % 2
            numbers.connection(sure=True)
            at[device] += chance.choice((1, 3, 200, 3000))
            at[1 - device] += chance.choice((1, 3, 200, 3000))
            beats = {chance.randrange(8), chance.randrange(8)}
            for each in range(8):
                at[device] += 1 if chance.random() < 0.8 else chance.randrange(2, 9)
                address = b"tcp://%d" % device if each in beats else b""
                found = numbers.received(
                    7, MessageFacts(at[device], visit * 100 + each, hash((device, at[device])), address)
                )
                notices.append(found.notice)
                since[device].add(at[device])
                for gap in found.gaps:
                    for told in since:
                        told.update(range(gap.start, gap.end))
                last = beat[device]
                if address:
                    if last is not None:
                        assert set(range(last + 1, at[device] + 1)) <= since[device], f"seed {seed}"
                    beat[device] = at[device]
                    since[device].clear()
        assert Notice.DOUBLED in notices
