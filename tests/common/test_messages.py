"""A socket of whole messages with one session for all clients: what is answered, what stops, what is not lost at the end."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from headrace_common.connection import messages
from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.fairness.scheduler import ARRIVAL_TIME, TIME_SLICE, Scheduler
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Frame, Message, MessageSession, Peer, Reply, Ticket
from typing_extensions import override

from tests.common.kafkaless import FakeFrame, FakePublisher, receiver_state
from tests.common.slowly import SlowLoop, slow_loop
from tests.contract.waiting import until

LOOP = SlowLoop


class Echo(MessageSession):
    """Acknowledges each message. `cost`: seconds that looking at one takes."""

    def __init__(self, cost: float = 0.0) -> None:
        self._cost = cost
        self.seen: list[bytes] = []
        self._ready: list[Frame] = []
        self._replies: deque[Reply] = deque()

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        slow_loop().work(self._cost)
        self._ready.append(FakeFrame([], len(self.seen), size=message.size))
        self.seen.append(message.parts[0])

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._replies.append(Reply(self.seen[ticket], [b"202"]))

    @override
    def outgoing(self) -> Reply | None:
        return self._replies.popleft() if self._replies else None


class Bench(MessageSocket):
    """A connection over this socket."""

    def __init__(self, session: Echo, most: int = 1 << 40) -> None:
        self.sent: list[bytes] = []
        self.reading = True
        self.publisher, self.session = FakePublisher(), session
        self.receiver = receiver_state(self.publisher, LimitSettings(), Scheduler(cpu=slow_loop().time))
        self.connection = MessageConnection(self.receiver, Peer("socket", 0, "socket"), session, self, most)

    @override
    def send(self, reply: Reply) -> None:
        self.sent.append(reply.route)

    @override
    def read(self, allowed: bool) -> None:
        self.reading = allowed

    def say(self, *texts: bytes) -> None:
        self.connection.received([Message((text,)) for text in texts])

    def store(self) -> None:
        frame, listener = self.publisher.submitted.pop(0)
        listener.stored(frame.ticket, 1, True)


@pytest.mark.parametrize(("cost", "together", "behind"), [(0.0, 1, False), (0.0, 20, False), (0.001, 1, True)])
async def test_a_stop_loses_nothing_that_was_read(cost: float, together: int, behind: bool) -> None:
    """Who pushes messages does not send them again."""
    made, texts = Bench(Echo(cost)), [b"%d" % number for number in range(20)]
    for start in range(0, 20, together):
        made.say(*texts[start : start + together])
    assert made.receiver.budget.used == sum(map(len, texts))
    assert (len(made.session.seen) < 20) is behind
    made.connection.stop()
    assert not made.reading
    made.say(b"too late")
    await until(lambda: len(made.session.seen) == 20, "all are seen")
    assert not made.connection.closed.is_set()
    while made.publisher.submitted:
        made.store()
    await until(made.connection.closed.is_set, "it is closed")
    assert made.session.seen == made.sent == texts
    assert (made.receiver.budget.used, made.receiver.connections) == (0, set())


async def test_each_sender_of_a_socket_is_a_source() -> None:
    made = Bench(Echo())
    made.connection.received([Message((b"12345",), address=name) for name in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "")])
    made.store()
    sources = made.receiver.metrics.sources
    sources._clock = asyncio.get_running_loop().time  # here it is no monotonic clock of the process
    events, sizes = sources.collect()
    told = {sample.labels["source"]: sample.value for sample in events.samples}
    assert told == {"10.0.0.1": 2, "10.0.0.2": 1, "socket": 1}
    assert [sample.value for sample in sizes.samples] == [10, 5, 5]


async def test_one_turn_of_the_loop_parses_for_a_bounded_time() -> None:
    """A thousand messages are there at once, and each takes a millisecond."""
    made, count = Bench(Echo(0.001)), 1000
    for number in range(count):
        made.say(b"%d" % number)
    seen = [len(made.session.seen)]
    assert 0 < seen[0] <= ARRIVAL_TIME / 0.001 + 1
    while seen[-1] < count:
        await asyncio.sleep(0)
        seen.append(len(made.session.seen))
        assert seen[-1] - seen[-2] <= TIME_SLICE / 0.001 + 1
        assert len(seen) < 100 * count
    assert made.session.seen == [b"%d" % number for number in range(count)]


async def test_a_socket_is_not_read_while_much_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is first come, first served, and a socket takes its clients in turn. Where Kafka stores nothing they would
    drop what is not read.
    """
    monkeypatch.setattr(messages, "STALL", 60.0)
    made = Bench(Echo(), most=15)
    for reads in (True, True, False, False):  # the last was read before
        made.say(b"12345")
        assert made.reading is reads
    for reads in (False, True):
        made.store()
        assert made.reading is reads
    made.say(b"12345")
    await asyncio.sleep(59)
    assert not made.reading
    await asyncio.sleep(2)
    assert made.reading
    while made.publisher.submitted:
        made.store()
    for reads in (True, True, False):
        made.say(b"12345")
        assert made.reading is reads
    made.connection.read_all()  # its clients leave
    made.say(b"12345")
    assert made.reading
