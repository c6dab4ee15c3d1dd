"""One client over a stream socket: bytes in and out, flow control, and the closing sequence.

Phases and time limits: `headrace_common.connection.deadlines`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

from typing_extensions import override

from headrace_common.connection.deadlines import (
    DRAIN_TIME,
    LINGER_TIME,
    Clocks,
    Limit,
    Phase,
    Situation,
    TimeLimits,
    is_old,
    next_due,
    passed,
)
from headrace_common.connection.driver import Driver
from headrace_common.connection.receiver_state import ReceiverState, Stoppable
from headrace_common.connection.socket_transport import SocketTransport
from headrace_common.connection.timer import LazyTimer
from headrace_common.operations.errors import DeliveryError, ProtocolError
from headrace_common.operations.health.crowd import Unproven
from headrace_common.session.closed import CLOSED_SESSION
from headrace_common.session.interface import ByteSession, Peer

MUCH: Final = 64 << 10
"""Reads of this many bytes are parsed in a slice, not on arrival: a socket that is always readable delivers 256 KiB at a time,
and parsing these takes milliseconds, for which all other connections would wait."""

FIRST_LOOK: Final = 1
"""Bytes of a new connection parsed on arrival in any case: another protocol is refused, no message goes before another's."""

OPEN, LINGERING, SETTLING, DRAINING, CLOSED = Phase
"""Names of their own: Python looks a member of an enum up by a call, and these are asked for with each frame."""


class Unseen(bytearray):
    """Received bytes that are not parsed yet."""

    def take(self) -> bytes:
        """Returns all bytes and leaves none."""
        data = bytes(self)
        self.clear()
        return data


