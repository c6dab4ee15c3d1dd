"""The clients that may connect to the sockets: libzmq asks for each client in its handshake (ZAP, ZeroMQ's RFC 27).

`headrace_logjam.peers.doors` decides how many may connect, `headrace_logjam.peers.newcomers` when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, cast

import zmq
from headrace_common.operations.log import RateLimited
from headrace_common.operations.networks import Network, normal, within
from zmq.utils import z85

from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers.newcomers import Newcomers, Question

Context = zmq.Context[zmq.Socket[bytes]]

_HANDLER: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
_DOMAIN: Final = 4
"""Index of the domain in a question: after the client that asks, an empty frame, version and request."""

_REQUEST: Final = 6
"""Frames of a request before its credentials: version, request, domain, address, identity, mechanism."""

PAUSE: Final = 0.5
"""Seconds between two looks at sockets whose newcomers wait and which may not be read meanwhile."""


class AccessRefusal(StrEnum):
    """Why a client may not connect. A closed list: it is a metric label."""

    ADDRESS = "address"  # not in LOGJAM__ALLOW
    KEY = "key"  # no key of LOGJAM__CURVE_CLIENTS, or it has another public key of ours
    MECHANISM = "mechanism"  # not the mechanism that the sockets speak
    HANDSHAKE = "handshake"  # a handshake that is not ZeroMQ's
    CONNECTIONS = "connections"  # LIMITS__CONNECTIONS are there


class Admission:
    """Decides who may connect. Pure."""

    def __init__(self, networks: Sequence[Network], names: Mapping[bytes, str]) -> None:
        """`names`: by public key, in bytes; with any, only these may connect."""
        self._networks = networks
        self._names = names

    def judge(self, address: str, mechanism: bytes, credentials: Sequence[bytes]) -> tuple[str, AccessRefusal | None]:
        """Returns a client's name in the source of its events, and why it may not connect, if it may not."""
        address = normal(address)
        if self._networks and not within(address, self._networks):
            return address, AccessRefusal.ADDRESS
        if mechanism != (b"CURVE" if self._names else b"NULL"):
            return address, AccessRefusal.MECHANISM
        if not self._names:
            return address, None
        name = self._names.get(credentials[0]) if credentials else None
        return (address, AccessRefusal.KEY) if name is None else (name, None)


class CurvePair(NamedTuple):
    """The keys of one side, as libzmq takes them (Z85)."""

    secret: bytes
    public: bytes

    @classmethod
    def of(cls, secret: str) -> CurvePair:
        """Returns the pair of a secret key; a new pair if it is empty."""
        if not secret:
            public, made = zmq.curve_keypair()
            return cls(made, public)
        return cls(secret.encode(), zmq.curve_public(secret.encode()))

    def serve(self, socket: zmq.Socket[bytes]) -> None:
        """Lets the socket speak CURVE with its clients."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)

    def ask(self, socket: zmq.Socket[bytes], server: str) -> None:
        """Lets the socket speak CURVE with a server that has this public key."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, server.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)


def names_of(clients: Mapping[str, str]) -> dict[bytes, str]:
    """Returns LOGJAM__CURVE_CLIENTS by key, in bytes as a request has it."""
    return {z85.decode(key): name for name, key in clients.items()}


def monitor(context: Context, socket: zmq.Socket[bytes], name: str, events: int) -> zmq.Socket[bytes]:
    """Returns the socket on which libzmq reports the connections of `socket`. Call it before that is bound or connected."""
    address = f"inproc://monitor.{name}"
    socket.monitor(address, events)
    made = context.socket(zmq.PAIR)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RCVHWM, 0)  # libzmq would stop
    made.connect(address)
    return made


class AccessControl:
    """Answers libzmq's questions about clients. `open` it before the sockets that it guards, `close` it after them."""

    def __init__(self, context: Context, admission: Admission, metrics: LogjamMetrics, limited: RateLimited) -> None:
        self._admission = admission
        self._metrics = metrics
        self._limited = limited
        self._loop = asyncio.get_running_loop()
        self._handler: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._handler.setsockopt(zmq.LINGER, 0)
        self._handler.setsockopt(zmq.ROUTER_MANDATORY, 1)  # says that the client that asked has left
        self._descriptor = cast("int", self._handler.getsockopt(zmq.FD))
        self._newcomers: dict[bytes, Newcomers] = {}  # by domain
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    def open(self) -> None:
        """Answers from now on."""
        self._handler.bind(_HANDLER)
        self._loop.add_reader(self._descriptor, self._answer)
        self._loop.call_soon(self._answer)

    def newcomers(self, domain: bytes) -> Newcomers:
        """Returns the newcomers of the socket with this domain, which must tell them what it reads. Others' come at once."""
        return self._newcomers.setdefault(domain, Newcomers(self._say))

    def refuse(self) -> None:
        """Admits no more clients: the service ends. Each tries again by itself, and finds the next process."""
        self._over = True
        for newcomers in self._newcomers.values():
            newcomers.admit_all()

    def close(self) -> None:
        """Answers no more. The sockets are closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._descriptor)
        self._handler.close()

    def _answer(self) -> None:
        while not self._handler.closed:
            try:
                question = self._handler.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            newcomers = self._newcomers.get(question[_DOMAIN]) if len(question) > _DOMAIN else None
            if newcomers is None or self._over:
                self._say(question)
            else:
                newcomers.ask(question)
                self._timer = self._timer or self._loop.call_later(PAUSE, self._pause)

    def _pause(self) -> None:
        waiting = [newcomers.pause() for newcomers in self._newcomers.values()]
        self._timer = self._loop.call_later(PAUSE, self._pause) if any(waiting) else None

    def _say(self, question: Question) -> bool:
        """Answers. Returns whether the client that asked is still there."""
        route, empty, *request = question
        try:
            self._handler.send_multipart([route, empty, *self._reply(request)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        self._loop.call_soon(self._answer)  # sending may have used up the descriptor's signal
        return True

    def _reply(self, request: Sequence[bytes]) -> list[bytes]:
        """Returns a reply by RFC 27: 200 admits, 400 refuses."""
        if len(request) < _REQUEST or request[0] != _VERSION:
            return [_VERSION, request[1] if len(request) > 1 else b"", b"500", b"not understood", b"", b""]
        _, number, _, address, _, mechanism, *credentials = request
        if self._over:
            return [_VERSION, number, b"300", b"stopping", b"", b""]
        name, refusal = self._admission.judge(address.decode(errors="replace"), mechanism, credentials)
        if refusal is None:
            return [_VERSION, number, b"200", b"", name.encode(), b""]
        self._metrics.refused.labels(refusal.value).inc()
        self._limited.warning("client refused", peer=name, why=refusal.value)
        return [_VERSION, number, b"400", refusal.value.encode(), b"", b""]
