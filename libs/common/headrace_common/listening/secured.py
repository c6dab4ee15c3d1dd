"""TLS between a socket's transport and its connection.

asyncio's own TLS keeps 256 KiB for each connection, decrypts without a pause what arrives in one turn of the loop (12 ms for 256
KiB of records of one byte), discards what waits when the peer ends, and has no half-closed connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import Any, Final, cast

from typing_extensions import override

from headrace_common.fairness.scheduler import Lane, Scheduler, Worker

RECORD: Final = 16 << 10
"""Bytes of the largest record (RFC 8446, 5.1)."""

PIECE: Final = RECORD
"""Bytes that OpenSSL is given at a time: its buffers keep the size of the largest."""

WRITTEN: Final = 64 << 10
"""Bytes of ours that are encrypted at a time."""

SLICE: Final = 0.001
"""Seconds for which a connection is decrypted before others have their turn."""

_ENDED: Final = cast("ssl.SSLObject", None)
"""The TLS object of a transport whose socket is gone: it neither reads nor writes."""


class SecuredTransport(asyncio.Transport, asyncio.Protocol, Worker):
    """The protocol of a socket's transport, and the transport of a connection. Make it, give it to the loop, await `handshake`,
    then call `begin`.
    """

    lane = Lane.SECURED

    def __init__(self, context: ssl.SSLContext, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._socket = cast("asyncio.Transport", None)
        self._connection: asyncio.Protocol | None = None
        self._left, self._at = b"", 0  # received bytes; those from `_at` on are not decrypted
        self._paused = False  # by the connection
        self._reading = True
        self._peer_ended = self._peer_said = False  # its end has come; the connection knows
        self._ended = False  # our close_notify is written
        self._lost: list[Exception | None] = []

    async def handshake(self, seconds: float) -> dict[str, Any] | None:
        """Returns the client's certificate, as `ssl` shows it. Raises `TimeoutError`, and `OSError` if there is no handshake."""
        try:
            async with asyncio.timeout(seconds):
                await self._shaken
            return self._tls.getpeercert()
        except BaseException:
            # The exception refers to this frame, which would refer to it: both would stay until a collection.
            self._shaken = asyncio.get_running_loop().create_future()
            self._shaken.cancel()
            self._socket.close()  # after the alert
            raise

    def begin(self, connection: asyncio.Protocol) -> None:
        """Connects the transport with a connection, which gets the bytes that came after the handshake."""
        self._connection = connection
        connection.connection_made(self)
        self._scheduler.enqueue(self)

    # Calls from the event loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._ended:
            if self._connection is not None:
                self._connection.data_received(b"")  # it rests between two reads
            return
        self._left, self._at = self._left[self._at :] + data if self._left else data, 0
        if not self.queued and self._scheduler.arrives(self._loop.time()):
            self.work(0.0)
        else:
            self._scheduler.enqueue(self)
            self._pace()

    @override
    def eof_received(self) -> bool:
        self._peer_ended = True
        self._scheduler.enqueue(self)
        return True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.append(exc)
        self._scheduler.enqueue(self)

    @override
    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    # Inspecting received bytes

    @override
    def work(self, until: float) -> None:
        """Decrypts received bytes for about `SLICE`, the rest in a later slice."""
        until, found = time.monotonic() + SLICE, list[bytes]()
        failure: ssl.SSLError | None = None
        try:
            while self._take(found) and time.monotonic() < until:
                pass
        except ssl.SSLError as error:
            failure = error.with_traceback(None)  # which refers to this frame
            self._drop()
        if self._outgoing.pending:  # the handshake, an alert
            self._send()
        if found and self._connection is not None:
            self._connection.data_received(found[0] if len(found) == 1 else b"".join(found))
        if failure is not None:
            self._fail(failure)
        if not self._left:
            self._end()
        elif self._connection is not None or not self._shaken.done():  # else `begin` goes on
            self._scheduler.enqueue(self)
        self._pace()

    def _take(self, found: list[bytes]) -> bool:
        """Decrypts one piece. Returns whether there may be another. Raises `ssl.SSLError` for bytes that are not TLS."""
        shaken = self._shaken.done()
        if shaken and self._connection is None:
            return False
        if not self._incoming.pending:
            if not self._left:
                return False
            piece = self._left if len(self._left) <= PIECE else self._left[self._at : self._at + PIECE]
            self._at += len(piece)
            if self._at >= len(self._left):
                self._left, self._at = b"", 0
            self._incoming.write(piece)
        with contextlib.suppress(ssl.SSLWantReadError):
            if not shaken:
                self._tls.do_handshake()
                self._shaken.set_result(None)
            while shaken and self._incoming.pending:
                if not (data := self._tls.read(RECORD)):  # its close_notify
                    self._peer_ended = True
                    self._drop()
                    return False
                found.append(data)
        return True

    def _drop(self) -> None:
        """Discards received bytes that are not decrypted."""
        self._left, self._at = b"", 0
        self._incoming.read()

    def _fail(self, error: ssl.SSLError) -> None:
        if not self._shaken.done():
            self._shaken.set_exception(error)
        elif self._connection is not None:
            self.abort()

    def _end(self) -> None:
        """Tells the connection that the peer has ended, or that the socket is gone."""
        if not self._shaken.done():
            if self._peer_ended or self._lost:
                self._shaken.set_exception(ConnectionResetError())
        elif (connection := self._connection) is not None:
            if self._peer_ended and not self._peer_said and not self._lost:
                self._peer_said = True
                if not connection.eof_received():
                    self.close()
            while self._lost:
                connection.connection_lost(self._lost.pop())
                self._tls, self._incoming, self._outgoing = _ENDED, ssl.MemoryBIO(), ssl.MemoryBIO()
                self._connection = None

    def _pace(self) -> None:
        """Reads the socket, unless the connection has paused reading or enough is here."""
        wanted = not (self._paused or self._left or (self._shaken.done() and self._connection is None))
        if wanted != self._reading and not self._socket.is_closing():
            self._reading = wanted
            (self._socket.resume_reading if wanted else self._socket.pause_reading)()

    # Calls from the connection

    @override
    def write(self, data: Any) -> None:
        if self._ended or self._socket.is_closing():
            return
        for at in range(0, len(data), WRITTEN):
            self._tls.write(data if len(data) <= WRITTEN else data[at : at + WRITTEN])
            self._send()

    def _send(self) -> None:
        if not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    @override
    def write_eof(self) -> None:
        self._say_end()
        self._socket.write_eof()

    def _say_end(self) -> None:
        if not self._ended and not self._socket.is_closing():
            self._ended = True
            with contextlib.suppress(ssl.SSLError):  # it would wait for the peer's
                self._tls.unwrap()
            self._send()
        self._drop()

    @override
    def close(self) -> None:
        self._say_end()
        self._socket.close()

    @override
    def abort(self) -> None:
        self._drop()
        self._socket.abort()

    @override
    def is_closing(self) -> bool:
        return self._socket.is_closing()

    @override
    def pause_reading(self) -> None:
        self._paused = True
        self._pace()

    @override
    def resume_reading(self) -> None:
        self._paused = False
        self._pace()
