"""A client in a pod: sends until SIGTERM, frame by frame, each again until it is acknowledged. Prints what it did, as JSON.

``python traffic.py PROTOCOL HOST PORT FIRST``: its events are numbered from FIRST. It needs only what the image of the tools has.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace_cli.wire.sending import run
from headrace_cli.wire.source import ShopSource, shop_event
from headrace_cli.wire.target import CLIENTS, Target
from headrace_common.session.client import Answer
from headrace_segment.wire import original as segment
from headrace_segment.wire.parser import ReplyParser

EVENTS = 50
PAUSE = 0.05
PATIENCE = 20.0


def shop(first: int, count: int) -> list[Any]:
    return [shop_event(number) for number in range(first, first + count)]


class Stream:
    """A client of a stream protocol, with one connection at a time and one frame on its way."""

    def __init__(self, client: Any, host: str, port: int) -> None:
        self.address = (host, port)
        self.told: Counter[str] = Counter()
        self._client = client
        self._frames = 0
        self._connection: socket.socket | None = None

    def send(self, number: int) -> int:
        """Returns how many events were sent and acknowledged, from `number` on."""
        frame, count = self._client.frame(shop(number, EVENTS)), self._frames
        self._frames += 1
        sent = False
        while True:
            try:
                if self._connection is None:
                    self._connection = socket.create_connection(self.address, PATIENCE)
                    self.told["connections"] += 1
                    self._connection.sendall(self._client.again())
                    if self.stored():
                        return EVENTS
                    self._client.repeat(count)
                    sent = False
                if not sent:
                    self._connection.sendall(frame)
                    sent = True
                data = self._connection.recv(65_536)
                if not data:
                    raise ConnectionError("closed")
                if Answer(count, EVENTS, EVENTS) in self._client.receive(data):
                    return EVENTS
            except OSError as error:
                self.told[type(error).__name__] += 1
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                time.sleep(0.2)

    def stored(self) -> bool:
        """Whether the frame is stored, as the greeting's answer says."""
        return False


class Segment(Stream):
    """A writer of one segment: after each new connection it asks how far its block came."""

    def stored(self) -> bool:
        assert self._connection is not None
        replies = ReplyParser(segment.MESSAGES)
        while True:
            data = self._connection.recv(65_536)
            if not data:
                raise ConnectionError("closed")
            for reply in replies.receive(data):
                if isinstance(reply, segment.AppendSetup):
                    return bool(reply.level == self._client.level)


class Request(ShopSource):
    """One event that is the same bytes however often it is sent, as a device's is. By its id it is known again."""

    def __init__(self, number: int) -> None:
        super().__init__(1)
        own = {"request_id": str(number), "started_ms": time.time_ns() // 1_000_000}
        self._event = {**shop_event(number), **own}

    async def take(self, most: int) -> list[Any]:
        return [self._event for _ in self._next(1 - self.taken)]


class Messages:
    """Logjam's: one message at a time, each over a connection of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.told: Counter[str] = Counter()

    def send(self, number: int) -> int:
        request = Request(number)
        while True:
            request.taken = 0
            if asyncio.run(run(Target("logjam", *self.address), request, patience=5.0)).acknowledged:
                return 1
            self.told["unanswered"] += 1


def main(protocol: str, host: str, port: int, first: int) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    client: Any = Messages(host, port)
    if protocol != "logjam":
        client = (Segment if protocol == "segment" else Stream)(CLIENTS[protocol](), host, port)
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
