"""The events to send: lines of a file or of standard input, or events at a rate."""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from io import BufferedReader
from typing import Any, Final

import orjson

LINE_BYTES: Final = 960 << 10
"""Longest line; the rest is cut off. With its mark it is below LIMITS__EVENT_BYTES, unless JSON escapes much of it."""
QUEUED: Final = 16
"""Pieces of at most 64 KiB, or one line, that are read ahead."""
_READ: Final = 64 << 10
_TICK: Final = 0.02

Event = Mapping[str, Any]


class EventSource(ABC):
    """Events, numbered from 0. Each has ``{"headrace": {"run": …, "n": …}}``, by which it is found again."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        """Names this run."""
        self.taken = 0
        """Events that were taken: the number of the next."""
        self.problem = ""
        """Why it ended early; empty if it did not."""
        self._over = False

    def stop(self) -> None:
        """End it: nothing more is taken."""
        self._over = True

    @abstractmethod
    async def take(self, most: int) -> list[Event]:
        """Return the next events, at most `most`; waits for the first. Empty after the last."""

    def _mark(self, number: int) -> Event:
        return {"headrace": {"run": self.run, "n": number}}

    def _next(self, count: int) -> range:
        first, self.taken = self.taken, self.taken + count
        return range(first, self.taken)


class RateSource(EventSource):
    """`rate` events a second for `seconds`, each of about `size` bytes of JSON."""

    def __init__(self, rate: float, seconds: float, size: int) -> None:
        super().__init__()
        self._rate = rate
        self._total = max(1, round(rate * seconds))
        self._size = size
        self._began: float | None = None
        self._lock = asyncio.Lock()

    async def take(self, most: int) -> list[Event]:
        async with self._lock:
            if self._began is None:
                self._began = time.monotonic()
            while self.taken < self._total and not self._over:
                due = min(self._total, 1 + int((time.monotonic() - self._began) * self._rate))
                if due > self.taken:
                    return [self._event(number) for number in self._next(min(most, due - self.taken))]
                await asyncio.sleep(_TICK)
            return []

    def _event(self, number: int) -> Event:
        text = f"event {number} "
        plain = {"message": text, **self._mark(number)}
        return {**plain, "message": text + "x" * (self._size - len(orjson.dumps(plain)))}


_LEVELS: Final = ("info", "info", "info", "warn", "error")
_PATHS: Final = ("/", "/login", "/cart", "/checkout", "/search", "/api/v1/orders")


def shop_event(number: int) -> dict[str, Any]:
    """Return an event of a web shop's log. It has no mark."""
    return {
        "n": number,
        "level": _LEVELS[number % len(_LEVELS)],
        "path": _PATHS[number % len(_PATHS)],
        "ms": number * 7919 % 1000,
        "message": f"request {number} served",
    }


class ShopSource(EventSource):
    """The log of a web shop: `total` events, as fast as they are taken."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total

    async def take(self, most: int) -> list[Event]:
        return [shop_event(number) for number in self._next(min(most, self._total - self.taken))]


class LineSource(EventSource):
    """A line an event: its own keys if it is a JSON object, else ``message``. A thread reads, and ends with the process."""

    def __init__(self, stream: BufferedReader | None = None) -> None:
        """`stream`: standard input if it is None."""
        super().__init__()
        self._stream = stream
        self._pieces: asyncio.Queue[list[bytes] | None] = asyncio.Queue(QUEUED)
        self._ready: deque[bytes] = deque()
        self._lock = asyncio.Lock()
        self._reading: threading.Thread | None = None

    def stop(self) -> None:
        super().stop()
        self._ready.clear()
        if self._pieces.empty():
            self._pieces.put_nowait(None)  # one who waits for a line waits no more

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            # A reader of its own: the interpreter cannot end while a thread waits in that of sys.stdin.
            stream = open(sys.stdin.fileno(), "rb", closefd=False) if self._stream is None else self._stream  # noqa: SIM115
            try:
                for lines in _lines(stream):
                    asyncio.run_coroutine_threadsafe(self._pieces.put(lines), loop).result()
            except OSError as error:
                self.problem = f"reading failed: {error.strerror}"
            asyncio.run_coroutine_threadsafe(self._pieces.put(None), loop).result()
        except (RuntimeError, asyncio.CancelledError):  # the loop has ended
            return

    async def take(self, most: int) -> list[Event]:
        async with self._lock:
            if self._reading is None:
                loop = asyncio.get_running_loop()
                self._reading = threading.Thread(target=self._read, args=(loop,), daemon=True)
                self._reading.start()
            while not self._over and (not self._ready or (len(self._ready) < most and not self._pieces.empty())):
                piece = await self._pieces.get()
                self._over |= piece is None
                self._ready += piece or ()
            numbers = self._next(min(most, len(self._ready)))
            return [{**_event(self._ready.popleft()), **self._mark(number)} for number in numbers]


def _event(line: bytes) -> Event:
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError:
        given = None
    return given if isinstance(given, dict) else {"message": line.decode("utf-8", "replace")}


def _lines(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Yield the lines that come together; empty ones are left out."""
    rest = b""
    while data := stream.read1(_READ):
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[:LINE_BYTES]
        yield [line for each in lines if (line := each.rstrip(b"\r")[:LINE_BYTES])]
    if rest:
        yield [rest]
