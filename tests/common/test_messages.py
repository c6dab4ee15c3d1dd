"""A socket of whole messages with one session for all clients: what is answered, what stops, what is not lost at the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_common.connection import messages
from headrace_common.connection.driver import READ_AHEAD
from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.fairness.scheduler import ARRIVAL_TIME, TIME_SLICE, Scheduler
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Frame, Message, MessageSession, Peer, Reply, Status, Ticket
from headrace_common.session.ledger import Ledger
from typing_extensions import override

from tests.common.kafkaless import FakeFrame, FakePublisher, receiver_state, until
from tests.common.slowly import SlowLoop

LOOP = SlowLoop


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is never taken for one that stores nothing."""
    monkeypatch.setattr(messages, "STALL", 3600.0)


class Echo(MessageSession):
    """Acknowledges each message to its route. `slow`: a message is looked at in the next call. `gathers`: frames by time."""

    def __init__(self, *, slow: bool = False, gathers: bool = False) -> None:
        self._slow, self._gathers = slow, gathers
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
        if not self._gathers and not (self._slow and message.parts):
            self._hand_out()

    def _hand_out(self) -> None:
        for message in self._held:
            self.seen.append(message.parts[0])
            self._ready.append(FakeFrame([], ticket=self._pending.add(message.route), size=message.size))
        self._held.clear()

    @override
    def tick(self, now: float) -> None:
        self._hand_out()

    @override
    def deadline(self) -> float | None:
        return 0.0 if self._gathers and self._held else None

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
        return (self.budget.used, self.receiver.admitted, self.receiver.connections) == (0, 0, set())


def bench(**session: Any) -> Bench:
    return Bench(Echo(**session))


async def test_told_to_stop_it_answers_what_is_pending_and_takes_no_more() -> None:
    made = bench()
    made.say(b"one")
    made.connection.stop()
    assert not made.socket.reading
    made.say(b"too late")
    assert not made.connection.closed.is_set()
    made.store()
    assert made.socket.sent == [b"r"]
    assert made.connection.closed.is_set()
    assert made.given_back()


@pytest.mark.parametrize("together", [1, 7, 20])
async def test_what_was_read_is_not_lost_when_it_is_told_to_stop(together: int) -> None:
    """Who pushes messages does not send them again."""
    made = bench(slow=True)
    messages = [Message((b"%d" % number,), b"r") for number in range(20)]
    for start in range(0, 20, together):
        made.connection.received(messages[start : start + together])
    assert made.budget.used == sum(message.size for message in messages)
    assert len(made.session.seen) < 20
    made.connection.stop()
    await until(lambda: len(made.session.seen) == 20)
    while made.publisher.submitted:
        made.store()
    await until(made.connection.closed.is_set)
    assert made.session.seen == [b"%d" % number for number in range(20)]
    assert made.given_back()


async def test_what_a_session_has_gathered_is_handed_out_at_the_end() -> None:
    made = bench(gathers=True)
    made.say(b"one")
    made.connection.stop()
    made.store()
    assert made.connection.closed.is_set()
    assert made.given_back()


async def test_a_session_that_is_due_at_once_hands_out_in_the_next_turn() -> None:
    made = bench(gathers=True)
    for number in range(5):
        made.say(b"%d" % number)
    assert not made.publisher.submitted
    await until(lambda: len(made.publisher.submitted) == 5)


@pytest.mark.parametrize("size", [READ_AHEAD, READ_AHEAD // 2])
async def test_while_it_looks_at_messages_only_so_many_are_read(size: int) -> None:
    made = bench(slow=True)
    made.say(b"first")
    made.say(b"x" * size)
    assert made.socket.reading is (size < READ_AHEAD)
    await until(lambda: len(made.session.seen) == 2)
    assert made.socket.reading


async def test_a_bug_in_its_session_closes_it() -> None:
    made = bench()
    made.say(b"one")
    made.session.fails = True
    made.say(b"two")
    await asyncio.wait_for(made.connection.closed.wait(), 5)
    assert not made.socket.reading
    made.store()
    assert made.given_back()


async def test_cut_it_says_how_much_was_never_answered() -> None:
    made = bench()
    made.say(b"one")
    made.say(b"two")
    assert made.connection.cut() == 2
    while made.publisher.submitted:
        made.store()
    assert made.socket.sent == []
    assert made.given_back()


async def test_one_turn_of_the_loop_parses_for_a_bounded_time() -> None:
    """A thousand messages are there at once, and each takes a millisecond."""
    now = 1000.0

    class Slow(Echo):
        @override
        def receive(self, message: Message, now_ms: int) -> None:
            nonlocal now
            now += 0.001
            super().receive(message, now_ms)

    session = Slow()
    made = Bench(session)
    made.connection._loop = SimpleNamespace(time=lambda: now)  # type: ignore[assignment]
    made.receiver.scheduler._clock = lambda: now
    said = [b"%d" % number for number in range(1000)]
    for text in said:
        made.say(text)
    at_once = len(session.seen)
    assert 0 < at_once <= ARRIVAL_TIME / 0.001 + 1
    turns = 0
    while len(session.seen) < len(said):
        before = len(session.seen)
        await asyncio.sleep(0)
        assert len(session.seen) - before <= TIME_SLICE / 0.001 + 1
        turns += 1
        assert turns < 100 * len(said)
    assert session.seen == said


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
    made.store()
    assert made.socket.reading


async def test_a_socket_is_not_read_while_messages_of_many_clients_wait_for_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Bench(Echo(), most=READ_AHEAD)
    made.say(b"first")
    monkeypatch.setattr(made.connection, "arrives", lambda now: False)
    made.say(b"second")
    assert not made.socket.reading
    await until(lambda: made.socket.reading)
    assert made.session.seen == [b"first", b"second"]


async def test_a_socket_is_read_on_where_kafka_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that hear no answers would drop what is not read."""
    monkeypatch.setattr(messages, "STALL", 0.01)
    made = Bench(Echo(), most=1)
    made.say(b"first")
    await until(lambda: made.socket.reading)
    made.store()
    made.say(b"second")
    await until(lambda: made.socket.reading)
    made.say(b"third")
    assert made.socket.reading
    made.connection.stop()
    assert not made.socket.reading


async def test_a_socket_whose_clients_leave_is_read_whatever_waits() -> None:
    made = Bench(Echo(), most=1)
    made.say(b"first")
    assert not made.socket.reading  # after a rest, too
    made.store()
    made.say(b"second")
    assert not made.socket.reading
    made.connection.read_all()
    assert made.socket.reading
    made.say(b"third")
    assert made.socket.reading
