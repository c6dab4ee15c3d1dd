"""Logjam's side of `demo`: producers that wait for their answers, and a small device that drops some of what it numbers."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import orjson
import zmq
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import environment
from headrace_logjam.wire import ACCEPTED, REFUSED, Meta, compress, encode_meta, joined, split
from headrace_logjam.wire import Compression as Method
from typing_extensions import override

from headrace_cli.clients.compression import Compression
from headrace_cli.clients.protocols import STREAM, DemoClient, Make, event
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

APP_ENVS: Final = 64
"""App-envs of a `LogjamClient`: more than it may have messages unanswered, so that no two of these have one app-env."""


def message(number: int, *, device: int = 0, sequence: int = 0) -> list[bytes]:
    """The four frames of one event, compressed by each method in turn."""
    now = time.time_ns() // 1_000_000
    body = {"request_id": uuid.uuid4().hex, "started_ms": now, **event(number)}
    method = list(Method)[number % len(Method)]
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


class LogjamClient(DemoClient):
    """A producer that waits for its answers. Its frames and replies are messages as quarantine keeps them: `wire.joined`.

    Answers carry no id and repeat the app-env, so app-envs in turns show which answer is missing.
    """

    def __init__(self, make: Make = event, compression: Compression | None = None) -> None:
        """`compression`: each method in turn if it is None."""
        self._make = make
        methods = list(Method)
        self._methods = methods if compression is None else [Method[compression.method.upper()]]
        self._sent = 0
        self._last: list[bytes] = []  # the app-env of each message of the last frame
        self._waiting: deque[bytes] = deque()

    @override
    def frame(self, first: int, count: int) -> bytes:
        self._last = []
        messages = []
        for number in range(first, first + count):
            app_env = b"headrace-send-%02d" % (self._sent % APP_ENVS)
            now = time.time_ns() // 1_000_000
            body = orjson.dumps({"request_id": uuid.uuid4().hex, "started_ms": now, **self._make(number)})
            method = self._methods[self._sent % len(self._methods)]
            frames = [
                b"",
                app_env,
                b"logs.%s" % STREAM.encode(),
                compress(method, body),
                encode_meta(Meta(method, 0, now)),
            ]
            messages += frames
            self._sent += 1
            self._last.append(app_env)
        self._waiting += self._last
        return joined(messages)

    @override
    def receive(self, data: bytes) -> int:
        """`data`: one answer, whole."""
        name, *said = split(data)
        if not self._waiting:
            raise ProtocolError("an answer, and nothing waits for one")
        if said[:1] == [REFUSED]:
            raise ProtocolError(f"{REFUSED.decode()}: a message that can never be an event")
        if said[:1] != [ACCEPTED]:
            raise ProtocolError(f"{b' '.join(said[:1])[:40]!r}, and no answer of a device")
        if name != self._waiting[0]:
            raise ProtocolError(
                "no answer to the oldest message, and one to a later message: it came too late for that"
            )
        self._waiting.popleft()
        return 1

    @override
    def repeat(self) -> None:
        self._waiting += self._last

    @override
    def greeting(self) -> bytes:
        return b""

    @override
    def again(self) -> None:
        """Nothing of the old connection is answered any more; the order stays."""


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
