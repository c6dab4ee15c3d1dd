"""How the clients of a socket that ends are made to leave it, with nothing lost that they have sent.

ZeroMQ has no word for it. But a client whose connection says that nothing more comes (FIN) ends it, and connects again to whoever
is there then. What it has sent is read up to its own FIN; were the connection closed, that would be lost.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import termios
from typing import Final

DESCRIPTORS: Final = "/dev/fd"


def half_close(port: int) -> set[object]:
    """Sends FIN to each client of `port` of which nothing waits in the kernel: libzmq drops what it has not read when both sides
    have said that. Returns the addresses of all that are connected.
    """
    found = set()
    for name in os.listdir(DESCRIPTORS):
        connection = _connection(int(name), port)
        if connection is not None:
            with connection:
                try:
                    found.add(connection.getpeername())
                    if not _waiting(connection):
                        connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it has just ended
    return found


def _connection(descriptor: int, port: int) -> socket.socket | None:
    """A copy of the descriptor, if it is a connection of this port. ZeroMQ's thread may close the original meanwhile."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        return None
    try:
        found = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    try:
        internet = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
        if (
            internet
            and found.getsockname()[1] == port
            and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            return found
    except OSError:
        pass
    found.close()
    return None


def _waiting(connection: socket.socket) -> int:
    """Bytes that have come and are not read."""
    waiting = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, waiting)
    return waiting[0]
