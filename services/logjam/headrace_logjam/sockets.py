"""The sockets of ZeroMQ that clients connect to: producers', with at most `peer_messages` unread of each, and subscribers'."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import zmq
from headrace_common.connection.messages import MessageConnection
from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.sockets import address_of, bound_socket
from headrace_common.operations.tasks import own_name
from headrace_common.service.parts import OwnParts, Runtime
from headrace_common.session.interface import Peer
from typing_extensions import override

from headrace_logjam.access import DOMAIN, Access, Context, CurvePair
from headrace_logjam.devices.endpoints import Subscription
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers import Doors, ReceivedMessage
from headrace_logjam.publication import BEAT, Publication
from headrace_logjam.reading import ALIVE, ReadSocket
from headrace_logjam.session import ProducerSession
from headrace_logjam.settings import PORT, LogjamSettings

BACKLOG: Final = 1024
LINGER_MS: Final = 1000
"""Milliseconds that answers and publications may take to leave when the service ends."""

ANSWERS: Final = 10_000
"""Answers that ZeroMQ keeps for one client; it drops further ones. A batch of Kafka answers all its messages at once: with 1,000,
libzmq's own number, a client with 800 messages on their way lost some, and waited in vain.
"""

AHEAD: Final = 384 << 10
"""Bytes of messages that one socket of producers hands on before Kafka has stored them: of small ones about 500. ZeroMQ takes the
clients in turn, and read messages wait in one line. So about this much of others' goes before a client's.
"""

LAST_READING: Final = 2.0
"""Seconds that a stopping service still reads."""


class Sockets(OwnParts):
    """All sockets: one that answers; one that does not and one that publishes, unless their ports are 0; and the endpoints'.

    Opens access, connects to the devices, and ends ZeroMQ when nothing is left to answer or to store.
    """

    def __init__(self, runtime: Runtime[LogjamSettings]) -> None:
        self.runtime = runtime
        self.settings = runtime.settings
        self.metrics = LogjamMetrics(runtime.metrics)
        self.context: Context = zmq.Context()
        self.opened: list[MessageConnection] = []
        """Those of producers."""
        logjam = self.settings.logjam
        self.keys = CurvePair.of(logjam.curve_secret_key.get_secret_value())
        self.access = Access(self.context, logjam.allow, logjam.curve_clients)
        self.doors = Doors(self.context, runtime.receiver, self.metrics)
        pub = PubSocket(self) if logjam.pub_port else None
        self.listeners: list[BoundSocket] = [ProducerSocket(self, self.settings.listen.port or PORT, pub, answers=True)]
        if logjam.pull_port:
            self.listeners.append(ProducerSocket(self, logjam.pull_port, pub, answers=False))
        if pub is not None:
            self.listeners.append(pub)
        lost = self.metrics.lost_messages
        self._subscriptions = [
            Subscription(runtime, lost.labels(name).inc, self.context, self.keys, name, address)
            for name, address in logjam.endpoints.items()
        ]

    @override
    async def start(self) -> None:
        logjam = self.settings.logjam
        if not (logjam.allow or logjam.curve_clients):
            self.runtime.log.warning(
                "any host that reaches the ports may connect", set="LOGJAM__ALLOW, or LOGJAM__CURVE_CLIENTS"
            )
        self.access.start()
        self.runtime.tasks.start(self.doors.watch(), "peers")
        for each in self._subscriptions:
            each.start()

    async def read_last(self) -> None:
        """Takes no more clients on any socket, and reads what those that are there have sent. Later calls do nothing."""
        if self.opened and not self.access.stopping:
            self.access.stopping = True  # libzmq would end all connections with the address
            for connection in self.opened:
                connection.read_all()
            await asyncio.sleep(LAST_READING)

    @override
    async def stop(self) -> None:
        for bound in self.listeners:
            bound.end()
        for each in self._subscriptions:
            each.end()
        self.doors.close()
        self.access.stop()
        await asyncio.to_thread(self.context.term)


class BoundSocket(Endpoint):
    """A socket that clients connect to. It takes its address early and listens when Kafka is there."""

    def __init__(self, around: Sockets, port: int, setting: str) -> None:
        self._around = around
        self._port = port
        self._setting = setting
        self._bound: socket.socket | None = None

    @override
    async def bind(self) -> str:
        self._bound = bound_socket(self._around.settings.listen.host, self._port, self._setting)
        return address_of(self._bound)

    def listen(
        self, kind: int, options: Mapping[int, int]
    ) -> tuple[zmq.Socket[bytes], Callable[[Sequence[ReceivedMessage]], None]]:
        """Returns the socket, and what must be told of each message that is read of it. Raises `ConfigError`."""
        assert self._bound is not None
        around, limits = self._around, self._around.settings.limits
        address = address_of(self._bound)
        try:
            self._bound.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(f"{address}: {error.strerror or error}") from error
        made = around.context.socket(kind)
        for option, value in {
            zmq.MAXMSGSIZE: limits.frame_bytes,
            zmq.LINGER: LINGER_MS,
            zmq.HANDSHAKE_IVL: int(limits.handshake_time * 1000),
            **ALIVE,
            zmq.IPV6: int(self._bound.family == socket.AF_INET6),
            **options,
        }.items():
            made.setsockopt(option, value)
        if around.settings.logjam.curve_clients:
            around.keys.serve(made)
        made.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())
        heard = around.doors.guard(made, self.name)
        made.setsockopt(zmq.USE_FD, self._bound.detach())
        made.bind(f"tcp://{address}")
        self._bound = None
        return made, heard

    @override
    async def close(self) -> None:
        """Closes the address unless it listens already. Subscribers stay until `end`, for records that are stored until then."""
        if self._bound is not None:
            self._bound.close()

    def end(self) -> None:
        """Closes the socket. Messages that were sent still leave."""


class PubSocket(BoundSocket):
    """A socket for subscribers, which get what is stored."""

    name = "pub"

    def __init__(self, around: Sockets) -> None:
        settings = around.settings.logjam
        super().__init__(around, settings.pub_port, "LOGJAM__PUB_PORT")
        address = settings.pub_address or f"tcp://{own_name()}:{settings.pub_port}"
        self._publication = Publication(settings.device, address.encode())
        self._socket: zmq.Socket[bytes] | None = None

    @override
    def start(self) -> None:
        self._socket, _ = self.listen(zmq.PUB, {zmq.SNDHWM: self._around.settings.logjam.pub_messages})
        self._around.runtime.tasks.start(self._beat(), "heartbeats")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._send(self._publication.heartbeat(time.time_ns() // 1_000_000))

    def publish(self, frames: Sequence[bytes], received_ms: int) -> None:
        """Publishes a producer's message that is stored. A subscriber that is away or too slow does not get it."""
        self._send(self._publication.message(frames, received_ms))

    def _send(self, message: Sequence[bytes]) -> None:
        if self._socket is not None:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.send_multipart(message, zmq.NOBLOCK)

    @override
    def end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class ProducerSocket(BoundSocket):
    """A socket that producers connect to. `answers`: they can be answered. `pub`: publishes their messages."""

    def __init__(self, around: Sockets, port: int, pub: PubSocket | None, *, answers: bool) -> None:
        super().__init__(around, port, "LISTEN" if answers else "LOGJAM__PULL_PORT")
        self.name = "listen" if answers else "pull"
        self._answers = answers
        named = "User-Id" if around.settings.logjam.curve_clients else "Peer-Address"
        self._read = ReadSocket(routed=answers, named=named, most=around.settings.limits.frame_bytes)
        self._publish = None if pub is None else pub.publish

    @override
    def start(self) -> None:
        runtime, settings = self._around.runtime, self._around.settings
        marks: dict[int, int] = {zmq.RCVHWM: settings.logjam.peer_messages, zmq.SNDHWM: ANSWERS}
        made, self._read.heard = self.listen(zmq.ROUTER if self._answers else zmq.PULL, marks)
        session = ProducerSession(
            settings.limits,
            answers=self._answers,
            host=own_name().encode(),
            publish=self._publish,
        )
        connection = MessageConnection(runtime.receiver, Peer(self.name, 0, self.name), session, self._read, AHEAD)
        self._read.open(made, connection)
        self._around.opened.append(connection)
        runtime.tasks.start(connection.closed.wait(), self.name)

    @override
    async def close(self) -> None:
        await super().close()
        await self._around.read_last()

    @override
    def end(self) -> None:
        self._read.end()
