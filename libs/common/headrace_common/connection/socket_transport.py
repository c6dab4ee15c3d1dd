"""The part of a connection that looks at its socket's queue."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import sys
import termios

from typing_extensions import override

from headrace_common.connection.driver import Transport


class SocketTransport(Transport):
    """A stream socket. Set `_transport` when it is connected; `_why` is the metric's label at its end."""

    _transport: asyncio.Transport
    _why: str

    @override
    def unread(self) -> int:
        queued = 0
        with contextlib.suppress(OSError, ValueError):  # the socket is gone
            socket = self._transport.get_extra_info("socket").fileno()
            queued = int.from_bytes(fcntl.ioctl(socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return self._transport.get_write_buffer_size() + queued

    @override
    def drop(self, why: str) -> None:
        self._why = why
        self._transport.abort()
