"""The UDP socket of syslog: read as far as the budgets allow; what the kernel drops meanwhile is counted."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Final

from headrace_common.listening.datagrams import DatagramEndpoint
from headrace_common.operations.networks import normal
from headrace_common.receiver import Message, MessageConnection, MessageSocket, Peer, Reply, Runtime, ServiceSettings
from typing_extensions import override

from headrace_syslog.session import DatagramSession

LARGEST: Final = 65_535
"""Bytes of a datagram."""

TOGETHER: Final = 64
"""Datagrams that are read in one turn of the event loop."""

BUFFER: Final = 4 << 20
"""Bytes that the kernel is asked to keep of what is not read yet; net.core.rmem_max may allow fewer."""

DROPPED: Final = 40
"""SO_RXQ_OVFL of Linux (asm-generic/socket.h): each datagram tells how many were dropped before it."""


class DatagramListener(DatagramEndpoint, MessageSocket):
    """Takes datagrams. There is no answer."""

    name = "udp"

    def __init__(
        self, runtime: Runtime[ServiceSettings], port: int, session: DatagramSession, dropped: Callable[[int], None]
    ) -> None:
        """`port`: the protocol's own; `dropped` counts what the kernel dropped."""
        super().__init__(runtime.settings.listen, port)
        self._runtime = runtime
        self._session = session
        self._dropped = dropped
        self._last = 0

    @override
    async def bind(self) -> str:
        address = await super().bind()
        assert self._socket is not None
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, DROPPED, 1)
        return address

    @override
    def start(self) -> None:
        peer = Peer(self.name, 0, self.name)
        self._connection = MessageConnection(self._runtime.receiver, peer, self._session, self)
        self._runtime.tasks.start(self._connection.closed.wait(), "datagrams")
        self.read(True)

    @override
    def arrived(self, bound: socket.socket) -> None:
        found: list[Message] = []
        with contextlib.suppress(OSError):  # none is left
            while len(found) < TOGETHER:
                data, about, _, address = bound.recvmsg(LARGEST, socket.CMSG_SPACE(4))
                found.append(Message((data,), address=normal(address[0])))
                for level, kind, value in about:
                    if (level, kind) == (socket.SOL_SOCKET, DROPPED):
                        dropped = int.from_bytes(value, sys.byteorder)
                        self._dropped((dropped - self._last) & 0xFFFF_FFFF)
                        self._last = dropped
        if found:
            self._connection.received(found)

    @override
    def send(self, reply: Reply) -> None:
        raise AssertionError("nothing is answered")
