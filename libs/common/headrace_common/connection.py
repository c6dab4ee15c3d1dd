"""One client's connection: bytes to its session, frames to the publisher, the session's bytes back to the client.

Its states: `headrace_common.connection_state`.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from headrace_common.connection_state import (
    AHEAD,
    DRAIN_TIME,
    FRAME_TIME_BYTES,
    LINGER_SILENCE,
    LINGER_TIME,
    MUCH,
    RECHECK,
    WRITE_TIME,
    State,
    Unseen,
)
from headrace_common.ended import ENDED
from headrace_common.errors import DeliveryError, ProtocolError
from headrace_common.session import Peer, Session, Ticket
from headrace_common.shared import Shared
from headrace_common.unstored import Unstored


class Connection(asyncio.Protocol):
    """Drives one session. Everything runs in the event loop; nothing here blocks."""

    def __init__(self, shared: Shared, peer: Peer, session: Session) -> None:
        self._shared = shared
        self._peer = peer
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._partition = shared.publisher.enter()
        self._state = State.OPEN
        self._why = "peer"
        self._peer_done = self._flushing = self._lost = self._broken = self.known = False
        self._frames = Unstored(shared.metrics, self._loop.time)
        self._writable = self._reading = True
        self._deaf_since: float | None = None  # since when the peer does not read
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at, now = 0.0, self._loop.time()
        self._paused_at = self._last_bytes = self._frame_began = self._born = now
        self._frame_bytes = 0
        self._age = shared.age()
        self._state_until: float | None = None
        self.began = self._frames.began
        self.account = shared.turns.account()
        self._unseen = Unseen()  # arrived while the session was busy
        self.held = self.pending = self.kept = 0  # for the budget; kept: of a frame that will not be completed

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket, and TLS if any, are ready."""
        self._transport = cast("asyncio.Transport", transport)
        self._shared.connections.add(self)
        self._flush()
        self._loop.call_soon(self.pace)  # uvloop begins to read behind this, whatever it was told before
        self._schedule()

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        self._shared.metrics.bytes_received.inc(len(data))
        if self._state > State.LINGERING:
            return
        self._last_bytes = self._loop.time()
        self._frame_bytes += len(data)
        if len(data) >= MUCH or self._behind():  # it waits for its turn, and this with it
            if not self.held:
                self._begin()
            self._unseen += data
            self._shared.budget.hold(self, self.held + 2 * len(data))  # as much as a session will
            self.pace()
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Bytes to the session; none: it goes on with those it has. A mistake of ours in it ends this connection alone."""
        try:
            self._digest(data)
        except Exception:
            self._shared.log.exception("the session failed", peer=self._peer.address)
            self._broken, self._state, self._why = True, State.CLOSED, "internal"
            self._transport.abort()

    def _digest(self, data: bytes) -> None:
        try:
            self._session.receive(data, time.time_ns() // 1_000_000)
        except ProtocolError as error:
            self._submit()
            self._fail(error)
            return
        self._submit()
        if self._state == State.OPEN and self._due(self._last_bytes):
            self._settle("age")
            return
        if self._peer_done and not self._behind():
            self._end()
            return
        self._flush()
        self.pace()
        due = self._session.deadline()
        if self.held or self._timer is None or (due is not None and due < self._timer_at):
            self._schedule()

    def eof_received(self) -> bool:
        """The peer has finished sending: what is pending is still acknowledged."""
        self._peer_done = True
        if self._state == State.DRAINING:
            self._close()
        elif self._state <= State.LINGERING and not self._behind():
            self._end()
        return self._state != State.CLOSED and self._transport.can_write_eof()

    def _behind(self) -> bool:  # with looking at what has arrived
        return not self._broken and (bool(self._unseen) or self._session.busy())

    def _end(self) -> None:
        """The session has seen all that the peer sent."""
        try:
            self._session.eof()
        except ProtocolError as error:
            self._fail(error)
        else:
            self._settle("peer")

    def pause_writing(self) -> None:
        """The peer does not read: it is not read either, and cut in the end, as it may hold the budget's only turn."""
        self._writable = False
        self._deaf_since = self._loop.time()
        self.pace()
        self._schedule()

    def resume_writing(self) -> None:
        """It does again."""
        self._writable = True
        self._deaf_since = None
        self._flush()
        self.pace()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone. What is pending goes on to Kafka, and nothing of it is acknowledged."""
        unseen = self._state <= State.LINGERING and self._behind()
        self._state, self._lost = State.CLOSED, True
        if self._timer is not None:
            self._timer.cancel()
        if unseen:  # what it has brought is not gone: it may have asked for no acknowledgement
            self._shared.turns.ask(self)
        else:
            self._left()

    def _left(self) -> None:
        self._over()
        self._shared.left(self, self._partition, self._peer, self._why)

    def _over(self) -> None:
        """Nothing more will be said: what the session holds goes, though frames of it may wait for Kafka still."""
        self._session = ENDED
        self._shared.budget.release(self, self.kept)
        self.kept = 0

    # What the publisher tells (headrace_common.consignment.Receipt)

    def settled(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """So many of the frame's parts are durable; the session decides what that acknowledges."""
        self._session.settle(ticket, stored, whole)
        if whole:
            answered = self._state < State.DRAINING
            self._shared.budget.release(self, self._frames.stored(ticket, stored, answered=answered))
            self.known = True
        self._flush()

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """The frame will not be stored: nothing of it is acknowledged, and the connection ends."""
        self._session.abandon(ticket)
        self._shared.budget.release(self, self._frames.abandoned(ticket))
        if self._state != State.CLOSED:
            self._shared.limited.warning("frame abandoned", peer=self._peer.address, problem=str(error))
            self._why = "abandoned"
            self._drain()

    # What the turns (headrace_common.turns.Worker), the budget and the server tell

    def urgency(self) -> float:
        """What its work has cost."""
        return self.account.used

    def granted(self) -> None:
        """Lets the session go on with what it has."""
        turns, lost = self._shared.turns, self._lost
        wanted = lost or (self._state <= State.LINGERING and self._writable)
        if wanted and self._behind() and (lost or self._shared.budget.may_digest(self)):
            turns.begin(self.account)
            self._feed(b"" if self._session.busy() else self._unseen.take())
            turns.end(self.account)
        if lost and self._behind():
            turns.ask(self)
        elif lost:
            self._left()

    def pace(self) -> None:
        """Reads or does not read, as the budgets and the peer's own reading allow."""
        if self._state > State.LINGERING:
            allowed = self._state == State.DRAINING
            if not (self._lost and self._behind()):
                self._shared.budget.forget(self)
        else:
            busy, budget = self._behind(), self._shared.budget
            allowed = self._writable and (budget.may_digest(self) if busy else budget.may_read(self))
            if allowed and busy:
                allowed = len(self._unseen) < AHEAD and budget.has_room(self)
                self._shared.turns.enter(self.account)
                self._shared.turns.ask(self)
        if allowed == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = allowed
        now = self._loop.time()
        if allowed:
            away = now - self._paused_at  # clocks stand still while it is we who do not read
            self._frame_began += away
            self._last_bytes += away
            self._transport.resume_reading()
        else:
            self._paused_at = now
            self._transport.pause_reading()
        self._schedule()

    def stop(self) -> None:
        """The service stops: acknowledge what is pending, then close."""
        if self._state == State.OPEN and self._session.unacknowledgeable():
            self._enter(State.LINGERING, LINGER_TIME)
            self._why = "drain"
        elif self._state == State.OPEN:
            self._settle("drain")

    def cut(self) -> int:
        """Closes at once. How many frames were never acknowledged."""
        self._transport.abort()
        return len(self._frames)

    def _submit(self) -> None:
        budget, session = self._shared.budget, self._session
        before = len(self._frames)
        for frame in session.frames():
            self._frames.add(frame, self._last_bytes)
            budget.charge(self, frame.size)
            self._shared.publisher.submit(frame, self, self._partition)
        held = session.held() + 2 * len(self._unseen)
        if held and (len(self._frames) > before or not self.held):
            self._begin()
            budget.restart(self)
        if held != self.held:
            budget.hold(self, held)

    def _begin(self) -> None:  # a frame, with what has just arrived
        self._frame_began, self._frame_bytes = self._last_bytes, 0

    def _flush(self, turned: bool = False) -> None:
        """One write per loop turn: an acknowledgement shares its segment with nothing (fluentd reads one with one recv)."""
        self._flushing &= not turned
        if self._flushing or not self._writable or self._state >= State.DRAINING:
            return
        data = self._session.outgoing()
        if data:
            self._transport.write(data)
            self._flushing = True
            self._loop.call_soon(self._flush, True)
        elif self._state == State.SETTLING and not self._frames:
            if last_words := self._session.farewell():
                self._transport.write(last_words)
            self._drain()

    def _fail(self, error: ProtocolError) -> None:
        """The peer's fault: no more is read; what was complete before is still stored and acknowledged."""
        self._shared.fault(self._peer, error)
        self._settle("protocol_error")

    def _settle(self, why: str) -> None:
        self._why = why
        if self._state < State.SETTLING:
            self.kept = self._session.held()  # it may have to say how much of that is stored
            self._shared.budget.charge(self, self.kept)
        self._enter(State.SETTLING, None)
        self._unseen.clear()  # not looked at any more
        self._shared.budget.hold(self, 0)
        self.pace()
        self._flush()

    def _drain(self) -> None:
        """Everything is said: half-close, and read what the peer still sends, so that no RST overtakes our last bytes."""
        if self._state >= State.DRAINING:
            return
        self._over()
        if self._peer_done or not self._transport.can_write_eof():
            self._close()
            return
        self._enter(State.DRAINING, DRAIN_TIME)
        self._transport.write_eof()
        self.pace()

    def _close(self) -> None:
        """Ends it when what was written has been read; a peer that does not read is cut."""
        self._state = State.CLOSED
        self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(DRAIN_TIME, self._transport.abort)

    def _enter(self, state: State, seconds: float | None) -> None:
        self._state = max(self._state, state)
        self._state_until = None if seconds is None else self._loop.time() + seconds
        self._schedule()

    def _schedule(self) -> None:
        """One lazy timer: it is not moved when bytes arrive, it looks again when it fires."""
        at = self._next_deadline()
        if at is None or self._transport is None:
            return
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._tick)

    def _next_deadline(self) -> float | None:
        limits = self._shared.limits
        times = [self._state_until, self._session.deadline()]
        if self._deaf_since is not None:
            times.append(self._deaf_since + WRITE_TIME)
        if self._state == State.LINGERING:
            times.append(self._last_bytes + LINGER_SILENCE)
        if self._state == State.OPEN and self._reading:
            if self.held:
                times.append(min(self._frame_deadline(), self._last_bytes + limits.frame_time))
            if limits.idle_time and not self._session.unacknowledgeable():
                times.append(self._last_bytes + limits.idle_time)
            if self._age and not self._session.unacknowledgeable():
                times.append(self._born + self._age)
        return min((at for at in times if at is not None), default=None)

    def _frame_deadline(self) -> float:
        allowed = self._shared.limits.frame_time
        deadline = self._frame_began + allowed + self._frame_bytes / FRAME_TIME_BYTES
        # What its bytes have earned a frame may spend in silence only where it stands in nobody's way.
        return min(deadline, self._last_bytes + allowed) if self._shared.budget.crowded else deadline

    def _tick(self) -> None:
        self._timer, now = None, self._loop.time()
        if self._state == State.CLOSED:
            return
        if self._deaf_since is not None and now >= self._deaf_since + WRITE_TIME:
            self._shared.limited.warning("peer does not read", peer=self._peer.address, frames=len(self._frames))
            self._why = "deaf"
            self._transport.abort()
            return
        try:
            self._session.tick(now)
        except ProtocolError as error:
            self._fail(error)
            return
        self._flush()
        silent = not self._behind() and now >= self._last_bytes + LINGER_SILENCE
        if self._state == State.LINGERING and (silent or now >= (self._state_until or now)):
            self._settle("drain")
        elif self._state == State.DRAINING and now >= (self._state_until or now):
            self._close()
        elif self._state == State.OPEN and self._reading:
            self._judge(now)
        self._reschedule(now)

    def _reschedule(self, now: float) -> None:
        at = self._next_deadline()
        if at is not None and self._state != State.CLOSED and self._timer is None:
            self._timer_at = at if at > now else now + RECHECK
            self._timer = self._loop.call_at(self._timer_at, self._tick)

    def _judge(self, now: float) -> None:
        """Time limits of an open connection that is being read."""
        limits = self._shared.limits
        if self.held and now >= self._frame_deadline():
            self._fail(ProtocolError("a frame took too long to arrive", limit="LIMITS__FRAME_TIME"))
        elif self._session.unacknowledgeable():
            return
        elif limits.idle_time and now >= self._last_bytes + limits.idle_time and self._session.idle() and not self.held:
            self._settle("idle")
        elif self._due(now):
            self._settle("age")

    def _due(self, now: float) -> bool:
        """Whether its age ends it here, between two frames; what is pending, of a busy client always, is acknowledged."""
        return 0 < self._age <= now - self._born and not self.held and not self._session.unacknowledgeable()
