"""A client in a pod: sends until SIGTERM, frame by frame, each again until it is acknowledged. Prints what it did, as JSON.

``python traffic.py PROTOCOL HOST PORT FIRST``: its events are numbered from FIRST. It needs only what the image of the tools has.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
from headrace_cli.clients.protocols import DEMO_CLIENTS, STREAM, event
from headrace_cli.clients.single import SEND_ONE
from headrace_cli.errors import CommandError
from headrace_courier import wire as courier
from headrace_segment.wire import original as segment
from headrace_segment.wire.replies import Replies

EVENTS = 50
PAUSE = 0.05
PATIENCE = 20.0


class Stream:
    """A client of a stream protocol, with one connection at a time and one frame on its way."""

    def __init__(self, protocol: str, host: str, port: int) -> None:
        self.address = (host, port)
        self.told: Counter[str] = Counter()
        self._hello = courier.identity(b"HELO", "2.12.0", b"LCOR") if protocol == "courier" else b""
        self._client: Any = DEMO_CLIENTS[protocol]()
        self._connection: socket.socket | None = None
        self._said_hello = True  # the first frame does

    def send(self, number: int) -> int:
        """Returns how many events were sent and acknowledged, from `number` on."""
        frame = self._client.frame(number, EVENTS)
        sent = False
        while True:
            try:
                if self._connection is None:
                    self._connection = socket.create_connection(self.address, PATIENCE)
                    self.told["connections"] += 1
                    self._client._replies = type(self._client._replies)()
                    sent = False
                if not sent:
                    self._connection.sendall(frame if self._said_hello else self._hello + frame)
                    self._said_hello = sent = True
                data = self._connection.recv(65_536)
                if not data:
                    raise ConnectionError("closed")
                if self._client.receive(data):
                    return EVENTS
            except OSError as error:
                self.told[type(error).__name__] += 1
                if self._connection is not None:
                    self._connection.close()
                self._connection, self._said_hello = None, False
                time.sleep(0.2)


class Segment:
    """A writer of one segment: after each new connection it asks how far its block came."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.told: Counter[str] = Counter()
        self._writer = os.urandom(16)
        self._level = 0
        self._connection: socket.socket | None = None

    def send(self, number: int) -> int:
        encode = segment.MESSAGES.encode
        content = b"".join(encode(segment.Event(orjson.dumps(event(number + index)))) for index in range(EVENTS))
        before, self._level = self._level, self._level + len(content)
        block = encode(segment.BeginAppendBlock(self._writer, before, len(content))) + content
        block += encode(segment.EndAppendBlock(self._writer, self._level, len(content)))
        while True:
            try:
                if self._connection is None:
                    self._connection = socket.create_connection(self.address, PATIENCE)
                    self.told["connections"] += 1
                    self._replies = Replies()
                    self._connection.sendall(encode(segment.SetupAppend(self._writer, STREAM)))
                    if self._hear(segment.AppendSetup) == self._level:
                        return EVENTS
                self._connection.sendall(block)
                while self._hear(segment.DataAppended) < self._level:
                    pass
                return EVENTS
            except OSError as error:
                self.told[type(error).__name__] += 1
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                time.sleep(0.2)

    def _hear(self, kind: type[Any]) -> int:
        """The level in the next message of that kind."""
        assert self._connection is not None
        while True:
            data = self._connection.recv(65_536)
            if not data:
                raise ConnectionError("closed")
            for reply in self._replies.receive(data):
                if isinstance(reply, kind):
                    return int(reply.level)


class Messages:
    """Logjam's: one message at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.told: Counter[str] = Counter()

    def send(self, number: int) -> int:
        while True:
            try:
                SEND_ONE["logjam"](*self.address, number, None, 5.0)
            except CommandError:
                self.told["unanswered"] += 1
            else:
                return 1


def main(protocol: str, host: str, port: int, first: int) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    own = {"logjam": Messages, "segment": Segment}
    client: Any = own[protocol](host, port) if protocol in own else Stream(protocol, host, port)
    send: Callable[[int], int] = client.send
    number, longest = first, 0.0
    while not stopped:
        began = time.monotonic()
        number += send(number)
        longest = max(longest, time.monotonic() - began)
        time.sleep(PAUSE)
    print(json.dumps({"acknowledged": number - first, "longest_wait": round(longest, 2), **client.told}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
