"""A driver with no transport to speak of: questions, unasked words, frames by time, and a session that fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from headrace_common.connection.driver import FAULT, Driver, End
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy, ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Backend, ByteSession, Caller, Frame, Peer, Question, Status, Ticket
from typing_extensions import override

from tests.common.kafkaless import FakeFrame, FakePublisher, receiver_state

PEER = Peer("192.0.2.7", 1, "192.0.2.7")


@dataclass(frozen=True)
class Asked:
    ticket: Ticket
    size: int = 300


class Scripted(ByteSession):
    """Hands out what the test puts in; `fails`: the method of that name raises it."""

    def __init__(self) -> None:
        self.ready: deque[Frame] = deque()
        self.asks: deque[Question] = deque()
        self.heard: list[Any] = []
        self.waiting = self.partial = 0
        self.fails: dict[str, Exception] = {}

    def _do(self, name: str, *said: Any) -> None:
        if name in self.fails:
            raise self.fails[name]
        self.heard.append((name, *said))

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        self._do("receive", data)

    @override
    def frames(self) -> Iterator[Frame]:
        while self.ready:
            yield self.ready.popleft()

    @override
    def questions(self) -> Iterator[Question]:
        while self.asks:
            yield self.asks.popleft()

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self._do("answered", ticket, answer)

    @override
    def tick(self, now: float) -> None:
        self._do("tick")

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._do("stored", ticket, stored, whole)

    @override
    def abandon(self, ticket: Ticket) -> None:
        self._do("abandon", ticket)

    @override
    def status(self) -> Status:
        return Status(partial_bytes=self.partial, waiting_bytes=self.waiting)


class Recorder(Driver[ByteSession]):
    unseen = b""

    def __init__(self, receiver: ReceiverState, session: ByteSession) -> None:
        super().__init__(receiver, PEER, session, ByteSession())
        self.said: list[Any] = []

    @override
    def pace(self) -> None:
        self.said.append("pace")

    @override
    def digest(self) -> None:
        self.said.append("digest")

    @override
    def speak(self) -> None:
        self.said.append("speak")

    @override
    def close(self, why: str, end: End = End.SETTLED) -> None:
        self.said.append(("close", why, end))

    @override
    def due(self) -> float:
        return inf

    @override
    def expire(self, now: float) -> None:
        """Does nothing."""

    @override
    def stop(self) -> None:
        """Does nothing."""

    @override
    def cut(self) -> int:
        return 0


class Remembers(Backend):
    def __init__(self) -> None:
        self.asked: list[tuple[Question, Caller]] = []
        self.gone: list[Caller] = []

    def ask(self, question: Question, caller: Caller) -> None:
        self.asked.append((question, caller))

    def ended(self, caller: Caller) -> None:
        self.gone.append(caller)


class Bench:
    def __init__(self) -> None:
        limits = LimitSettings()
        self.publisher, self.backend = FakePublisher(), Remembers()
        receiver = receiver_state(self.publisher, limits, backend=self.backend)
        self.budget, self.metrics = receiver.budget, receiver.metrics
        self.session = Scripted()
        self.driver = Recorder(receiver, self.session)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("name", "given", "began"),
    [
        # Else a conversation of questions alone is one long frame, which LIMITS__FRAME_TIME ends. One that holds nothing is
        # no request: a slow reader of what it asked for earlier has not sent the rest of a frame.
        ("asks", ([Asked(0)], [Asked(1)], [Asked(2, size=0)], [], []), [0, 1, 2, 2, 2]),
        # While Kafka is away no request leads to a frame or a question.
        ("waiting", (0, 300, 600, 600, 300, 400), [0, 1, 2, 2, 2, 5]),
    ],
)
async def test_questions_and_requests_that_wait_are_progress(
    bench: Bench, name: str, given: tuple[Any, ...], began: list[int]
) -> None:
    """Of a client on a slow link, which always has half a frame behind them."""
    bench.session.partial, found = 10, []
    for now, each in enumerate(given):
        setattr(bench.session, name, deque(each) if name == "asks" else each)
        bench.driver.life.last_byte = now
        bench.driver.submit(now)
        found.append(bench.driver.life.frame_began)
    assert found == began


async def test_answers_that_come_at_once_are_not_nested(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: each may lead to the next question, and all of them may be there before."""
    asked: list[int] = []

    def answers(question: Any, caller: Caller) -> None:
        asked.append(question.ticket)
        if question.ticket < 2000:
            bench.session.asks.append(Asked(question.ticket + 500))
        caller.answered(question.ticket, "yes")
        assert bench.driver.outstanding  # the conversation does not end here, though it may be ending

    monkeypatch.setattr(bench.backend, "ask", answers)
    bench.session.asks += [Asked(ticket) for ticket in range(500)]
    bench.driver.submit(1.0)
    assert asked == list(range(2500))
    assert (bench.driver.outstanding, bench.budget.used) == (0, 0)
    assert not bench.driver.is_broken


