"""The clients that may connect to the sockets, by address and by CURVE key: pyzmq answers libzmq's questions (ZAP, RFC 27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import zmq
from headrace_common.operations.networks import Network, normal, within
from typing_extensions import override
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.utils import z85

Context = zmq.Context[zmq.Socket[bytes]]

DOMAIN: Final = "headrace"
"""The ZAP domain of every socket: libzmq does not ask about the clients of a socket without one."""


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


class _Addresses(set[str]):
    """The addresses in some networks."""

    def __init__(self, networks: Sequence[Network]) -> None:
        super().__init__(map(str, networks))  # empty: all are admitted
        self._networks = networks

    @override
    def __contains__(self, address: object) -> bool:
        return within(normal(str(address)), self._networks)


class Access(AsyncioAuthenticator):
    """Admits clients by address and, with keys, by key. A key's name is the `User-Id` of messages. `start` it before the sockets
    that it guards, `stop` it after them.
    """

    def __init__(self, context: Context, networks: Sequence[Network], clients: Mapping[str, str]) -> None:
        """`clients`: LOGJAM__CURVE_CLIENTS; with any, the sockets must speak CURVE, and libzmq refuses who does not."""
        super().__init__(context)
        self._allowed = _Addresses(networks)
        self._names = {key.encode(): name for name, key in clients.items()}
        self.stopping = False
        """No more clients are answered: they wait until the sockets close, and come to the next process."""
        self.configure_curve_callback(DOMAIN, credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Returns whether a key (Z85) may connect."""
        return key in self._names

    @override
    def curve_user_id(self, client_public_key: bytes) -> str:
        return self._names[z85.encode(client_public_key)]

    @override
    async def handle_zap_message(self, msg: list[bytes]) -> None:
        if not self.stopping:
            await super().handle_zap_message(msg)
