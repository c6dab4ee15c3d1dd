"""Send one event over any protocol and wait for its acknowledgement."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import orjson
import zmq
from headrace_logjam import wire as logjam

from headrace_cli.clients.protocols import DEMO_CLIENTS, STREAM, DemoClient, event
from headrace_cli.errors import CommandError

SendOne = Callable[[str, int, int, ssl.SSLContext | None, float], None]
"""Sends the event of that number to (host, port) and returns when it is acknowledged.

Blocks for at most about so many seconds in each of its steps. Raises `CommandError`, or `OSError` for the network's errors.
"""


def _over_stream(
    client: Callable[[], DemoClient], host: str, port: int, number: int, tls: ssl.SSLContext | None, seconds: float
) -> None:
    talking = client()
    with ExitStack() as stack:
        connection: socket.socket = stack.enter_context(socket.create_connection((host, port), seconds))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
        connection.sendall(talking.frame(number, 1))
        while True:
            data = connection.recv(65_536)
            if not data:
                raise CommandError("it closed the connection without an acknowledgement")
            if talking.receive(data):
                return


def _over_logjam(host: str, port: int, number: int, tls: ssl.SSLContext | None, seconds: float) -> None:
    """As an agent's DEALER. ZeroMQ has no TLS, so `tls` means nothing to it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RCVTIMEO, int(seconds * 1000))
        dealer.connect(f"tcp://{host}:{port}")
        body = orjson.dumps({**event(number), "request_id": f"headrace-{number:024x}"})
        meta = logjam.encode_meta(logjam.Meta())
        dealer.send_multipart([b"", b"headrace-smoke", f"logs.{STREAM}".encode(), body, meta])
        try:
            answer = dealer.recv_multipart()
        except zmq.Again:
            raise CommandError("it did not answer") from None
        if answer[-1] != logjam.ACCEPTED:
            raise CommandError(f"it answered {answer[-1].decode(errors='replace')}")
    finally:
        context.destroy(linger=0)


SEND_ONE: Final[Mapping[str, SendOne]] = {
    **{name: partial(_over_stream, client) for name, client in DEMO_CLIENTS.items()},
    "logjam": _over_logjam,
}
"""By protocol."""
