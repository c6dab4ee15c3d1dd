"""Events over any protocol, as a client that wants acknowledgements sends them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from headrace_cli.errors import CommandError
from headrace_cli.speakers import ForwardSpeaker, Speaker

CONNECTIONS: Final = 4
FRAME_EVENTS: Final = 100
WINDOW: Final = 32
ANSWER_SECONDS: Final = 60.0


def send_events(
    listen: str, count: int, progress: Callable[[int], None], speaker: Callable[[], Speaker] = ForwardSpeaker
) -> int:
    """Send `count` events over several connections, each with its own `speaker`; how many were acknowledged.

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
            pool.submit(_converse, host, int(port), speaker(), frames[index::CONNECTIONS], acknowledged)
            for index in range(CONNECTIONS)
        ]
        for each in work:
            each.result()
    return total


def _converse(
    host: str, port: int, speaker: Speaker, frames: list[tuple[int, int]], acknowledged: Callable[[int], None]
) -> None:
    """One connection: at most `WINDOW` frames not yet acknowledged."""
    waiting = 0  # events
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
            for index, (first, number) in enumerate(frames):
                connection.sendall(speaker.frame(first, number))
                waiting += number
                last = index == len(frames) - 1
                while waiting >= WINDOW * FRAME_EVENTS or (last and waiting):
                    data = connection.recv(65_536)
                    if not data:
                        raise CommandError(f"The receiver closed a connection with {waiting} events unacknowledged.")
                    done = speaker.receive(data)
                    waiting -= done
                    acknowledged(done)
    except OSError as error:
        raise CommandError(f"Sending to {host}:{port} failed: {error}.") from error
