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


class EventSource(ABC):
    """Events, numbered from 0. Each has ``{"headrace": {"run": …, "n": …}}``, by which it is found again."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        """Names this run."""
        self.taken = 0
        """Events that were taken: the number of the next."""
        self.problem = ""
        """Why it ended early; empty if it did not."""

    @abstractmethod
    async def take(self, most: int) -> range:
        """Return the numbers of the next events, at most `most`; waits for the first. Empty after the last."""

    @abstractmethod
    def event(self, number: int) -> Mapping[str, Any]:
        """Return the event of a number that was taken. It is asked for once."""

    def _mark(self, number: int) -> Mapping[str, Any]:
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

    async def take(self, most: int) -> range:
        async with self._lock:
            if self._began is None:
                self._began = time.monotonic()
            while self.taken < self._total:
                due = min(self._total, 1 + int((time.monotonic() - self._began) * self._rate))
                if due > self.taken:
                    return self._next(min(most, due - self.taken))
                await asyncio.sleep(max(_TICK, self._began + self.taken / self._rate - time.monotonic()))
            return range(0)

    def event(self, number: int) -> Mapping[str, Any]:
        text = f"event {number} "
        plain = {"message": text, **self._mark(number)}
        return {**plain, "message": text + "x" * (self._size - len(orjson.dumps(plain)))}


_LEVELS: Final = ("info", "info", "info", "warn", "error")
_PATHS: Final = ("/", "/login", "/cart", "/checkout", "/search", "/api/v1/orders")


class ShopSource(EventSource):
    """The log of a web shop: `total` events, as fast as they are taken, numbered from `first`. They have no mark."""

    def __init__(self, total: int, first: int = 0) -> None:
        super().__init__()
        self._total = total
        self._first = first

    async def take(self, most: int) -> range:
        return self._next(min(most, self._total - self.taken))

    def event(self, number: int) -> Mapping[str, Any]:
        n = self._first + number
        return {
            "n": n,
            "level": _LEVELS[n % len(_LEVELS)],
            "path": _PATHS[n % len(_PATHS)],
            "ms": n * 7919 % 1000,
            "message": f"request {n} served",
        }


class LineSource(EventSource):
    """A line an event: its own keys if it is a JSON object, else ``message``. A thread reads, and ends with the process."""

    def __init__(self, stream: BufferedReader | None = None) -> None:
        """`stream`: standard input if it is None."""
        super().__init__()
        self._stream = stream
        self._pieces: asyncio.Queue[list[bytes] | None] = asyncio.Queue(QUEUED)
        self._ready: deque[bytes] = deque()
        self._kept: dict[int, bytes] = {}
        self._lock = asyncio.Lock()
        self._reading: threading.Thread | None = None
        self._over = False

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

    async def take(self, most: int) -> range:
        async with self._lock:
            if self._reading is None:
                loop = asyncio.get_running_loop()
                self._reading = threading.Thread(target=self._read, args=(loop,), daemon=True)
                self._reading.start()
            while not self._over and (not self._ready or (len(self._ready) < most and not self._pieces.empty())):
                piece = await self._pieces.get()
                self._over = piece is None
                self._ready += piece or ()
            numbers = self._next(min(most, len(self._ready)))
            for number in numbers:
                self._kept[number] = self._ready.popleft()
            return numbers

    def event(self, number: int) -> Mapping[str, Any]:
        line = self._kept.pop(number)
        try:
            given = orjson.loads(line)
        except orjson.JSONDecodeError:
            given = None
        if not isinstance(given, dict):
            given = {"message": line.decode("utf-8", "replace")}
        return {**given, **self._mark(number)}


def _lines(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Yield the lines that come together; empty ones are left out."""
    rest = b""
    while data := stream.read1(_READ):
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[:LINE_BYTES]
        yield [line for each in lines if (line := each.rstrip(b"\r")[:LINE_BYTES])]
    if rest:
        yield [rest]
