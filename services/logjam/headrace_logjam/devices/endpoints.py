"""The sockets that receive from devices. ZeroMQ connects, and reconnects; a silent endpoint is named in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import zmq
from headrace_common.connection.messages import MessageConnection
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.tasks import own_name
from headrace_common.service.parts import Runtime
from headrace_common.session.interface import Peer

from headrace_logjam.access import Context, CurvePair
from headrace_logjam.devices.consumer import ConsumerSession
from headrace_logjam.peers import monitor
from headrace_logjam.reading import ALIVE, ReadSocket
from headrace_logjam.settings import LogjamSettings

SILENCE: Final = 30.0
"""Seconds without a message, while the socket is read, after which an endpoint is called silent. A device speaks every 5 s; TCP
finds one whose machine is gone.
"""

RECONNECT_MS: Final = 100
LAST_RECONNECT_MS: Final = 10_000


class Subscription:
    """One endpoint: all that its devices publish."""

    def __init__(
        self,
        runtime: Runtime[LogjamSettings],
        lost: Callable[[int], None],
        context: Context,
        keys: CurvePair,
        name: str,
        address: str,
    ) -> None:
        """`lost` is called with how many numbers are. `keys`: ours, where the device speaks CURVE."""
        self._runtime = runtime
        self._lost = lost
        self._context = context
        self._keys = keys
        self.name = name
        self._address = address
        self._read = ReadSocket(routed=False, before=self._ended)
        self._session: ConsumerSession  # from `start` on, as the others
        self._connection: MessageConnection
        self._monitor: zmq.Socket[bytes] | None = None

    def _connect(self) -> zmq.Socket[bytes]:
        settings = self._runtime.settings
        made = self._context.socket(zmq.SUB)
        for option, value in (
            (zmq.MAXMSGSIZE, settings.limits.frame_bytes),
            (zmq.RCVHWM, settings.logjam.endpoint_messages),
            (zmq.LINGER, 0),
            *ALIVE.items(),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, LAST_RECONNECT_MS),
        ):
            made.setsockopt(option, value)
        server = settings.logjam.curve_devices.get(self.name)
        if server is not None:
            self._keys.ask(made, server)
        made.setsockopt(zmq.SUBSCRIBE, b"")
        self._monitor = monitor(self._context, made, f"endpoint.{self.name}", zmq.EVENT_DISCONNECTED)
        try:
            made.connect(self._address)
        except zmq.ZMQError as error:
            made.close()
            raise ConfigError(f"LOGJAM__ENDPOINTS {self.name}: {self._address}: {error}") from error
        return made

    def start(self) -> None:
        """Connects, and reads. Raises `ConfigError` for an invalid address."""
        runtime, settings, made = self._runtime, self._runtime.settings, self._connect()
        consumer = settings.logjam.consumer or own_name()
        self._session = ConsumerSession(self.name, consumer, settings.limits, self._lost)
        peer = Peer(self._address, 0, self.name)
        self._connection = MessageConnection(runtime.receiver, peer, self._session, self._read)
        self._read.open(made, self._connection)
        runtime.tasks.start(self._watch(), f"endpoint {self.name}")

    def end(self) -> None:
        """Closes the socket: nothing is pending."""
        self._read.end()
        if self._monitor is not None:  # it was started
            self._monitor.close()

    def _ended(self) -> None:
        """Tells the session of the connections that have ended since the last call."""
        assert self._monitor is not None
        with contextlib.suppress(zmq.Again):
            while True:
                self._monitor.recv_multipart(zmq.NOBLOCK)
                self._session.ended()

    async def _watch(self) -> None:
        """Says so while nothing comes, until the connection has ended."""
        closed = self._connection.closed
        while not closed.is_set():
            began = asyncio.get_running_loop().time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), SILENCE)
            if self._read.reading and self._read.last < began:
                self._runtime.log.warning("endpoint is silent", endpoint=self.name, address=self._address)