async def test_a_question_may_follow_a_frame_and_nothing_ends_between_them(bench: Bench) -> None:
    bench.session.ready.append(FakeFrame([], ticket=0))
    bench.driver.submit(1.0)
    bench.session.asks.append(Asked(0))
    bench.driver.stored(0, 1, False)
    assert not bench.backend.asked
    outstanding = []
    bench.backend.ask = lambda question, caller: outstanding.append(bench.driver.outstanding)  # type: ignore[method-assign]
    bench.driver.stored(0, 2, True)
    assert outstanding == [2]
    assert (bench.driver.outstanding, len(bench.driver.under_way)) == (1, 0)
    assert bench.driver.said[-1] == "speak"


class Keyed(FakeFrame):
    ordering_key = b"checkout-production"


async def test_a_frame_goes_to_the_partition_of_its_connection_or_of_its_key(bench: Bench) -> None:
    bench.publisher.keyed[Keyed.ordering_key] = FakePublisher()
    bench.session.ready += [FakeFrame([], ticket=0), Keyed([], ticket=1)]
    bench.driver.submit(1.0)
    assert [frame.ticket for frame, _ in bench.publisher.submitted] == [0]
    assert [frame.ticket for frame, _ in bench.publisher.keyed[Keyed.ordering_key].submitted] == [1]


async def test_who_has_ended_asks_nothing_more_whatever_it_is_answered(bench: Bench) -> None:
    """A service answers what is open when it hears of the end, and the answer makes room for another question."""

    class Answers(Remembers):
        @override
        def ended(self, caller: Caller) -> None:
            super().ended(caller)
            bench.session.asks.append(Asked(8))
            caller.answered(7, "lost")

    bench.driver._receiver.backend = backend = Answers()
    bench.session.asks.append(Asked(7))
    bench.driver.submit(0.0)
    bench.driver.leave("peer")
    assert [question.ticket for question, _ in backend.asked] == [7]
    assert (bench.driver.outstanding, bench.budget.pending) == (0, 0)


async def test_an_answer_may_end_the_conversation(bench: Bench) -> None:
    bench.session.asks.append(Asked(0))
    bench.driver.submit(1.0)
    bench.session.fails["answered"] = ProtocolError("no such segment")
    bench.driver.answered(0, None)
    assert ("close", FAULT, End.SETTLED) in bench.driver.said
    assert bench.budget.used == 0


@pytest.mark.parametrize("method", ["stored", "abandon", "answered", "tick"])
async def test_a_bug_in_a_session_ends_its_connection_and_nothing_else(bench: Bench, method: str) -> None:
    """Raised into a pump it would have ended that, and with it everybody's frames."""
    bench.session.ready.append(FakeFrame([], ticket=0))
    bench.session.asks.append(Asked(0))
    bench.driver.submit(1.0)
    bench.session.fails[method] = RuntimeError("a bug")
    {
        "stored": lambda: bench.driver.stored(0, 1, True),
        "abandon": lambda: bench.driver.abandoned(0, DeliveryError("late", DeliveryPolicy.RETRY)),
        "answered": lambda: bench.driver.answered(0, None),
        "tick": lambda: bench.driver.tick(1.0),
    }[method]()
    assert bench.driver.is_broken
    bench.driver.stored(0, 1, False)  # nothing of that session is called again
    bench.driver.tick(2.0)
    assert bench.driver.said.count(("close", "internal", End.AT_ONCE)) == 1
    assert bench.budget.used == 300 * (method != "answered") + 100 * (method not in ("stored", "abandon"))
