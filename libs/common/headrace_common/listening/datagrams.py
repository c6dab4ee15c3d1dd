"""A UDP socket as an endpoint."""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod

from typing_extensions import override

from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.settings import ListenSettings
from headrace_common.operations.sockets import address_of, bound_socket


class DatagramEndpoint(Endpoint):
    """A UDP socket, which is read while that is allowed."""

    def __init__(self, listen: ListenSettings, port: int) -> None:
        """`port`: the protocol's own, used if the settings name none."""
        self._address = listen.host, listen.port or port
        self._socket: socket.socket | None = None
        self._reading = False

    @override
    async def bind(self) -> str:
        self._socket = bound_socket(*self._address, "LISTEN", socket.SOCK_DGRAM)
        return address_of(self._socket)

    def read(self, allowed: bool) -> None:
        """Resumes or stops reading. While it is stopped, datagrams stay in the kernel's buffer, which drops what is too much."""
        if self._socket is not None and allowed is not self._reading:
            self._reading, loop = allowed, asyncio.get_running_loop()
            if allowed:
                loop.add_reader(self._socket, self.arrived, self._socket)
            else:
                loop.remove_reader(self._socket)

    @abstractmethod
    def arrived(self, bound: socket.socket) -> None:
        """Reads datagrams that wait, at most for some milliseconds. The socket does not block."""

    @override
    async def close(self) -> None:
        """Reads what has come once more, if that is allowed, and closes the socket."""
        if self._socket is not None:
            if self._reading:
                self.arrived(self._socket)
            self.read(False)
            self._socket.close()
            self._socket = None
