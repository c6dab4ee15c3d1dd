"""Listening: accepts clients within the limit, and lets them go in order when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from headrace_common.connection import Connection
from headrace_common.errors import ConfigError, ProtocolError
from headrace_common.proxy import Client, Network, header, normal, within
from headrace_common.session import Peer, Session
from headrace_common.shared import Shared
from headrace_common.tls import TlsContext, identity

BACKLOG: Final = 1024
ACCEPT_PAUSE: Final = 0.1
CROWDED_PAUSE: Final = 0.01
HANDSHAKE_TIME: Final = "LIMITS__HANDSHAKE_TIME"

SessionFactory = Callable[[Peer], Session]


class Listener:
    """One stream socket whose clients each get a session."""

    def __init__(
        self,
        shared: Shared,
        tls: TlsContext | None,
        new_session: SessionFactory,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        """`trusted_proxies`: peers there must begin with a PROXY protocol header, and it is believed."""
        self._shared = shared
        self._tls = tls
        self._new_session = new_session
        self._proxies = trusted_proxies
        self._socket: socket.socket | None = None
        self._path: Path | None = None
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

    def bind_unix(self, path: Path) -> str:
        """As `bind`, for a Unix stream socket; one that a dead process left behind is replaced."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if path.is_socket() and not _answers(path):
                path.unlink()
            bound.bind(str(path))
            bound.setblocking(False)
        except OSError as error:
            bound.close()
            raise ConfigError(f"LISTEN__SOCKET {path}: {error.strerror or error}") from error
        self._socket, self._path = bound, path
        return str(path)

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
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def live_problems(self) -> list[str]:
        """Why nobody can connect any more."""
        if self._accepting is not None and self._accepting.done() and not self._accepting.cancelled():
            return [f"accepting has ended: {self._accepting.exception()!r}"]
        return []

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        shared = self._shared
        while True:
            if not shared.budget.welcomes():  # in the backlog it takes no memory of ours
                await asyncio.sleep(CROWDED_PAUSE)
                continue
            try:
                client, name = await loop.sock_accept(listening)
            except OSError as error:  # out of file descriptors, or a client that is gone again
                shared.limited.warning("accept failed", problem=str(error))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            address = Client(normal(name[0]), name[1]) if self._path is None else Client("unix", 0)
            if shared.admitted >= shared.limits.connections:
                shared.metrics.limit_hits.labels("LIMITS__CONNECTIONS").inc()
                shared.limited.warning("too many connections", limit="LIMITS__CONNECTIONS", peer=address.address)
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

    async def _welcome(self, client: socket.socket, address: Client) -> None:
        """Hands a client over to its connection, after the PROXY header and the TLS handshake if there are such."""
        loop = asyncio.get_running_loop()
        shared = self._shared
        connected = False

        def connect(subject: str | None = None) -> Connection:
            nonlocal connected
            connected = True  # from now on it is the connection's end that gives the place back
            identity = socket.gethostname() if self._path is not None else address.address
            peer = Peer(address.address, address.port, subject or identity)
            return Connection(shared, peer, self._new_session(peer))

        try:
            if within(address.address, self._proxies):
                async with asyncio.timeout(shared.limits.handshake_time):
                    address = await _proxied(client) or address
            if self._tls is None:
                await loop.connect_accepted_socket(connect, client)
                return
            handover = _Handover(connect)
            await loop.connect_accepted_socket(
                lambda: handover,
                client,
                ssl=self._tls.current(),
                ssl_handshake_timeout=shared.limits.handshake_time,
                ssl_shutdown_timeout=2.0,
            )
        except (OSError, ssl.SSLError, TimeoutError, ProtocolError) as error:
            client.close()
            if not connected:
                self._unwelcome(address, error)
        finally:
            if not connected:
                shared.admitted -= 1

    def _unwelcome(self, address: Client, error: Exception) -> None:
        """A client that never came to speak its protocol. One that just left (a health check) is nothing to tell of."""
        shared = self._shared
        if isinstance(error, ProtocolError):
            shared.limited.warning(
                "proxy header refused", peer=address.address, problem=str(error), bytes=error.sample.hex()
            )
        elif isinstance(error, ConnectionError) and not isinstance(error, ConnectionAbortedError):
            shared.log.debug("client left before its handshake", peer=address.address)
        elif isinstance(error, TimeoutError | ConnectionAbortedError):  # the latter is the loop's word for it in TLS
            shared.metrics.limit_hits.labels(HANDSHAKE_TIME).inc()
            shared.limited.warning("handshake took too long", peer=address.address, limit=HANDSHAKE_TIME)
        else:
            shared.limited.warning("tls handshake failed", peer=address.address, problem=str(error))


async def _proxied(client: socket.socket) -> Client | None:
    """The client that a PROXY header names. Reads not a byte more than the header."""
    loop = asyncio.get_running_loop()
    reading = header()
    wanted = next(reading)
    while True:
        data = b""
        while len(data) < wanted:
            piece = await loop.sock_recv(client, wanted - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        try:
            wanted = reading.send(data)
        except StopIteration as end:
            return cast("Client | None", end.value)


def _answers(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


class Datagrams(asyncio.DatagramProtocol):
    """Answers datagrams one by one (Forward's heartbeat); `answer` gives nothing for those that get none."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """One datagram."""
        reply = self._answer(data)
        if reply:
            self._transport.sendto(reply, addr)

    @classmethod
    async def bind(cls, host: str, port: int, answer: Callable[[bytes], bytes]) -> asyncio.DatagramTransport:
        """Begins to answer at once. Raises `ConfigError` when the address is taken or not ours."""
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: cls(answer), local_addr=(host, port)
            )
        except OSError as error:
            raise ConfigError(f"LISTEN {host}:{port} (UDP): {error.strerror or error}") from error
        return transport


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
