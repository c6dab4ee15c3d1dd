"""The UDP socket of syslog: read as far as the budgets allow; what the kernel drops meanwhile is counted."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Final

from headrace_common.operations.networks import normal
from headrace_common.operations.sockets import address_of, bound_socket
from headrace_common.receiver import (
    Endpoint,
    Message,
    MessageConnection,
    MessageSocket,
    Peer,
    Reply,
    Runtime,
    ServiceSettings,
)
from typing_extensions import override

from headrace_syslog.metrics import SyslogMetrics
from headrace_syslog.session.plain import DatagramSession
from headrace_syslog.settings import SYSLOG_PORT

LARGEST: Final = 65_535
"""Bytes of a datagram."""

TOGETHER: Final = 64
"""Datagrams that are read in one turn of the event loop."""

BUFFER: Final = 4 << 20
"""Bytes that the kernel is asked to keep of what is not read yet; net.core.rmem_max may allow fewer."""

DROPPED: Final = 40
"""SO_RXQ_OVFL of Linux (asm-generic/socket.h): each datagram tells how many were dropped before it."""

_COUNT: Final = struct.Struct("=I")


class DatagramListener(Endpoint, MessageSocket):
    """Takes datagrams. There is no answer."""

    name = "udp"

    def __init__(self, runtime: Runtime[ServiceSettings], session: DatagramSession) -> None:
        self._runtime = runtime
        self._session = session
        self._dropped = SyslogMetrics(runtime.metrics).dropped
        self._last = 0
        self._socket: socket.socket | None = None
        self._reading = False

    @override
    async def bind(self) -> str:
        listen = self._runtime.settings.listen
        self._socket = bound = bound_socket(listen.host, listen.port or SYSLOG_PORT, "LISTEN", socket.SOCK_DGRAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        if sys.platform == "linux":
            bound.setsockopt(socket.SOL_SOCKET, DROPPED, 1)
        return address_of(bound)

    @override
    def start(self) -> None:
        peer = Peer(self.name, 0, self.name)
        self._connection = MessageConnection(self._runtime.receiver, peer, self._session, self)
        self._runtime.tasks.start(self._serve(), "datagrams")
        self.read(True)

    async def _serve(self) -> None:
        await self._connection.closed.wait()

    @override
    def read(self, allowed: bool) -> None:
        if self._socket is not None and allowed is not self._reading:
            self._reading = allowed
            loop = asyncio.get_running_loop()
            if allowed:
                loop.add_reader(self._socket.fileno(), self._read, self._socket)
            else:
                loop.remove_reader(self._socket.fileno())

    def _read(self, bound: socket.socket) -> None:
        found: list[Message] = []
        while len(found) < TOGETHER:
            try:
                data, about, _, address = bound.recvmsg(LARGEST, socket.CMSG_SPACE(_COUNT.size))
            except OSError:
                break
            for level, kind, value in about:
                if (level, kind) == (socket.SOL_SOCKET, DROPPED):
                    (dropped,) = _COUNT.unpack(value)
                    self._dropped.inc((dropped - self._last) & 0xFFFF_FFFF)
                    self._last = dropped
            found.append(Message((data,), address=normal(address[0])))
        if found:
            self._connection.received(found)

    @override
    def send(self, reply: Reply) -> None:
        raise AssertionError("nothing is answered")

    @override
    async def close(self) -> None:
        """Reads what has come once more, and closes the socket."""
        if self._socket is not None:
            if self._reading:
                self._read(self._socket)
            self.read(False)
            self._socket.close()
            self._socket = None