class TcpConnection(asyncio.Protocol, SocketTransport, Stoppable):
    """A stream socket and its session. Everything runs in the event loop; nothing here blocks."""

    def __init__(self, receiver: ReceiverState, peer: Peer, session: ByteSession) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.driver: Driver[ByteSession] = Driver(receiver, peer, session, CLOSED_SESSION, self, self._loop.time)
        now = self._loop.time()
        self._clocks = Clocks(now, now, now)
        self._limits = TimeLimits(receiver.limits.frame_time, receiver.limits.idle_time, receiver.age())
        self._ages = bool(self._limits.idle or self._limits.age)  # a limit applies also between frames
        self._phase = OPEN
        self._why = "peer"
        self._next = b""  # to be written in the next loop iteration
        self._peer_done = self._flushing = self._lost = self._heard = False
        self._writable = self._reading = True
        self._paused_at = now
        self._timer = LazyTimer(self._next_deadline, self._tick)
        self.unseen = Unseen()
        self.unproven: Unproven | None = None  # until its first frame or question

    # Calls from the event loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ready, and so is TLS if it is used."""
        self._transport = cast("asyncio.Transport", transport)
        self._receiver.connections.add(self)
        self._flush()
        self._loop.call_soon(self.pace)  # uvloop starts reading after this callback, even if it was paused in it
        self._timer.schedule()

    @override
    def data_received(self, data: bytes) -> None:
        """Takes bytes from the peer: parses a few at once, many in a slice, and a few of too many connections in slices, too."""
        self._receiver.metrics.bytes_received.inc(len(data))
        if self._phase > LINGERING:
            return
        driver, heard, self._heard = self.driver, self._heard, True
        self._clocks.received(now := self._loop.time(), len(data))
        if self.unproven is not None:
            self._receiver.crowd.heard(self.unproven, now)
        if len(data) >= MUCH or self._behind() or not driver.arrives(now):  # earlier bytes wait, or many came
            if not driver.partial_bytes:
                self._clocks.frame_begins()
            at_once = 0 if heard else FIRST_LOOK
            self.unseen += data[at_once:]
            driver.hold(driver.partial_bytes + 2 * len(data))  # as much as a session will hold
            self.pace()
            if not (data := data[:at_once]):
                return
        try:
            self._feed(data)
        except Exception:
            driver.fail()

    @override
    def eof_received(self) -> bool:
        """The peer has finished sending: what is pending is still acknowledged."""
        self._peer_done = True
        if self._phase == DRAINING:
            self._close()
        elif self._phase <= LINGERING and not self._behind():
            self._input_ends()
        return self._phase != CLOSED and self._transport.can_write_eof()

    @override
    def pause_writing(self) -> None:
        """The peer does not read: it is not read either, and disconnected after WRITE_TIME, since it may block others' budget."""
        self._writable = False
        self._clocks.unread_since = self._loop.time()
        self.pace()
        self._timer.schedule()

    @override
    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writable = True
        self._clocks.unread_since = None
        self._flush()
        self.pace()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone. Pending frames still go to Kafka, but are not acknowledged."""
        unseen = self._phase <= LINGERING and self._behind()
        self._to(CLOSED)
        self._lost = True
        self._timer.stop()
        if unseen:  # keep its bytes: the client may have asked for no acknowledgement
            self.driver.ask_slice()
        else:
            self._leave()

    # Calls from the service

    @override
    def stop(self) -> None:
        status = self.driver.session.status()
        # What a client that has just come sends may ask for no acknowledgement: it would believe it delivered. Its first frame
        # may be here already, not parsed yet: behind a question to the service, or because many came in one turn of the loop.
        first = not self.driver.has_stored and (self.driver.has_asked or not self.driver.frames)
        new = not self._heard or (first and self._behind())
        undecided = status.unacknowledgeable or status.undecided or new
        if self._phase == OPEN and undecided:
            self._enter(LINGERING, LINGER_TIME)
            self._why = "drain"
        elif self._phase == OPEN:
            self.close("drain")

    @override
    def cut(self) -> int:
        self._transport.abort()
        return self.driver.frames

    # Bytes to the session

    def _feed(self, data: bytes) -> None:
        """Feeds bytes to the session. With none, the session continues with those it has."""
        driver, session, clocks = self.driver, self.driver.session, self._clocks
        try:
            session.receive(data, time.time_ns() // 1_000_000)
        except ProtocolError as error:
            driver.submit(clocks.last_byte)
            self.fault(error)
            return
        driver.submit(clocks.last_byte)
        if (
            self._phase == OPEN
            and is_old(clocks, self._limits, clocks.last_byte)
            and not driver.partial_bytes
            and not driver.status.unacknowledgeable
            and not driver.status.undecided
        ):
            self.close("age")
        elif self._peer_done and not self._behind():
            self._input_ends()
        else:
            self._flush()
            self.pace()
            due = session.deadline()
            asked = due is not None and self._timer.is_after(due)
            if asked or driver.partial_bytes or (self._ages and not self._timer.is_set):
                self._timer.schedule()

    @override
    def handed_out(self, progress: bool) -> None:
        if progress and self.unproven is not None:
            self._receiver.crowd.remove(self.unproven)
            self.unproven = None
        if self._phase in (SETTLING, DRAINING):
            return
        driver = self.driver
        partial = driver.status.partial_bytes + 2 * len(self.unseen)
        if partial and (progress or not driver.partial_bytes):
            self._clocks.frame_begins()
            self._receiver.budget.restart(driver)
        driver.hold(partial)

    def _behind(self) -> bool:
        """Whether received bytes are not parsed yet."""
        return not self.driver.is_broken and (bool(self.unseen) or self.driver.status.busy)

    def _input_ends(self) -> None:
        """The session has parsed all bytes, and the peer sends no more."""
        try:
            self.driver.session.eof()
        except ProtocolError as error:
            self.fault(error)
        else:
            self.close("peer")

    @override
    def digest(self) -> None:
        driver, lost = self.driver, self._lost
        wanted = lost or (self._phase <= LINGERING and self._writable)
        if wanted and self._behind() and (lost or driver.may_digest()):
            driver.work(lambda: self._feed(b"" if driver.status.busy else self.unseen.take()))
        if lost and self._behind():
            driver.ask_slice()
        elif lost:
            self._leave()

    @override
    def pace(self) -> None:
        if self._phase > LINGERING:
            allowed = self._phase == DRAINING
            if not (self._lost and self._behind()):
                self.driver.forget_input()
        elif self._writable:
            allowed = self.driver.may_read(len(self.unseen) if self._behind() else None)
        else:
            self.driver.rest()
            allowed = False
        if allowed == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = allowed
        now = self._loop.time()
        if allowed:
            self._clocks.shift(now - self._paused_at)
            self._transport.resume_reading()
        else:
            self._paused_at = now
            self._transport.pause_reading()
        self._timer.schedule()

    # The session's bytes to the peer

    @override
    def flush(self) -> None:
        self._flush()

    @override
    def speak(self) -> None:
        self._flush()
        due = self.driver.session.deadline()
        if due is not None and self._timer.is_after(due):
            self._timer.schedule()

    def _flush_again(self) -> None:
        self._flushing = False
        self.driver.guard(self._flush)

    def _flush(self) -> None:
        """Writes once per loop iteration, so that each acknowledgement has its own segment: fluentd reads one per recv."""
        if self._flushing or not self._writable or self._phase >= DRAINING:
            return
        driver = self.driver
        data, self._next = self._next or driver.session.outgoing(), b""
        if data:
            self._transport.write(data)
            if not driver.outstanding and self._phase == OPEN:
                self._next = driver.session.outgoing()
            # Nothing can follow in this iteration if nothing is left: the usual case, and a call less for each small frame.
            if self._next or driver.outstanding or self._phase != OPEN:
                self._flushing = True
                self._loop.call_soon(self._flush_again)
        driver.ask()
        if self._flushing:  # now, or in an answer that came at once
            return
        if self._phase == SETTLING and not self.driver.outstanding:
            if last_words := self.driver.session.farewell():
                self._transport.write(last_words)
            self._drain()

    # The end: acknowledge what is pending, drain, close the socket

    @override
    def fault(self, error: ProtocolError) -> None:
        self._receiver.fault(self.driver.peer, error)
        self.close("protocol_error")

    @override
    def close(self, why: str) -> None:
        if self._phase > SETTLING:
            return
        self._why = why
        if self._phase < SETTLING:
            self.driver.stop_reading()
        self._enter(SETTLING, None)
        self.unseen.clear()  # they will not be parsed
        self.driver.hold(0)
        self.pace()
        self._flush()

    @override
    def give_up(self, error: DeliveryError) -> None:
        if self._phase == CLOSED:
            return
        self._receiver.limited.warning("frame abandoned", peer=self.driver.peer.address, problem=str(error))
        self._why = "abandoned"
        self._drain()

    @override
    def broken(self) -> None:
        self._to(CLOSED)
        self._why = "internal"
        self._transport.abort()

    def _drain(self) -> None:
        """Half-closes, then reads and discards what the peer still sends, so that no RST overtakes our last bytes."""
        if self._phase >= DRAINING:
            return
        self.driver.close()
        if self._peer_done or not self._transport.can_write_eof():
            self._close()
            return
        self._enter(DRAINING, DRAIN_TIME)
        self._transport.write_eof()
        self.pace()

    def _close(self) -> None:
        """Closes once the peer has read our bytes. Cuts a peer that does not read."""
        self._to(CLOSED)
        self._transport.close()
        self._timer.replace(DRAIN_TIME, self._transport.abort)

    def _leave(self) -> None:
        self.driver.leave()
        self._receiver.left(self, self.driver.peer, self._why)

    def _to(self, phase: Phase) -> None:
        self._phase = max(self._phase, phase)
        self.driver.answers = self._phase < DRAINING

    def _enter(self, phase: Phase, seconds: float | None) -> None:
        self._to(phase)
        self._clocks.phase_until = None if seconds is None else self._loop.time() + seconds
        self._timer.schedule()

    # Time

    def _situation(self) -> Situation:
        return Situation(
            phase=self._phase,
            reading=self._reading,
            partial=self.driver.partial_bytes > 0,
            behind=self._behind(),
            outstanding=self.driver.outstanding > 0,
            crowded=self._receiver.budget.crowded,
            session=self.driver.session.status(),
        )

    def _next_deadline(self) -> float | None:
        due = next_due(self._situation(), self._clocks, self._limits)
        asked = self.driver.session.deadline()
        return due if asked is None else asked if due is None else min(due, asked)

    def _tick(self, now: float) -> None:
        if passed(self._situation(), self._clocks, self._limits, now) is Limit.UNREAD:
            driver = self.driver
            self._receiver.limited.warning("peer does not read", peer=driver.peer.address, frames=driver.frames)
            self._why = "deaf"
            self._transport.abort()
            return
        self.driver.tick(now)
        self.driver.guard(self._flush)
        limit = passed(self._situation(), self._clocks, self._limits, now)
        if limit is Limit.DRAINED:
            self._close()
        elif limit is Limit.FRAME_TIME:
            self.fault(ProtocolError("a frame took too long to arrive", limit="LIMITS__FRAME_TIME"))
        elif limit is not None:
            self.close({Limit.LINGERED: "drain", Limit.IDLE: "idle", Limit.AGE: "age"}[limit])
