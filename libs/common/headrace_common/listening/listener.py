"""Accepts the clients of a TCP socket within the limits and hands each to its connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from typing_extensions import override

from headrace_common.connection.places import Place
from headrace_common.connection.receiver_state import CONNECTIONS, ReceiverState
from headrace_common.connection.tcp import TcpConnection
from headrace_common.listening.endpoint import Endpoint
from headrace_common.listening.proxy import ProxiedClient, header
from headrace_common.listening.secured import SecuredTransport
from headrace_common.listening.tls import identity
from headrace_common.operations import sockets
from headrace_common.operations.errors import ConfigError, ProtocolError
from headrace_common.operations.networks import normal, within
from headrace_common.operations.settings import ListenSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.session.interface import ByteSession, Peer

BACKLOG: Final = 1024
KEEP_ALIVE: Final = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
"""Seconds of silence before the kernel asks whether the peer is still there, seconds between two questions, and how many of
them may stay unanswered: a client whose machine has gone is gone after two minutes, not after Linux's two hours."""

ACCEPT_PAUSE: Final = 0.1
CROWDED_PAUSE: Final = 0.01
LAST_HANDSHAKES: Final = 1.0
"""Seconds that clients have to finish a handshake when the listener closes."""

HANDSHAKE_TIME: Final = "LIMITS__HANDSHAKE_TIME"

SessionFactory = Callable[[Peer], ByteSession]


@dataclass(eq=False, slots=True, kw_only=True)
class _Arrival(Place):
    """A client that was accepted. `connection`: None until its session is made; its end gives back the place."""

    socket: socket.socket
    port: int
    connection: TcpConnection | None = None
    welcomed: bool = False
    """The event loop tells the connection its end."""
    why: str = "handshake"
    """Why it is closed if it comes to no connection: the metric's label."""


