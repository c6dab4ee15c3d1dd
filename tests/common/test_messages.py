"""A socket of whole messages with one session for all clients: what is answered, what stops, what is not lost at the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

import pytest
from headrace_common.connection import messages
from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.fairness.scheduler import ARRIVAL_TIME, TIME_SLICE, Scheduler
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Frame, Message, MessageSession, Peer, Reply, Status, Ticket
from headrace_common.session.ledger import Ledger
from typing_extensions import override

from tests.common.kafkaless import FakeFrame, FakePublisher, receiver_state
from tests.common.slowly import SlowLoop, slow_loop
from tests.contract.waiting import until

LOOP = SlowLoop


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is never taken for one that stores nothing."""
    monkeypatch.setattr(messages, "STALL", 3600.0)


class Echo(MessageSession):
    """Acknowledges each message to its route. `slow`: a message is looked at in the next call."""

    def __init__(self, *, slow: bool = False) -> None:
        self._slow = slow
        self.seen: list[bytes] = []
        self._held: list[Message] = []
        self._ready: deque[Frame] = deque()
        self._pending: Ledger[bytes] = Ledger()
        self.fails = False

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        if self.fails:
            raise RuntimeError("a bug")
        if message.parts:
            self._held.append(message)
        if self._slow and message.parts:
            return
        for message in self._held:
            self.seen.append(message.parts[0])
            self._ready.append(FakeFrame([], ticket=self._pending.add(message.route), size=message.size))
        self._held.clear()

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._pending.stored(ticket, stored, whole)

    @override
    def abandon(self, ticket: Ticket) -> None:
        self._pending.stored(ticket, 0, True).note = b""

    @override
    def outgoing(self) -> Reply | None:
        while (stored := self._pending.pop_whole()) is not None:
            if stored.note:
                return Reply(stored.note, [b"202"])
        return None

    @override
    def status(self) -> Status:
        partial_bytes = sum(message.size for message in self._held)
        return Status(partial_bytes=partial_bytes, busy=self._slow and bool(self._held))


class Socket(MessageSocket):
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reading = True

    @override
    def send(self, reply: Reply) -> None:
        self.sent.append(reply.route)

    @override
    def read(self, allowed: bool) -> None:
        self.reading = allowed


class Bench:
    def __init__(self, session: Echo, **connection: float) -> None:
        limits = LimitSettings()
        self.publisher, self.socket, self.session = FakePublisher(), Socket(), session
        scheduler = Scheduler(cpu=asyncio.get_running_loop().time)
        self.receiver = receiver_state(self.publisher, limits, scheduler)
        self.budget = self.receiver.budget
        self.connection = MessageConnection(
            self.receiver, Peer("socket", 0, "socket"), session, self.socket, **connection
        )

    def say(self, text: bytes, route: bytes = b"r") -> None:
        self.connection.received([Message((text,), route)])

    def store(self) -> None:
        frame, listener = self.publisher.submitted.pop(0)
        listener.stored(frame.ticket, 1, True)

    def given_back(self) -> bool:
        return (self.budget.used, self.receiver.connections) == (0, set())


async def test_told_to_stop_it_answers_what_is_pending_and_takes_no_more() -> None:
    made = Bench(Echo())
    made.say(b"one")
    made.connection.stop()
    assert not made.socket.reading
    made.say(b"too late")
    assert not made.connection.closed.is_set()
    made.store()
    assert made.socket.sent == [b"r"]
    assert made.connection.closed.is_set()
    assert made.given_back()


@pytest.mark.parametrize("together", [1, 20])
async def test_what_was_read_is_not_lost_when_it_is_told_to_stop(together: int) -> None:
    """Who pushes messages does not send them again."""
    made = Bench(Echo(slow=True))
    messages = [Message((b"%d" % number,), b"r") for number in range(20)]
    for start in range(0, 20, together):
        made.connection.received(messages[start : start + together])
    assert made.budget.used == sum(message.size for message in messages)
    assert len(made.session.seen) < 20
    made.connection.stop()
    await until(lambda: len(made.session.seen) == 20, "all are seen")
    while made.publisher.submitted:
        made.store()
    await until(made.connection.closed.is_set, "it is closed")
    assert made.session.seen == [b"%d" % number for number in range(20)]
    assert made.given_back()


async def test_a_bug_in_its_session_closes_it() -> None:
    made = Bench(Echo())
    made.say(b"one")
    made.session.fails = True
    made.say(b"two")
    await asyncio.wait_for(made.connection.closed.wait(), 5)
    assert not made.socket.reading
    made.store()
    assert made.given_back()


async def test_cut_it_says_how_much_was_never_answered() -> None:
    made = Bench(Echo())
    made.say(b"one")
    made.say(b"two")
    assert made.connection.cut() == 2
    while made.publisher.submitted:
        made.store()
    assert made.socket.sent == []
    assert made.given_back()


async def test_one_turn_of_the_loop_parses_for_a_bounded_time() -> None:
    """A thousand messages are there at once, and each takes a millisecond."""

    class Slow(Echo):
        @override
        def receive(self, message: Message, now_ms: int) -> None:
            slow_loop().work(0.001)
            super().receive(message, now_ms)

    made, count = Bench(Slow()), 1000
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


async def test_a_socket_is_not_read_while_much_waits_that_kafka_is_storing() -> None:
    """What was read is first come, first served. The socket takes its clients in turn."""
    size = Message((b"12345",), b"r").size
    made = Bench(Echo(), most=3 * size)
    made.say(b"first")
    made.store()
    for _ in range(2):
        made.say(b"12345")
        assert made.socket.reading
    made.say(b"12345")
    assert not made.socket.reading
    made.say(b"12345")  # it was read before
    made.store()
    assert not made.socket.reading
    made.connection.read_all()  # its clients leave
    made.say(b"12345")
    assert made.socket.reading


async def test_a_socket_is_read_on_where_kafka_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that hear no answers would drop what is not read."""
    monkeypatch.setattr(messages, "STALL", 0.01)
    made = Bench(Echo(), most=1)
    made.say(b"first")
    await until(lambda: made.socket.reading, "it is read")
    made.store()
    made.say(b"second")
    await until(lambda: made.socket.reading, "it is read")
    made.say(b"third")
    assert made.socket.reading
    made.connection.stop()
    assert not made.socket.reading
