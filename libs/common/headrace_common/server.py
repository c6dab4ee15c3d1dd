"""Listening: accepts clients within the limit, and lets them go in order when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from headrace_common.connection import Connection
from headrace_common.errors import ConfigError
from headrace_common.session import Peer, Session
from headrace_common.shared import Shared
from headrace_common.tls import TlsContext, identity

BACKLOG: Final = 1024
ACCEPT_PAUSE: Final = 0.1

SessionFactory = Callable[[Peer], Session]


class Listener:
    """One stream socket whose clients each get a session."""

    def __init__(self, shared: Shared, tls: TlsContext | None, new_session: SessionFactory) -> None:
        self._shared = shared
        self._tls = tls
        self._new_session = new_session
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def bind(self, host: str, port: int) -> str:
        """Takes the address, without listening yet; returns it. Raises `ConfigError` when it is taken or not ours."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
            bound.bind((host, port))
            bound.setblocking(False)
        except OSError as error:
            bound.close()
            raise ConfigError(f"LISTEN {host}:{port}: {error.strerror or error}") from error
        self._socket = bound
        address = bound.getsockname()
        return f"[{address[0]}]:{address[1]}" if family == socket.AF_INET6 else f"{address[0]}:{address[1]}"

    def start(self) -> None:
        """Listens and accepts. Raises `ConfigError` when somebody else listens there by now."""
        assert self._socket is not None
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(f"LISTEN: {error.strerror or error}") from error
        self._accepting = asyncio.create_task(self._accept(self._socket), name="accept")

    async def close(self) -> None:
        """Accepts no more."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting, *self._handshakes}, timeout=0.1)
        for handshake in self._handshakes:
            handshake.cancel()
        if self._socket is not None:
            self._socket.close()

    def live_problems(self) -> list[str]:
        """Why nobody can connect any more."""
        if self._accepting is not None and self._accepting.done() and not self._accepting.cancelled():
            return [f"accepting has ended: {self._accepting.exception()!r}"]
        return []

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        shared = self._shared
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError as error:  # out of file descriptors, or a client that is gone again
                shared.limited.warning("accept failed", problem=str(error))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            if shared.admitted >= shared.limits.connections:
                shared.metrics.limit_hits.labels("LIMITS__CONNECTIONS").inc()
                shared.limited.warning("too many connections", limit="LIMITS__CONNECTIONS", peer=address[0])
                client.close()
                continue
            shared.admitted += 1
            shared.metrics.connections_opened.inc()
            with contextlib.suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            task = asyncio.create_task(self._welcome(client, address))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _welcome(self, client: socket.socket, address: tuple[str, int]) -> None:
        """Hands a client over to its connection, after the TLS handshake if there is one."""
        loop = asyncio.get_running_loop()
        connected = False

        def connect(subject: str | None = None) -> Connection:
            nonlocal connected
            connected = True  # from now on it is the connection's end that gives the place back
            peer = Peer(address[0], address[1], subject or address[0])
            return Connection(self._shared, peer, self._new_session(peer))

        try:
            if self._tls is None:
                await loop.connect_accepted_socket(connect, client)
                return
            handover = _Handover(connect)
            await loop.connect_accepted_socket(
                lambda: handover,
                client,
                ssl=self._tls.current(),
                ssl_handshake_timeout=self._shared.limits.handshake_time,
                ssl_shutdown_timeout=2.0,
            )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            client.close()
            self._shared.limited.warning("tls handshake failed", peer=address[0], problem=str(error) or "timed out")
        finally:
            if not connected:
                self._shared.admitted -= 1


class _Handover(asyncio.Protocol):
    """Waits for the end of the TLS handshake: only then is it known who the client is."""

    def __init__(self, connect: Callable[[str | None], Connection]) -> None:
        self._connect = connect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport is one, but does not derive from it
        connection = self._connect(identity(transport.get_extra_info("peercert")))
        transport.set_protocol(connection)
        connection.connection_made(transport)


async def drain(shared: Shared, seconds: float) -> None:
    """Lets every connection acknowledge what is pending and close; cuts what is left after `seconds` and says so."""
    if shared.connections:
        shared.empty.clear()
        for connection in list(shared.connections):
            connection.stop()
        if shared.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(shared.empty.wait(), seconds)
    left = list(shared.connections)
    frames = sum(connection.cut() for connection in left)
    if left:
        shared.log.warning("connections cut", connections=len(left), frames_not_acknowledged=frames)
