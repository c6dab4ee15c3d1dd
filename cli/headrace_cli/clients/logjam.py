"""Logjam's side of `demo`: producers that wait for their answers, and a small device that drops some of what it numbers."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import orjson
import zmq
from headrace_common.operations.settings import environment
from headrace_logjam.wire import ACCEPTED, Compression, Meta, compress, encode_meta

from headrace_cli.clients.protocols import event
from headrace_cli.clients.traffic import ANSWER_SECONDS, CONNECTIONS
from headrace_cli.errors import CommandError

APP_ENV: Final = b"shop-demo"
TOPIC: Final = b"logs.shop.demo"
WINDOW: Final = 200
"""Messages of a producer that are not answered yet, at most."""

DEVICE: Final = 1
NUMBERS: Final = 100
DROPPED: Final = range(41, 51)
"""The device's own number; the numbers that it gives, and those of messages that it drops."""

JOIN_SECONDS: Final = 60.0


def message(number: int, *, device: int = 0, sequence: int = 0) -> list[bytes]:
    """The four frames of one event, compressed by each method in turn."""
    now = time.time_ns() // 1_000_000
    body = {"request_id": uuid.uuid4().hex, "started_ms": now, **event(number)}
    method = list(Compression)[number % len(Compression)]
    return [APP_ENV, TOPIC, compress(method, orjson.dumps(body)), encode_meta(Meta(method, device, now, sequence))]


def send_messages(listen: str, count: int, progress: Callable[[int], None]) -> int:
    """Send `count` events over several DEALER sockets; return how many were accepted.

    Calls `progress` with the number accepted so far, from any thread. Raises `CommandError` when the receiver refuses one or
    does not answer for `ANSWER_SECONDS`.
    """
    lock = threading.Lock()
    total = 0

    def accepted() -> None:
        nonlocal total
        with lock:
            total += 1
            progress(total)

    def produce(numbers: range) -> None:
        with zmq.Context() as context, context.socket(zmq.DEALER) as client:
            client.setsockopt(zmq.LINGER, 0)
            client.setsockopt(zmq.RCVTIMEO, int(ANSWER_SECONDS * 1000))
            client.connect(f"tcp://{listen}")
            waiting = 0
            for number in numbers:
                client.send_multipart([b"", *message(number)])
                waiting += 1
                while waiting >= WINDOW or (waiting and number == numbers[-1]):
                    _hear(client, listen)
                    waiting -= 1
                    accepted()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for work in [pool.submit(produce, range(index, count, CONNECTIONS)) for index in range(CONNECTIONS)]:
            work.result()
    return total


def _hear(client: zmq.Socket[bytes], listen: str) -> None:
    try:
        answer = client.recv_multipart()
    except zmq.Again:
        raise CommandError(f"The receiver at {listen} did not answer for {ANSWER_SECONDS:.0f} s.") from None
    if answer != [APP_ENV, ACCEPTED]:
        raise CommandError(f"The receiver at {listen} answered {answer!r}.")


class DemoDevice:
    """Publishes as a logjam-device does, to one consumer."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)  # a PUB that hears when a consumer has come
        self._socket.setsockopt(zmq.RCVTIMEO, int(JOIN_SECONDS * 1000))
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.environment = environment("logjam", endpoints=json.dumps({"demo": f"tcp://127.0.0.1:{port}"}))
        """What makes a receiver consume it."""

    def publish(self) -> int:
        """Publish, and drop what is in `DROPPED`. Return how many records Kafka must get: the rest, and one marker.

        Raises `CommandError` when no consumer comes within `JOIN_SECONDS`.
        """
        try:
            self._socket.recv()
        except zmq.Again:
            raise CommandError("The receiver did not connect to the demo's device.") from None
        for number in range(1, NUMBERS + 1):
            if number not in DROPPED:
                self._socket.send_multipart(message(number, device=DEVICE, sequence=number))
        return NUMBERS - len(DROPPED) + 1

    def close(self) -> None:
        """Closes its socket."""
        self._context.destroy(linger=0)
