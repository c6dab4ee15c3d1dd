"""Who may connect to the sockets, and how many at a time.

libzmq asks for each client in its handshake (ZAP, ZeroMQ's RFC 27) and says on a socket's monitor who came and went. Both are
read from the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, cast

import zmq
from headrace_common.operations.log import RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.networks import Network, normal, within
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

Context = zmq.Context[zmq.Socket[bytes]]

DOMAIN: Final = b"headrace"
"""A socket asks only if it names a domain."""

_HANDLER: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
_REQUEST: Final = 6
"""Frames of a request before its credentials: version, request, domain, address, identity, mechanism."""

_WATCHED: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED

CONNECTIONS: Final = "LIMITS__CONNECTIONS"


class Refusal(StrEnum):
    """Why a client may not connect. A closed list: it is a metric label."""

    ADDRESS = "address"  # not in LOGJAM__ALLOW
    KEY = "key"  # no key of LOGJAM__CURVE_CLIENTS
    MECHANISM = "mechanism"  # not the mechanism that the sockets speak
    CONNECTIONS = "connections"  # LIMITS__CONNECTIONS clients are there


class Verdict(NamedTuple):
    """`name`: who it is, in the source of its events. `refusal`: why it may not connect, if it may not."""

    name: str = ""
    refusal: Refusal | None = None


class Admission:
    """Decides. Pure.

    Neither a request nor the end of a connection says who it was. So a connection that ends is taken for one that was never
    admitted, if there is such a one: until its handshake has ended, too (LIMITS__HANDSHAKE_TIME), it counts as a client.
    """

    def __init__(self, networks: Sequence[Network], names: Mapping[bytes, str], most: int) -> None:
        """`names`: by public key, in bytes; with any, only these may connect. `most`: LIMITS__CONNECTIONS."""
        self._networks = networks
        self._names = names
        self._most = most
        self._open = 0
        self._inside = 0

    @property
    def clients(self) -> int:
        """Those that are connected."""
        return self._inside

    def accepted(self) -> None:
        """A connection has come."""
        self._open += 1

    def ended(self) -> None:
        """A connection has ended."""
        self._open -= 1
        self._inside = min(self._inside, self._open)

    def judge(self, address: str, mechanism: bytes, credentials: Sequence[bytes]) -> Verdict:
        """Whether a client may connect; it counts as connected from then on."""
        address = normal(address)
        if self._networks and not within(address, self._networks):
            return Verdict(address, Refusal.ADDRESS)
        name = address
        if mechanism != (b"CURVE" if self._names else b"NULL"):
            return Verdict(address, Refusal.MECHANISM)
        if self._names:
            known = self._names.get(credentials[0]) if credentials else None
            if known is None:
                return Verdict(address, Refusal.KEY)
            name = known
        if self._inside >= self._most:
            return Verdict(address, Refusal.CONNECTIONS)
        self._inside += 1
        return Verdict(name)


class Curve(NamedTuple):
    """The keys of one side, as libzmq takes them (Z85)."""

    secret: bytes
    public: bytes

    @classmethod
    def of(cls, secret: str) -> Curve:
        """The pair of a secret key; a new pair if it is empty."""
        if not secret:
            public, made = zmq.curve_keypair()
            return cls(made, public)
        return cls(secret.encode(), zmq.curve_public(secret.encode()))

    def serve(self, socket: zmq.Socket[bytes]) -> None:
        """The socket speaks CURVE with its clients."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)

    def ask(self, socket: zmq.Socket[bytes], server: str) -> None:
        """The socket speaks CURVE with a server that has this public key."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, server.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)


def names_of(clients: Mapping[str, str]) -> dict[bytes, str]:
    """LOGJAM__CURVE_CLIENTS by key, in bytes as a request has it."""
    return {z85.decode(key): name for name, key in clients.items()}


def monitor(context: Context, socket: zmq.Socket[bytes], name: str, events: int) -> zmq.Socket[bytes]:
    """Where libzmq says what happens to the connections of a socket. Call it before the socket is bound or connected."""
    address = f"inproc://monitor.{name}"
    socket.monitor(address, events)
    made = context.socket(zmq.PAIR)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RCVHWM, 0)  # libzmq would stand still
    made.connect(address)
    return made


class AccessControl:
    """Answers libzmq's questions about clients. `open` it before the sockets that it guards, `close` it behind them."""

    def __init__(self, context: Context, admission: Admission, metrics: ReceiverMetrics, limited: RateLimited) -> None:
        self._context = context
        self._admission = admission
        self._metrics = metrics
        self._limited = limited
        self._loop = asyncio.get_running_loop()
        self._opened: list[tuple[zmq.Socket[bytes], int]] = []
        self._monitors: list[zmq.Socket[bytes]] = []

    def open(self) -> None:
        """Answers from now on."""
        handler = self._context.socket(zmq.REP)
        handler.setsockopt(zmq.LINGER, 0)
        handler.bind(_HANDLER)
        self._read(handler, lambda: self._answer(handler))

    def guard(self, socket: zmq.Socket[bytes], name: str) -> None:
        """Clients of this socket are asked for and counted. Call it before the socket is bound."""
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        made = monitor(self._context, socket, name, _WATCHED)
        self._monitors.append(made)
        self._read(made, self._watch)

    def close(self) -> None:
        """Answers no more. The sockets are closed."""
        for socket, descriptor in self._opened:
            self._loop.remove_reader(descriptor)
            socket.close()
        self._opened.clear()
        self._monitors.clear()

    def _read(self, socket: zmq.Socket[bytes], work: Callable[[], None]) -> None:
        descriptor = cast("int", socket.getsockopt(zmq.FD))
        self._opened.append((socket, descriptor))
        self._loop.add_reader(descriptor, work)
        self._loop.call_soon(work)

    def _answer(self, handler: zmq.Socket[bytes]) -> None:
        while not handler.closed:
            try:
                request = handler.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._watch()  # who has gone makes room
            handler.send_multipart(self._reply(request))
            self._metrics.logjam_clients.set(self._admission.clients)

    def _reply(self, request: Sequence[bytes]) -> list[bytes]:
        """RFC 27: 200 admits, 400 refuses, 300 refuses for now: the client comes again by itself."""
        if len(request) < _REQUEST or request[0] != _VERSION:
            return [_VERSION, request[1] if len(request) > 1 else b"", b"500", b"not understood", b"", b""]
        _, number, _, address, _, mechanism, *credentials = request
        name, refusal = self._admission.judge(address.decode(errors="replace"), mechanism, credentials)
        if refusal is None:
            self._metrics.connections_opened.inc()
            return [_VERSION, number, b"200", b"", name.encode(), b""]
        self._metrics.logjam_refused.labels(refusal.value).inc()
        if refusal is Refusal.CONNECTIONS:
            self._metrics.limit_hits.labels(CONNECTIONS).inc()
            self._limited.warning("too many connections", limit=CONNECTIONS, peer=name)
            return [_VERSION, number, b"300", refusal.value.encode(), b"", b""]
        self._limited.warning("client refused", peer=name, why=refusal.value)
        return [_VERSION, number, b"400", refusal.value.encode(), b"", b""]

    def _watch(self) -> None:
        for monitor in self._monitors:
            while not monitor.closed:
                try:
                    event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
                except zmq.Again:
                    break
                if event == zmq.EVENT_ACCEPTED:
                    self._admission.accepted()
                elif event == zmq.EVENT_DISCONNECTED:
                    self._admission.ended()
        self._metrics.logjam_clients.set(self._admission.clients)
