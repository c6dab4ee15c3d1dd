"""Events over Forward, as a client that wants acknowledgements sends them."""

from __future__ import annotations

import base64
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from headrace_forward.wire import EventTime, Mode, Replies, encode

from headrace_cli.errors import CommandError

CONNECTIONS: Final = 4
FRAME_EVENTS: Final = 100
WINDOW: Final = 32
ANSWER_SECONDS: Final = 60.0

_LEVELS: Final = ("info", "info", "info", "warn", "error")
_PATHS: Final = ("/", "/login", "/cart", "/checkout", "/search", "/api/v1/orders")


def events(first: int, count: int) -> list[tuple[EventTime, Mapping[str, Any]]]:
    """`count` different events of a web shop's log, numbered from `first`, at the present time."""
    now = time.time_ns()
    found: list[tuple[EventTime, Mapping[str, Any]]] = []
    for number in range(first, first + count):
        at = now + number
        found.append(
            (
                EventTime(at // 10**9, at % 10**9),
                {
                    "n": number,
                    "level": _LEVELS[number % len(_LEVELS)],
                    "path": _PATHS[number % len(_PATHS)],
                    "ms": number * 7919 % 1000,
                    "message": f"request {number} served",
                },
            )
        )
    return found


def send_events(listen: str, count: int, progress: Callable[[int], None]) -> int:
    """Send `count` events over several connections, half of the frames compressed; how many were acknowledged.

    `progress` is called with the number so far, from any thread. Raises `CommandError` when the receiver closes a
    connection, or does not answer for `ANSWER_SECONDS`.
    """
    host, _, port = listen.rpartition(":")
    frames = [(first, min(FRAME_EVENTS, count - first)) for first in range(0, count, FRAME_EVENTS)]
    lock = threading.Lock()
    total = 0

    def acknowledged(number: int) -> None:
        nonlocal total
        with lock:
            total += number
            progress(total)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        work = [
            pool.submit(_converse, host, int(port), frames[index::CONNECTIONS], acknowledged)
            for index in range(CONNECTIONS)
        ]
        for each in work:
            each.result()
    return total


def _converse(host: str, port: int, frames: list[tuple[int, int]], acknowledged: Callable[[int], None]) -> None:
    """One connection: every frame with a chunk of its own, at most `WINDOW` of them not yet acknowledged."""
    replies = Replies()
    waiting: dict[str | bytes, int] = {}
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
            for index, (first, number) in enumerate(frames):
                chunk = base64.b64encode(os.urandom(16)).decode()
                mode: Mode = "CompressedPackedForward" if index % 2 else "PackedForward"
                connection.sendall(encode("demo.shop", events(first, number), mode=mode, chunk=chunk))
                waiting[chunk] = number
                last = index == len(frames) - 1
                while len(waiting) >= WINDOW or (last and waiting):
                    data = connection.recv(65_536)
                    if not data:
                        raise CommandError(
                            f"The receiver closed a connection with {len(waiting)} frames unacknowledged."
                        )
                    for acked in replies.receive(data):
                        acknowledged(waiting.pop(acked))
    except OSError as error:
        raise CommandError(f"Sending to {host}:{port} failed: {error}.") from error
