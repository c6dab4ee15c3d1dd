"""A connection's descriptor, which libzmq has accepted and will close: it is queried and shut down here, never closed."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
from typing import Final, NamedTuple

from headrace_common.operations.networks import normal

_INFO: Final = struct.Struct("=B119xQQ")
"""tcpi_state, tcpi_bytes_acked and tcpi_bytes_received of linux/tcp.h's struct tcp_info."""

_CLOSED: Final = 7  # TCP_CLOSE
_INT: Final = struct.Struct("=i")
_NOBODY: Final = ("", 0)


class Traffic(NamedTuple):
    """Bytes of a connection since it began: `taken` by its peer, `received` from it. `over`: its peer, or TCP, has ended it."""

    taken: int
    received: int
    over: bool = False


class Descriptor:
    """Call `forget` before it is collected: Python closes a collected socket."""

    def __init__(self, number: int, family: int) -> None:
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):  # closed already
            self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=number)
        self._peer = self._name()

    @property
    def address(self) -> str:
        """The peer's address; empty if it had gone already."""
        return self._peer[0]

    def _name(self) -> tuple[str, int]:
        if self._socket is None:
            return _NOBODY
        try:
            host, port, *_ = self._socket.getpeername()
        except OSError:
            return _NOBODY
        return normal(host), port

    def traffic(self) -> Traffic | None:
        """Returns the bytes that have passed by now; None if the connection has ended."""
        if self._socket is None:
            return None
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        except OSError:
            return None
        state, taken, received = _INFO.unpack(info)
        return Traffic(taken, received, state == _CLOSED)

    def unread(self) -> int:
        """Returns the bytes that the kernel has received and libzmq has not read."""
        if self._socket is None:
            return 0
        try:
            (size,) = _INT.unpack(fcntl.ioctl(self._socket, termios.FIONREAD, bytes(_INT.size)))
        except OSError:
            return 0
        return int(size)

    def shut(self, how: int = socket.SHUT_RDWR) -> None:
        """Ends the connection, or one direction of it, if it is still the accepted one: libzmq may have closed it and not
        reported that yet.
        """
        if self._socket is not None and self._name() == self._peer != _NOBODY:
            with contextlib.suppress(OSError):
                self._socket.shutdown(how)

    def forget(self) -> None:
        """Forgets a connection that has ended."""
        if self._socket is not None:
            self._socket.detach()
