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
from headrace_common.connection.driver import Driver, End
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Peer

MUCH: Final = 64 << 10
"""Reads of this many bytes are parsed in a slice, not on arrival: a socket that is always readable delivers 256 KiB at a time,
and parsing these takes milliseconds, for which all other connections would wait."""

DISCARD_REST: Final = 0.01
"""Seconds between two reads of what a client still sends on a connection that is closed: 25 MB/s of each."""

OPEN, LINGERING, SETTLING, DRAINING, CLOSED = Phase
"""Names of their own: Python looks a member of an enum up by a call, and these are asked for with each frame."""


class TcpConnection(Driver[ByteSession], asyncio.Protocol):
    """A stream socket and its session."""

    def __init__(self, receiver: ReceiverState, peer: Peer, session: ByteSession) -> None:
        super().__init__(receiver, peer, session, ByteSession())
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.unseen: bytes | bytearray = b""
        self.reading = True
        self._paused_at = self.life.last_byte
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
        self.schedule()

    @override
    def data_received(self, data: bytes) -> None:
        """Takes bytes from the peer. Parses few bytes at once; many, or few after this turn's time is used up, in a slice."""
        self._receiver.metrics.bytes_received.inc(len(data))
        if self.life.phase > LINGERING:
            self._discard()
            return
        now, life = self._loop.time(), self.life
        life.last_byte = now
        life.frame_bytes += len(data)
        if self.place is not None:
            self._receiver.places.heard(self.place)
        # Many came, or earlier ones wait, or there is no time left in this turn of the loop.
        if len(data) >= MUCH or self.is_behind() or not self.arrives(now):
            self._keep(data)
            self.pace()
            return
        try:
            self._feed(data)
        except Exception:
            self.fail()

    @override
    def eof_received(self) -> bool:
        """Notes that the peer has finished sending. Pending frames are still acknowledged."""
        self._peer_done = True
        if self.life.phase == DRAINING:
            self._hang_up()
        elif self.life.phase <= LINGERING and not self.is_behind():
            self._input_ends()
        return self.life.phase != CLOSED

    @override
    def pause_writing(self) -> None:
        """Stops reading a peer that does not read, and cuts it after WRITE_TIME, since it may block others' budget."""
        self._writable = False
        self.life.unread_since = self._loop.time()
        self.pace()
        self.schedule()

    @override
    def resume_writing(self) -> None:
        """Goes on with a peer that reads again."""
        self._writable = True
        self.life.unread_since = None
        self._flush()
        self.pace()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Leaves a socket that is gone. Pending frames still go to Kafka, but are not acknowledged. Further calls do nothing."""
        if self._lost:
            return
        unseen = self.life.phase <= LINGERING and self.is_behind()
        self.life.enter(CLOSED)
        self._lost = True
        self.stop_timer()
        if unseen:  # keep its bytes: the client may have asked for no acknowledgement
            self._receiver.scheduler.enqueue(self)
        else:
            self.leave(self._why)

    # Calls from the service

    @override
    def stop(self) -> None:
        # A new client may ask for no acknowledgement, and would believe its events delivered. Its first frame may be on its way,
        # or here already and not parsed yet.
        if self.life.phase == OPEN and (self.session.status().unacknowledgeable or not self.has_stored):
            self._enter(LINGERING, LINGER_TIME)
            self._why = "drain"
        elif self.life.phase == OPEN:
            self.close("drain")

    @override
    def cut(self) -> int:
        self._transport.abort()
        return len(self.under_way)

    def is_owed(self) -> bool:
        """Returns whether the client waits for an answer to what it has sent, or part of that is not parsed yet."""
        return self.outstanding > 0 or self.is_behind()

    def make_way(self) -> None:
        """Ends the conversation at once: a silent peer is not waited for."""
        self.end("silent")
        self.cut()

    # Bytes to the session

    def _keep(self, data: bytes) -> None:
        """Keeps `data` until a slice comes."""
        if not self.partial_bytes:
            self.life.frame_begins()
        if self.unseen and isinstance(self.unseen, bytes):
            self.unseen = bytearray(self.unseen)
        # The first bytes are not copied, neither here nor by `_take`: mostly no others come before the slice.
        self.unseen += data
        self.unparsed = 2 * len(self.unseen)  # as much as a session will hold
        self.hold(self.partial_bytes + 2 * len(data))

    def _take(self) -> bytes:
        data = bytes(self.unseen)
        self._clear()
        return data

    def _clear(self) -> None:
        """Drops the unparsed bytes."""
        self.unseen = b""
        self.unparsed = 0

    def _feed(self, data: bytes) -> None:
        """Feeds bytes to the session. With none, the session continues with those it has."""
        received = self.life.last_byte
        try:
            alone = self.session.receive(data, time.time_ns() // 1_000_000)
        except ProtocolError as error:
            self.submit(received)
            self.fault(error)
            return
        if alone and not self.partial_bytes:
            if not self.hand_on(received):
                self.pace()
            return  # nothing else can have changed: no deadline, nothing to say
        self.submit(received)
        if received >= self.life.old_from and self._passed(received) is Limit.AGE:
            self.close("age")
        elif self._peer_done and not self.is_behind():
            self._input_ends()
        else:
            self.speak()
            self.pace()
            if self.partial_bytes or (self.life.old_from < inf and self._fires_at == inf):
                self.schedule()  # a limit may run now that did not before

    def _input_ends(self) -> None:
        """Ends the session's input: it has parsed all bytes, and the peer sends no more."""
        try:
            self.session.eof()
            self.submit(self._loop.time())  # the end of a stream may end a frame
        except ProtocolError as error:
            self.fault(error)
        else:
            self.close("peer")

    @override
    def work(self, until: float) -> None:
        lost, receiver = self._lost, self._receiver
        wanted = lost or (self.life.phase <= LINGERING and self._writable)
        if wanted and self.is_behind() and (lost or receiver.budget.may_digest(self)):
            self.guard(lambda: self._feed(b"" if self.status.busy else self._take()))
        if lost and self.is_behind():
            receiver.scheduler.enqueue(self)
        elif lost:
            self.leave(self._why)

    @override
    def pace(self) -> None:
        if self.life.phase > LINGERING:
            allowed = self.life.phase == DRAINING
            if not (self._lost and self.is_behind()):
                self._receiver.budget.forget(self)
        else:
            allowed = self._writable and self.may_read(len(self.unseen))
        if allowed != self.reading and self._read(allowed):
            self.schedule()

    def _read(self, allowed: bool) -> bool:
        """Resumes or stops reading. Returns whether that is a change."""
        if allowed == self.reading or self._transport is None or self._transport.is_closing():
            return False
        self.reading, now = allowed, self._loop.time()
        if allowed:
            self.life.shift(now - self._paused_at)
            self._transport.resume_reading()
        else:
            self._paused_at = now
            self._transport.pause_reading()
        return True

    # The session's bytes to the peer

    @override
    def speak(self) -> None:
        self._flush()
        due = self.session.deadline()
        if due is not None and due < self._fires_at:
            self.schedule()

    def _flush(self) -> None:
        """Writes the session's output, and asks its questions. Writes once per loop iteration, so that each acknowledgement has
        its own segment: fluentd reads one per recv.
        """
        phase = self.life.phase
        if self._waits or not self._writable or phase >= DRAINING:
            return
        data = self._next or self.session.outgoing()
        if data:
            self._next = b""
            self._transport.write(data)
            if self.session.over:
                self.close("peer", End.UNSETTLED)
                return
            outstanding = self.under_way or (self.asks and self.outstanding)
            if not outstanding and phase == OPEN:
                self._next = self.session.outgoing()
            # Nothing can follow in this iteration if nothing is left: the usual case, and a call less for each small frame.
            if self._next or outstanding or phase != OPEN:
                self._waits = True
                self._loop.call_soon(self._flush_again)
        if self.asks:
            self.ask()
        if self.life.phase == SETTLING and not self._waits and not self.outstanding:
            self._drain()

    def _flush_again(self) -> None:
        self._waits = False
        self.guard(self._flush)

    # The end: acknowledge the pending frames, drain, close the socket

    @override
    def close(self, why: str, end: End = End.SETTLED) -> None:
        if self.life.phase >= DRAINING and end is not End.AT_ONCE:
            return
        self._why = why
        if end is End.AT_ONCE:
            if self.is_broken:
                self.life.enter(CLOSED)
            self._transport.abort()
        elif end is End.UNSETTLED:
            self._drain()
        else:
            if self.life.phase < SETTLING:
                self.stop_reading()
                self._clear()  # they will not be parsed
            self.life.enter(SETTLING)
            self.schedule()
            self.pace()
            self._flush()

    def _drain(self) -> None:
        """Half-closes, then reads and discards what the peer still sends, so that no RST overtakes our last bytes."""
        self.retire()
        self._receiver.budget.forget(self)
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
        if self.life.phase == DRAINING and self._read(False):
            self._loop.call_later(DISCARD_REST, self.pace)

    def _hang_up(self) -> None:
        """Closes the socket once the peer has read our bytes."""
        self._enter(CLOSED, DRAIN_TIME)
        self._transport.close()

    # Time

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.life.enter(phase, self._loop.time() + seconds)
        self.schedule()

    def _rules(self) -> Iterator[tuple[float, Limit, bool]]:
        partial = self.partial_bytes > 0
        return self.life.rules(self.session.status(), reading=self.reading, partial=partial, behind=self.is_behind())

    @override
    def due(self) -> float:
        asked = self.session.deadline()
        return min([*(due for due, _, _ in self._rules()), inf if asked is None else asked])

    def _passed(self, now: float) -> Limit | None:
        """Returns the most urgent limit that has passed."""
        return next((limit for due, limit, applies in self._rules() if applies and now >= due), None)

    @override
    def expire(self, now: float) -> None:
        limit = self._passed(now)
        if limit is not Limit.UNREAD:
            self.tick(now)
            self.guard(self._flush)
            limit = self._passed(now)
        if limit is None:
            return
        if limit is Limit.UNREAD:
            self._receiver.log.warning("peer does not read", peer=self.peer.address, frames=len(self.under_way))
            self.close(limit.value, End.AT_ONCE)
        elif limit is Limit.FRAME_TIME:
            self.fault(ProtocolError("a frame took too long to arrive", limit="LIMITS__FRAME_TIME"))
        elif limit is not Limit.DRAINED:
            self.close(limit.value)
        elif self.life.phase == DRAINING:
            self._hang_up()
        else:
            self._transport.abort()
