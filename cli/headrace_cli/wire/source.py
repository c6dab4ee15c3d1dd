"""The events to send: lines of a file or of standard input, or events at a rate."""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from io import BufferedReader
from typing import Any, Final

import orjson

LINE_BYTES: Final = 960 << 10
"""Longest line; the rest is cut off. With its mark it is below LIMITS__EVENT_BYTES, unless JSON escapes much of it."""
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
    """Return an event of a web shop's log, without a mark."""
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
        return [
            {**shop_event(number), **self._mark(number)} for number in self._next(min(most, self._total - self.taken))
        ]


class LineSource(EventSource):
    """A line an event: its own keys if it is a JSON object, else ``message``."""

    def __init__(self, stream: BufferedReader | None = None) -> None:
        """`stream`: standard input if it is None."""
        super().__init__()
        self._stream = sys.stdin.buffer if stream is None else stream
        self._rest = b""
        self._ready: deque[bytes] = deque()
        self._lock = asyncio.Lock()

    def stop(self) -> None:
        super().stop()
        self._ready.clear()

    async def take(self, most: int) -> list[Event]:
        async with self._lock:
            while not self._over and len(self._ready) < most:
                if select.select([self._stream], (), (), 0)[0]:
                    self._read()
                elif self._ready:
                    break
                else:
                    await asyncio.sleep(_TICK)
            numbers = self._next(min(most, len(self._ready)))
            return [{**_event(self._ready.popleft()), **self._mark(number)} for number in numbers]

    def _read(self) -> None:
        """Read what is there, at the end nothing. Empty lines are left out."""
        try:
            data = os.read(self._stream.fileno(), _READ)
        except OSError as error:
            self.problem, data = f"reading failed: {error.strerror}", b""
        self._over = not data
        *lines, rest = (self._rest + (data or b"\n")).split(b"\n")
        self._rest = rest[:LINE_BYTES]
        self._ready += [line for each in lines if (line := each.rstrip(b"\r")[:LINE_BYTES])]


def _event(line: bytes) -> Event:
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError:
        given = None
    return given if isinstance(given, dict) else {"message": line.decode("utf-8", "replace")}
