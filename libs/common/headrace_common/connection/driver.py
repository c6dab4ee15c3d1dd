"""Drives one session: passes its frames to the publisher and its questions to the service, and their answers back to it.

The driver knows no socket. It connects the session with the budgets, the scheduler, the publisher and the service.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sized
from enum import Enum
from math import inf
from typing import Final, Generic, TypeVar

from typing_extensions import override

from headrace_common.connection.deadlines import Lifetime
from headrace_common.connection.places import Place
from headrace_common.connection.receiver_state import ReceiverState, Stoppable
from headrace_common.fairness.budget import FEW, Reader
from headrace_common.fairness.scheduler import Lane, Worker
from headrace_common.operations.errors import DeliveryError, ProtocolError
from headrace_common.publishing.in_flight import DeliveryListener
from headrace_common.session.interface import Caller, Peer, Session, Ticket

S = TypeVar("S", bound=Session)

READ_AHEAD: Final = 256 << 10
"""Bytes that may be read while earlier ones wait to be parsed."""

RECHECK: Final = 0.5
"""Seconds until a deadline that has passed without effect is looked at again: due to close for its age, but inside a frame."""

FAULT: Final = "protocol_error"
ABANDONED: Final = "abandoned"


class End(Enum):
    """How a conversation ends."""

    SETTLED = "pending frames are acknowledged first"
    UNSETTLED = "nothing more is acknowledged; written bytes arrive"
    AT_ONCE = "bytes that have not left are lost"


class Driver(Reader, Worker, DeliveryListener, Caller, Stoppable, Generic[S]):
    """One session and its access to what all connections share: the base of a connection, which adds its transport. Everything
    runs in the event loop; nothing here blocks.
    """

    unseen: Sized
    """Input that was received and not given to the session."""

    def __init__(self, receiver: ReceiverState, peer: Peer, session: S, closed: S) -> None:
        """`closed` replaces the session after its end: frames that wait for Kafka keep none of its buffers."""
        self._receiver = receiver
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._pump = receiver.publisher.choose()
        self.under_way: dict[Ticket, tuple[int, bool, float]] = {}
        """Of each frame that is neither stored nor abandoned: its bytes, whether it asked to be told, when it arrived."""
        self._unanswered = 0  # questions
        self._input_over = False
        self._retained_bytes = 0  # of a frame that stays incomplete
        self._waiting_bytes = 0  # of requests that wait in the session
        self._ended = False
        self.peer = peer
        self.session = session
        self.status = session.status()
        """The status after the last input: only an input changes it."""
        # Most protocols have no questions: their sessions are not asked for them with each frame.
        self.asks = type(session).questions is not Session.questions
        self.arrives = receiver.scheduler.arrives
        """Says whether bytes that arrive at a time may be parsed at once, outside of a slice."""
        self.partial_bytes = self.pending = 0
        self.last_read = receiver.budget.reads
        self.has_stored = self.is_broken = self._asking = False
        self.life = Lifetime(self._loop.time(), receiver.limits.frame_time, receiver.age())
        self.unparsed = 0
        """Bytes of `unseen`, as the budgets count them."""
        self.place: Place | None = None
        """Its place among the connections of the service."""
        self._fires_at = inf  # when that timer is set; -inf: never again
        self._timer: asyncio.TimerHandle | None = None

    # The transport

    @abstractmethod
    def speak(self) -> None:
        """Writes the session's output, if it has any, and reads its deadline, which may have changed."""

    @abstractmethod
    def close(self, why: str, end: End = End.SETTLED) -> None:
        """Stops reading and ends the conversation. `why` is the metric's label. Further calls may only hasten the end."""

    @abstractmethod
    def due(self) -> float:
        """Returns its first deadline in monotonic seconds; infinite if there is none."""

    @abstractmethod
    def expire(self, now: float) -> None:
        """Does what is due at the time `now`."""

    def is_behind(self) -> bool:
        """Returns whether the session has not parsed all that was received."""
        return not self.is_broken and (bool(self.unseen) or self.status.busy)

    @property
    def outstanding(self) -> int:
        """Pending frames and unanswered questions; not 0 while questions are handed out."""
        return len(self.under_way) + (self._unanswered or self._asking)

    # From the session

    def submit(self, received: float) -> None:
        """Takes the session's new frames and questions. `received`: when its last input arrived."""
        receiver, before = self._receiver, len(self.under_way)
        self.hand_on(received)
        self.status = self.session.status()
        # A complete request is no part of a frame that is long in coming.
        progress = len(self.under_way) > before or self.status.waiting_bytes > self._waiting_bytes
        if not self._input_over:
            partial = self.status.partial_bytes + self.unparsed
            if partial and (progress or not self.partial_bytes):
                self.life.frame_begins()
                receiver.budget.restart(self)
            self.hold(partial)
        if self.asks:
            self.ask()

    def hand_on(self, received: float) -> bool:
        """Takes the session's new frames, like `submit`, where nothing else has changed and no part of a frame is held. Returns
        True if the transport may certainly read on.
        """
        receiver, may_read = self._receiver, True
        for frame in self.session.frames():
            self.under_way[frame.ticket] = (size := frame.size, frame.acknowledged, received)
            may_read = receiver.budget.charge(self, size)
            key = frame.ordering_key
            (self._pump if key is None else receiver.publisher.of(key)).publish(frame, self)
        return may_read

    def ask(self) -> None:
        """Hands the session's new questions to the service, and counts the bytes of its requests."""
        if not self.asks or self._asking:  # asking: an answer that came at once has led to more, which have their turn
            return
        self._asking = True
        try:
            while (question := next(self.session.questions(), None)) is not None:
                self._unanswered += 1
                self._receiver.backend.ask(question, self)
        finally:
            self._asking = False
        self._charge_waiting(self.session.status().waiting_bytes)

    def _charge_waiting(self, waiting: int) -> None:
        budget, grown = self._receiver.budget, waiting - self._waiting_bytes
        self._waiting_bytes = waiting
        if grown > 0:
            budget.charge(self, grown)
        elif grown:
            budget.release(self, -grown)

    def take(self, give: Callable[[], None]) -> None:
        """Calls `give` to feed the session, then submits its output."""
        now = self._loop.time()
        try:
            give()
        except ProtocolError as error:
            self.submit(now)
            self.fault(error)
        else:
            self.submit(now)

    def fault(self, error: ProtocolError) -> None:
        """Closes the connection of a peer that broke the protocol. Frames that were complete before are still acknowledged."""
        self._receiver.fault(self.peer, error)
        # A session keeps its error, whose traceback keeps all that was being read: a cycle, some 60 MB after a bomb, for which
        # the collector might not come for hours.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.close(FAULT)

    def guard(self, work: Callable[[], object]) -> None:
        """Does `work` with the session. If it raises, a bug in Headrace, only this connection ends."""
        try:
            work()
        except Exception:
            self.fail()

    def fail(self) -> None:
        """Ends a connection whose session raised what it must not. Call it in an `except` clause. Calls that session no more."""
        self._receiver.log.exception("the session failed", peer=self.peer.address)
        self.is_broken = True
        self._forget_session()
        self.close("internal", End.AT_ONCE)

    # From the publisher

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        try:
            self.session.stored(ticket, stored, whole)
        except Exception:
            self.fail()
        if whole:
            if self.asks:
                self.guard(self.ask)  # before the frame leaves: something is outstanding all the time
            size, acknowledged, arrived = self.under_way.pop(ticket)
            receiver, self.has_stored = self._receiver, True
            receiver.budget.release(self, size)
            metrics, now = receiver.metrics, self._loop.time()
            metrics.ack_seconds.observe(now - arrived)
            self.credit(stored, size, now)
            counter = metrics.events_acknowledgeable if acknowledged else metrics.events_unacknowledgeable
            counter.inc(stored)
        try:
            self.speak()
        except Exception:
            self.fail()

    def credit(self, stored: int, size: int, now: float) -> None:
        """Counts a stored frame for the source that sent it."""
        self._receiver.metrics.sources.add(self.peer.identity, stored, size, now)

    @override
    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        self.guard(lambda: self.session.abandon(ticket))
        self._receiver.metrics.frames_abandoned.inc()
        self._receiver.budget.release(self, self.under_way.pop(ticket)[0])
        if self.session is not self._closed:
            self._receiver.log.warning("frame abandoned", peer=self.peer.address, problem=str(error))
            self.close(ABANDONED, End.UNSETTLED)

    # From the service

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self._unanswered -= 1
        if self.session is not self._closed:
            self.guard(lambda: self.take(lambda: self.session.answered(ticket, answer)))
            self.guard(self.speak)

    @override
    def end(self, why: str) -> None:
        if self.session is not self._closed:
            self.guard(lambda: self.close(why))

    def tick(self, now: float) -> None:
        """Tells the session the time; it may then hand out frames."""
        if self.session is not self._closed:
            self.guard(lambda: self.take(lambda: self.session.tick(now)))

    # Deadlines: the timer is not set again with each event, but asks for the first of them when it fires

    def schedule(self) -> None:
        """Sets the timer earlier if a deadline has come that is."""
        self._set_timer(self.due())

    def _set_timer(self, at: float) -> None:
        if at < self._fires_at:
            if self._timer is not None:
                self._timer.cancel()
            self._fires_at, self._timer = at, self._loop.call_at(at, self._fired)

    def _fired(self) -> None:
        now = self._loop.time()
        self._fires_at = inf
        self.expire(now)
        at = self.due()
        self._set_timer(at if at > now else now + RECHECK)

    def stop_timer(self) -> None:
        """Stops the timer for good."""
        self._fires_at = -inf
        if self._timer is not None:
            self._timer.cancel()

    # Scheduler and budgets

    @property
    def lane(self) -> Lane:  # type: ignore[override]
        """Few bytes wait to be parsed, or many."""
        return Lane.SMALL if self.partial_bytes <= FEW and not self.status.busy else Lane.LONG

    def hold(self, partial_bytes: int) -> None:
        """Counts the `partial_bytes` that session and transport hold of frames that are not handed out yet."""
        if partial_bytes != self.partial_bytes:
            self._receiver.budget.hold(self, partial_bytes)

    def may_read(self, waiting: int) -> bool:
        """Returns whether the transport may read. If something is to be parsed, this also queues it. `waiting`: bytes that were
        received and are not parsed.
        """
        budget = self._receiver.budget
        if not self.is_behind():
            return budget.may_read(self)
        if not budget.may_digest(self):
            return False
        self._receiver.scheduler.enqueue(self)
        return waiting < READ_AHEAD and budget.has_room(self)

    # The end

    def stop_reading(self) -> None:
        """Ends reading. An incomplete frame in the session stays charged: the session may still say how much is stored."""
        self._input_over, self.unparsed = True, 0
        self._retained_bytes = self.session.status().partial_bytes
        self._receiver.budget.charge(self, self._retained_bytes)
        self.hold(0)

    def retire(self) -> None:
        """Ends the session and frees what it holds. Its frames may still wait for Kafka."""
        self._input_over = True
        self._forget_session()  # first: what the service answers now leads to no more questions
        if not self._ended:
            self._ended = True
            self._receiver.backend.ended(self)
        self._receiver.budget.release(self, self._retained_bytes)
        self._retained_bytes = 0
        self._charge_waiting(0)

    def _forget_session(self) -> None:
        self.session.close()
        self.session = self._closed
        self.status = self._closed.status()

    def leave(self, why: str, *, counted: bool = True) -> None:
        """Leaves all that is shared: the connection is gone and parses nothing more. Call it once, as `ReceiverState.left`."""
        receiver = self._receiver
        self.retire()
        receiver.budget.forget(self)
        receiver.scheduler.withdraw(self)
        if self.place is not None:
            receiver.places.give_back(self.place)
            self.place = None  # it refers to the connection: a cycle would stay until a collection
        receiver.left(self, self.peer, why, counted=counted)
