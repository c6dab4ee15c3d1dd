"""Send events over any protocol, as a client that waits for acknowledgements does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from headrace_cli.clients.protocols import DemoClient, DemoForwardClient
from headrace_cli.errors import CommandError

CONNECTIONS: Final = 4
FRAME_EVENTS: Final = 100
WINDOW: Final = 32
ANSWER_SECONDS: Final = 60.0


def send_events(
    listen: str, count: int, progress: Callable[[int], None], client: Callable[[], DemoClient] = DemoForwardClient
) -> int:
    """Send `count` events over several connections, each with its own `client`; return how many were acknowledged.

    Calls `progress` with the number acknowledged so far, from any thread. Raises `CommandError` when the receiver closes
    a connection or does not answer for `ANSWER_SECONDS`.
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
            pool.submit(_run_connection, host, int(port), client(), frames[index::CONNECTIONS], acknowledged)
            for index in range(CONNECTIONS)
        ]
        for each in work:
            each.result()
    return total


def _run_connection(
    host: str, port: int, client: DemoClient, frames: list[tuple[int, int]], acknowledged: Callable[[int], None]
) -> None:
    """Send `frames` over one connection, with at most `WINDOW` frames unacknowledged."""
    waiting = 0  # events that are not acknowledged yet
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
            for index, (first, number) in enumerate(frames):
                connection.sendall(client.frame(first, number))
                waiting += number
                last = index == len(frames) - 1
                while waiting >= WINDOW * FRAME_EVENTS or (last and waiting):
                    data = connection.recv(65_536)
                    if not data:
                        raise CommandError(f"The receiver closed a connection with {waiting} events unacknowledged.")
                    done = client.receive(data)
                    waiting -= done
                    acknowledged(done)
    except OSError as error:
        raise CommandError(f"Sending to {host}:{port} failed: {error}.") from error
