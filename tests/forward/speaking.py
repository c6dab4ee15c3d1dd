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

    def raw(self, size: int) -> bytes:
        """So many bytes, fewer when the server has ended."""
        data = b""
        while len(data) < size and (piece := self.socket.recv(size - len(data))):
            data += piece
        return data

    def said(self) -> bytes:
        """One msgpack object from the server, as it stands; empty when the server has ended."""
        data = b""
        while True:
            piece = self.socket.recv(1)
            data += piece
            if not piece:
                return data
            with contextlib.suppress(ValueError, msgpack.UnpackException):
                msgpack.unpackb(data, raw=True)
                return data

    def acknowledges(self, chunk: Any) -> None:
        assert msgpack.unpackb(self.said()) == {"ack": chunk}

    def ends(self) -> None:
        """The server has nothing more to say; it may have closed on bytes that it never read."""
        with contextlib.suppress(ConnectionResetError):
            assert self.socket.recv(1) == b""


@contextlib.contextmanager
def speaking(address: tuple[str, int], context: ssl.SSLContext | None = None, first: bytes = b"") -> Iterator[Speaker]:
    """A connection to `address`; `first` is sent before TLS, if there is TLS."""
    with socket.create_connection(address, PATIENCE) as connection:
        if first:
            connection.sendall(first)
        if context is None:
            yield Speaker(connection)
        else:
            with context.wrap_socket(connection, server_hostname="localhost") as wrapped:
                yield Speaker(wrapped)


def good(mark: str) -> bytes:
    return msgpack.packb(["t", 1_700_000_000, {"mark": mark}, {"chunk": "good"}])


def send(address: tuple[str, int], mark: str, context: ssl.SSLContext | None = None, first: bytes = b"") -> None:
    """One event over a connection of its own, acknowledged."""
    with speaking(address, context, first) as client:
        client.send(good(mark))
        client.acknowledges("good")
