"""Questions of a session, progress, and a session that fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from headrace_common.connection.tcp import MUCH, TcpConnection
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy, ProtocolError
from headrace_common.session.interface import Backend, ByteSession, Caller, Frame, Status, Ticket
from typing_extensions import override

from tests.common.kafkaless import FakeFrame
from tests.common.slowly import SlowLoop
from tests.common.test_connection import Bench

LOOP = SlowLoop


@dataclass(frozen=True)
class Asked:
    ticket: Ticket


class Scripted(ByteSession):
    """Hands out what the test puts in."""

    def __init__(self, frames: int = 0, *asks: Asked) -> None:
        self._ready: list[Frame] = [FakeFrame([], ticket) for ticket in range(frames)]
        self.asks = deque(asks)
        self.waiting = self.partial = 0

    @override
    def questions(self) -> Iterator[Asked]:
        while self.asks:
            yield self.asks.popleft()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Does nothing."""

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        """Does nothing."""

    @override
    def status(self) -> Status:
        return Status(partial_bytes=self.partial, waiting_bytes=self.waiting)


class Remembers(Backend):
    def __init__(self) -> None:
        self.asked: list[Ticket] = []

    @override
    def ask(self, question: Any, caller: Caller) -> None:
        self.asked.append(question.ticket)


async def test_requests_that_wait_are_progress() -> None:
    """Of a client on a slow link, which always has half a frame behind them. While Kafka is away no request leads to a frame or a
    question.
    """
    session, found = Scripted(), []
    driver, _ = await Bench(Remembers()).connect(session)
    session.partial = 10
    for now, session.waiting in enumerate((0, 300, 600, 600, 300, 400)):
        driver.life.last_byte = now
        driver.submit(now)
        found.append(driver.life.frame_began)
    assert found == [0, 1, 2, 2, 2, 5]


async def test_answers_that_come_at_once_are_not_nested() -> None:
    """However many: each may lead to the next question, and all of them may be there before."""
    session = Scripted()

    class Answers(Remembers):
        @override
        def ask(self, question: Any, caller: Caller) -> None:
            super().ask(question, caller)
            if question.ticket < 2000:
                session.asks.append(Asked(question.ticket + 500))
            caller.answered(question.ticket, "yes")
            assert driver.outstanding  # the conversation does not end here, though it may be ending

    made = Bench(backend := Answers())
    driver, _ = await made.connect(session)
    session.asks.extend(map(Asked, range(500)))
    driver.data_received(b"x")
    assert backend.asked == list(range(2500))
    assert (driver.outstanding, made.budget.used) == (0, 0)
    assert not driver.is_broken


async def test_nothing_ends_between_a_frame_and_a_question_behind_it() -> None:
    session, outstanding, made = Scripted(1), [], Bench(backend := Remembers())
    driver, transport = await made.connect(session)
    backend.ask = lambda question, caller: outstanding.append(driver.outstanding)  # type: ignore[method-assign]
    driver.data_received(b"x")
    driver.eof_received()
    session.asks.append(Asked(0))
    made.store()
    await made.rest()
    assert outstanding == [2]
    assert (driver.outstanding, len(driver.under_way)) == (1, 0)
    assert not transport.closing


async def test_who_has_ended_asks_nothing_more_whatever_it_is_answered() -> None:
    """A service answers what is open when it hears of the end, and the answer makes room for another question."""
    session = Scripted(0, Asked(7))

    class Answers(Remembers):
        @override
        def ended(self, caller: Caller) -> None:
            session.asks.append(Asked(8))
            caller.answered(7, "lost")

    made = Bench(backend := Answers())
    driver, transport = await made.connect(session)
    driver.data_received(b"x")
    transport.abort()
    await made.rest()
    assert backend.asked == [7]
    assert made.all_given_back()


LATE = DeliveryError("late", DeliveryPolicy.RETRY)
CALLS: dict[str, Callable[[TcpConnection], object]] = {
    "receive": lambda driver: driver.data_received(b"y"),
    "frames": lambda driver: driver.data_received(b"y"),
    "stored": lambda driver: driver.stored(0, 1, True),
    "abandon": lambda driver: driver.abandoned(0, LATE),
    "answered": lambda driver: driver.answered(0, None),
    "tick": lambda driver: driver.tick(1.0),
}


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
@pytest.mark.parametrize(
    ("method", "error"), [*((name, RuntimeError("a bug")) for name in CALLS), ("answered", ProtocolError("no such"))]
)
async def test_a_session_that_fails_ends_its_connection_alone(
    monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, gone: bool
) -> None:
    """Raised into a pump a bug would have ended that, and with it everybody's frames. All that it held is given back, also once
    its socket is gone.
    """
    made, session = Bench(Remembers()), Scripted(1, Asked(0))
    driver, transport = await made.connect(session)
    driver.data_received(b"x")
    if gone:
        driver.data_received(bytes(MUCH))
        transport.abort()

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(session, method, fails)
    if method in ("stored", "abandon"):
        made.publisher.submitted.clear()
    CALLS[method](driver)
    await made.rest()
    if method != "answered":
        driver.answered(0, None)
    await made.stored()
    assert transport.ended or transport.aborted
    assert gone or made.closed("internal") is isinstance(error, RuntimeError), "an alert is about it"
    await made.advance(10)
    assert made.all_given_back()


class Leaving(ByteSession):
    """Answers what it hears, and has then said all."""

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        self.heard = data

    @override
    def outgoing(self) -> bytes:
        said, self.heard = self.heard, b""
        self.over = bool(said)
        return said

    heard = b""


async def test_a_session_that_has_said_all_ends_its_conversation() -> None:
    connection, transport = await Bench().connect(Leaving())
    connection.data_received(b"goodbye")
    assert (transport.writes, transport.ended, transport.lost) == ([b"goodbye"], True, False)
    connection.data_received(b"more")
    assert transport.writes == [b"goodbye"]
