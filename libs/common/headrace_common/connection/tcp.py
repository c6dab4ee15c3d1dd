"""One client over a stream socket: bytes in and out, flow control, and the closing sequence.

Phases and time limits: `headrace_common.connection.deadlines`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from math import inf
from typing import Final, cast

from typing_extensions import override

from headrace_common.connection.deadlines import DRAIN_TIME, LINGER_TIME, Limit, Phase
from headrace_common.connection.driver import Driver, End, Transport
from headrace_common.connection.receiver_state import ReceiverState, Stoppable
from headrace_common.connection.timer import LazyTimer
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Peer

MUCH: Final = 64 << 10
"""Reads of this many bytes are parsed in a slice, not on arrival: a socket that is always readable delivers 256 KiB at a time,
and parsing these takes milliseconds, for which all other connections would wait."""

DISCARD_REST: Final = 0.01
"""Seconds between two reads of what a client still sends on a connection that is closed: 25 MB/s of each."""

OPEN, LINGERING, SETTLING, DRAINING, CLOSED = Phase
"""Names of their own: Python looks a member of an enum up by a call, and these are asked for with each frame."""


class TcpConnection(asyncio.Protocol, Transport, Stoppable):
    """A stream socket and its session. Everything runs in the event loop; nothing here blocks."""

    def __init__(self, receiver: ReceiverState, peer: Peer, session: ByteSession) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.driver: Driver[ByteSession] = Driver(receiver, peer, session, ByteSession(), self, self._loop.time)
        self.unseen: bytes | bytearray = b""
        """Bytes that were received and not given to the session."""
        self.reading = True
        self._life = self.driver.life
        self._timer = LazyTimer(self._due, self._tick)
        self._paused_at = self._life.last_byte
        self._writable = True
        self._next = b""  # to be written in the next iteration of the loop
        self._waits = False  # for that iteration
        self._why = "peer"
        self._peer_done = self._lost = False

    # Calls from the event loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the conversation: the socket is ready, and so is TLS if it is used."""
        if self._lost:
            cast("asyncio.Transport", transport).abort()
            return
        self._transport = cast("asyncio.Transport", transport)
        self._receiver.connections.add(self)
        self._flush()
        self._loop.call_soon(self.pace)  # uvloop starts reading after this callback, even if it was paused in it
        self._timer.schedule()

    @override
    def data_received(self, data: bytes) -> None:
        """Takes bytes from the peer. Parses few bytes at once; many, or few after this turn's time is used up, in a slice."""
        self._receiver.metrics.bytes_received.inc(len(data))
        if self._life.phase > LINGERING:
            self._discard()
            return
        driver, now, life = self.driver, self._loop.time(), self._life
        life.last_byte = now
        life.frame_bytes += len(data)
        if driver.place is not None:
            self._receiver.places.heard(driver.place)
        # Many came, or earlier ones wait, or there is no time left in this turn of the loop.
        if len(data) >= MUCH or self.is_behind() or not driver.arrives(now):
            self._keep(data)
            self.pace()
            return
        try:
            self._feed(data)
        except Exception:
            driver.fail()

    @override
    def eof_received(self) -> bool:
        """Notes that the peer has finished sending. Pending frames are still acknowledged."""
        self._peer_done = True
        if self._life.phase == DRAINING:
            self._hang_up()
        elif self._life.phase <= LINGERING and not self.is_behind():
            self._input_ends()
        return self._life.phase != CLOSED

    @override
    def pause_writing(self) -> None:
        """Stops reading a peer that does not read, and cuts it after WRITE_TIME, since it may block others' budget."""
        self._writable = False
        self._life.unread_since = self._loop.time()
        self.pace()
        self._timer.schedule()

    @override
    def resume_writing(self) -> None:
        """Goes on with a peer that reads again."""
        self._writable = True
        self._life.unread_since = None
        self._flush()
        self.pace()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Leaves a socket that is gone. Pending frames still go to Kafka, but are not acknowledged. Further calls do nothing."""
        if self._lost:
            return
        unseen = self._life.phase <= LINGERING and self.is_behind()
        self._life.enter(CLOSED)
        self._lost = True
        self._timer.stop()
        if unseen:  # keep its bytes: the client may have asked for no acknowledgement
            self.driver.ask_slice()
        else:
            self._leave()

    # Calls from the service

    @override
    def stop(self) -> None:
        # A new client may ask for no acknowledgement, and would believe its events delivered. Its first frame may be on its way,
        # or here already and not parsed yet.
        if self._life.phase == OPEN and (self.driver.session.status().unacknowledgeable or not self.driver.has_stored):
            self._enter(LINGERING, LINGER_TIME)
            self._why = "drain"
        elif self._life.phase == OPEN:
            self.close("drain")

    @override
    def cut(self) -> int:
        self._transport.abort()
        return self.driver.frames

    def is_owed(self) -> bool:
        """Returns whether the client waits for an answer to what it has sent, or part of that is not parsed yet."""
        return self.driver.outstanding > 0 or self.is_behind()

    def make_way(self) -> None:
        """Ends the conversation at once: a silent peer is not waited for."""
        self.driver.end("silent")
        self.cut()

    # Bytes to the session

    def is_behind(self) -> bool:
        """Returns whether received bytes are not parsed yet."""
        return not self.driver.is_broken and (bool(self.unseen) or self.driver.status.busy)

    def _keep(self, data: bytes) -> None:
        """Keeps `data` until a slice comes."""
        driver = self.driver
        if not driver.partial_bytes:
            self._life.frame_begins()
        if self.unseen and isinstance(self.unseen, bytes):
            self.unseen = bytearray(self.unseen)
        # The first bytes are not copied, neither here nor by `_take`: mostly no others come before the slice.
        self.unseen += data
        driver.unparsed = 2 * len(self.unseen)  # as much as a session will hold
        driver.hold(driver.partial_bytes + 2 * len(data))

    def _take(self) -> bytes:
        data = bytes(self.unseen)
        self._clear()
        return data

    def _clear(self) -> None:
        """Drops the unparsed bytes."""
        self.unseen = b""
        self.driver.unparsed = 0

    def _feed(self, data: bytes) -> None:
        """Feeds bytes to the session. With none, the session continues with those it has."""
        driver, session, received = self.driver, self.driver.session, self._life.last_byte
        try:
            alone = session.receive(data, time.time_ns() // 1_000_000)
        except ProtocolError as error:
            driver.submit(received)
            driver.fault(error)
            return
        if alone and not driver.partial_bytes:
            if not driver.hand_on(received):
                self.pace()
            return  # nothing else can have changed: no deadline, nothing to say
        driver.submit(received)
        if received >= self._life.old_from and self._passed(received) is Limit.AGE:
            self.close("age")
        elif self._peer_done and not self.is_behind():
            self._input_ends()
        else:
            self.speak()
            self.pace()
            if driver.partial_bytes or (self._life.old_from < inf and not self._timer.is_set):
                self._timer.schedule()  # a limit may run now that did not before

    def _input_ends(self) -> None:
        """Ends the session's input: it has parsed all bytes, and the peer sends no more."""
        try:
            self.driver.session.eof()
        except ProtocolError as error:
            self.driver.fault(error)
        else:
            self.close("peer")

    @override
    def digest(self) -> None:
        driver, lost = self.driver, self._lost
        wanted = lost or (self._life.phase <= LINGERING and self._writable)
        if wanted and self.is_behind() and (lost or driver.may_digest()):
            driver.guard(lambda: self._feed(b"" if driver.status.busy else self._take()))
        if lost and self.is_behind():
            driver.ask_slice()
        elif lost:
            self._leave()

    @override
    def pace(self) -> None:
        if self._life.phase > LINGERING:
            allowed = self._life.phase == DRAINING
            if not (self._lost and self.is_behind()):
                self.driver.forget_input()
        else:
            allowed = self._writable and self.driver.may_read(len(self.unseen) if self.is_behind() else None)
        if allowed != self.reading and self._read(allowed):
            self._timer.schedule()

    def _read(self, allowed: bool) -> bool:
        """Resumes or stops reading. Returns whether that is a change."""
        if allowed == self.reading or self._transport is None or self._transport.is_closing():
            return False
        self.reading, now = allowed, self._loop.time()
        if allowed:
            self._life.shift(now - self._paused_at)
            self._transport.resume_reading()
        else:
            self._paused_at = now
            self._transport.pause_reading()
        return True

    # The session's bytes to the peer

    @override
    def speak(self) -> None:
        self._flush()
        due = self.driver.session.deadline()
        if due is not None and self._timer.is_after(due):
            self._timer.schedule()

    def _flush(self) -> None:
        """Writes the session's output, and asks its questions. Writes once per loop iteration, so that each acknowledgement has
        its own segment: fluentd reads one per recv.
        """
        phase = self._life.phase
        if self._waits or not self._writable or phase >= DRAINING:
            return
        driver = self.driver
        data = self._next or driver.session.outgoing()
        if data:
            self._next = b""
            self._transport.write(data)
            if driver.asks:
                driver.spoke()
            outstanding = driver.under_way or (driver.asks and driver.outstanding)
            if not outstanding and phase == OPEN:
                self._next = driver.session.outgoing()
            # Nothing can follow in this iteration if nothing is left: the usual case, and a call less for each small frame.
            if self._next or outstanding or phase != OPEN:
                self._waits = True
                self._loop.call_soon(self._flush_again)
        if driver.asks:
            driver.ask()
        if self._life.phase == SETTLING and not self._waits and not driver.outstanding:
            self._drain()

    def _flush_again(self) -> None:
        self._waits = False
        self.driver.guard(self._flush)

    # The end: acknowledge the pending frames, drain, close the socket

    @override
    def close(self, why: str, end: End = End.SETTLED) -> None:
        if self._life.phase >= DRAINING and end is not End.AT_ONCE:
            return
        self._why = why
        if end is End.AT_ONCE:
            if self.driver.is_broken:
                self._life.enter(CLOSED)
            self._transport.abort()
        elif end is End.UNSETTLED:
            self._drain()
        else:
            if self._life.phase < SETTLING:
                self.driver.stop_reading()
                self._clear()  # they will not be parsed
            self._life.enter(SETTLING)
            self._timer.schedule()
            self.pace()
            self._flush()

    def _drain(self) -> None:
        """Half-closes, then reads and discards what the peer still sends, so that no RST overtakes our last bytes."""
        self.driver.retire()
        self.driver.forget_input()
        self._clear()
        if self._peer_done:
            self._hang_up()
            return
        self._enter(DRAINING, DRAIN_TIME)
        self._transport.write_eof()
        self.pace()

    def _discard(self) -> None:
        """Pauses between two reads. The loop reads a socket that is always readable up to 32 times in a turn: each connection of
        a crowd that is closed while it sends would take milliseconds of it.
        """
        if self._life.phase == DRAINING and self._read(False):
            self._loop.call_later(DISCARD_REST, self.pace)

    def _hang_up(self) -> None:
        """Closes the socket once the peer has read our bytes."""
        self._enter(CLOSED, DRAIN_TIME)
        self._transport.close()

    def _leave(self) -> None:
        self.driver.leave()
        if self.driver.place is not None:
            self._receiver.places.give_back(self.driver.place)
        self._receiver.left(self, self.driver.peer, self._why)

    # Time

    def _enter(self, phase: Phase, seconds: float) -> None:
        self._life.enter(phase, self._loop.time() + seconds)
        self._timer.schedule()

    def _rules(self) -> Iterator[tuple[float, Limit, bool]]:
        driver = self.driver
        return self._life.rules(
            driver.session.status(),
            reading=self.reading,
            partial=driver.partial_bytes > 0,
            behind=self.is_behind(),
        )

    def _due(self) -> float:
        asked = self.driver.session.deadline()
        return min([*(due for due, _, _ in self._rules()), inf if asked is None else asked])

    def _passed(self, now: float) -> Limit | None:
        """Returns the most urgent limit that has passed."""
        return next((limit for due, limit, applies in self._rules() if applies and now >= due), None)

    def _tick(self, now: float) -> None:
        driver = self.driver
        limit = self._passed(now)
        if limit is not Limit.UNREAD:
            driver.tick(now)
            driver.guard(self._flush)
            limit = self._passed(now)
        if limit is None or self._timer.is_late:
            return  # received bytes are parsed first, then the limits are checked again
        if limit is Limit.UNREAD:
            self._receiver.log.warning("peer does not read", peer=driver.peer.address, frames=driver.frames)
            self.close(limit.value, End.AT_ONCE)
        elif limit is Limit.FRAME_TIME:
            driver.fault(ProtocolError("a frame took too long to arrive", limit="LIMITS__FRAME_TIME"))
        elif limit is not Limit.DRAINED:
            self.close(limit.value)
        elif self._life.phase == DRAINING:
            self._hang_up()
        else:
            self._transport.abort()