class Listener(Endpoint):
    """A TCP socket that gives each client a session, over TLS if a context is given."""

    name = "listen"

    def __init__(
        self,
        receiver: ReceiverState,
        tasks: Tasks,
        new_session: SessionFactory,
        listen: ListenSettings,
        port: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        """`port`: the protocol's own, used if the settings name none."""
        self._receiver = receiver
        self._tasks = tasks
        self._tls = tls
        self._new_session = new_session
        self._listen = listen
        self._port = listen.port or port
        self._proxies = listen.trusted_proxies
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    @override
    async def bind(self) -> str:
        self._socket = sockets.bound_socket(self._listen.host, self._port, "LISTEN")
        return sockets.address_of(self._socket)

    @override
    def start(self) -> None:
        assert self._socket is not None
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(f"LISTEN: {error.strerror or error}") from error
        self._accepting = self._tasks.start(self._accept(self._socket), f"accept {self.name}")

    @override
    async def close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting}, timeout=LAST_HANDSHAKES)
            self._empty_backlog()
        if self._socket is not None:
            self._socket.close()  # at once: clients that connect from now on are refused
        if self._handshakes:
            await asyncio.wait(self._handshakes, timeout=LAST_HANDSHAKES)
        for handshake in self._handshakes:
            handshake.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            budget = self._receiver.budget
            if not budget.welcomes():  # in the backlog a client takes none of our memory
                released = budget.released
                await asyncio.sleep(CROWDED_PAUSE)
                if budget.released == released:
                    continue
                # Kafka stores: the clients here may use up all room for ever, so one newcomer gets its turn
            try:  # not the loop's `sock_accept`: cancelled, that one may drop a client it has accepted
                client, name = listening.accept()
            except BlockingIOError:
                await _readable(listening)
                continue
            except OSError as error:  # out of file descriptors, or the client has already gone
                self._receiver.log.warning("accept failed", problem=str(error))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            self._admit(client, name)
            await asyncio.sleep(0)

    def _empty_backlog(self) -> None:
        """Admits the clients that have connected by now: closing the socket would reset them, and discard what they have sent."""
        assert self._socket is not None
        with contextlib.suppress(OSError):  # the peer has gone
            for _ in range(BACKLOG + 1):  # Linux holds one more than it is told
                self._admit(*self._socket.accept())

    def _admit(self, client: socket.socket, name: Any) -> None:
        receiver = self._receiver
        client.setblocking(False)
        peer = normal(name[0])
        if len(receiver.places) >= receiver.places.most:
            receiver.metrics.limit_hits.labels(CONNECTIONS).inc()
            if (idle := receiver.places.make_way()) is None:
                receiver.log.warning("too many connections", limit=CONNECTIONS, peer=peer)
                client.close()
                return
            receiver.log.warning("idle connection made way", limit=CONNECTIONS, peer=idle.peer)
            idle.leave()
        receiver.metrics.connections_opened.inc()
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEP_ALIVE.items():
                client.setsockopt(socket.IPPROTO_TCP, option, value)
        arrival = _Arrival(leave=lambda: None, peer=peer, socket=client, port=name[1])
        task = asyncio.create_task(self._welcome(arrival))
        arrival.leave = partial(_make_way, arrival, task)
        receiver.places.take(arrival)
        self._handshakes.add(task)
        task.add_done_callback(partial(self._welcomed, arrival))

    async def _welcome(self, arrival: _Arrival) -> None:
        """Reads the PROXY header and does the TLS handshake where these apply, then hands the client to its connection."""
        loop = asyncio.get_running_loop()
        receiver, client = self._receiver, arrival.socket

        def connect(subject: str | None = None) -> TcpConnection:
            peer = Peer(arrival.peer, arrival.port, subject or arrival.peer, certified=bool(subject))
            made = TcpConnection(receiver, peer, self._new_session(peer))
            made.place, arrival.connection = arrival, made
            return made

        try:
            if within(arrival.peer, self._proxies):
                async with asyncio.timeout(receiver.limits.handshake_time):
                    named = await _proxied(client)
                if named is not None:  # else the balancer speaks for itself
                    arrival.peer, arrival.port = named
            if self._tls is None:
                await loop.connect_accepted_socket(connect, client)
            else:
                secured = SecuredTransport(self._tls, receiver.scheduler)
                await loop.connect_accepted_socket(lambda: secured, client)
                certificate = await secured.handshake(receiver.limits.handshake_time)
                secured.begin(connect(identity(certificate)))
            if arrival.connection is not None:
                arrival.leave, arrival.is_owed = arrival.connection.make_way, arrival.connection.is_owed
                arrival.welcomed = True
        except (OSError, ProtocolError, UnicodeDecodeError) as error:  # the last of a certificate with odd names
            client.close()
            if arrival.connection is None:
                self._unwelcome(arrival.peer, error)

    def _welcomed(self, arrival: _Arrival, welcome: asyncio.Task[None]) -> None:
        """Gives back the place of a client that got no connection, or was cancelled, even before the task began."""
        self._handshakes.discard(welcome)
        if arrival.connection is None:
            arrival.socket.close()
            self._receiver.metrics.connections_closed.labels(arrival.why).inc()
            self._receiver.places.give_back(arrival)
        elif not arrival.welcomed:  # uvloop has closed the transport, and tells the connection nothing
            arrival.connection.connection_lost(None)

    def _unwelcome(self, peer: str, error: Exception) -> None:
        """Logs a client that failed before its protocol began. One that just left (a health check) is only a debug line."""
        receiver, late = self._receiver, isinstance(error, TimeoutError)
        if late:
            receiver.metrics.limit_hits.labels(HANDSHAKE_TIME).inc()
        say = receiver.log.debug if isinstance(error, ConnectionError) else receiver.log.warning
        say("handshake failed", peer=peer, problem=HANDSHAKE_TIME if late else str(error))


def _make_way(arrival: _Arrival, welcome: asyncio.Task[None]) -> None:
    arrival.why = "silent"
    welcome.cancel()


async def _readable(listening: socket.socket) -> None:
    """Waits until a client has connected."""
    loop = asyncio.get_running_loop()
    connected = asyncio.Event()
    loop.add_reader(listening, connected.set)
    try:
        await connected.wait()
    finally:
        loop.remove_reader(listening)


async def _proxied(client: socket.socket) -> ProxiedClient | None:
    """Returns the client that a PROXY header names. Reads not one byte beyond the header."""
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
            return cast("ProxiedClient | None", end.value)
