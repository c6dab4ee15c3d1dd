"""A client of the real service, as simple as can be: blocking sockets with time-outs."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import msgpack

from tests.contract.waiting import PATIENCE


class Speaker:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._unpacker = msgpack.Unpacker()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def said(self) -> Any:
        """The next object from the server."""
        while True:
            for found in self._unpacker:
                return found
            data = self.socket.recv(4096)
            assert data, "the server has ended"
            self._unpacker.feed(data)

    def acknowledges(self, chunk: Any) -> None:
        assert self.said() == {"ack": chunk}

    def ends(self) -> None:
        """The server has nothing more to say; it may have closed on bytes that it never read."""
        with contextlib.suppress(ConnectionResetError):
            assert self.socket.recv(1) == b""


@contextlib.contextmanager
def speaking(address: tuple[str, int], context: ssl.SSLContext | None = None) -> Iterator[Speaker]:
    """A connection to `address`."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(address, PATIENCE))
        if context is not None:
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname="localhost"))
        yield Speaker(connection)


def good(mark: str) -> bytes:
    return msgpack.packb(["t", 1_700_000_000, {"mark": mark}, {"chunk": "good"}])


def send(address: tuple[str, int], mark: str) -> None:
    """One event over a connection of its own, acknowledged."""
    with speaking(address) as client:
        client.send(good(mark))
        client.acknowledges("good")
