"""Connections of segment clients in the simulation, whose answers are held against the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, cast

from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import HEADER, Kind

from tests.segment import speaking_today
from tests.segment.client import Client as SegmentClient
from tests.segment.client import ClosedError, Connection, TodayClient
from tests.simulation.answers import Talk
from tests.simulation.network import ClientEnd

REPLY_TIME = 400.0
"""Seconds that a client waits for an answer: longer than any deadline of the service."""

LONGEST_PAUSE = 1.0


class Duplex:
    """A simulated connection as `asyncio.StreamReader` and `StreamWriter`."""

    def __init__(self, end: ClientEnd) -> None:
        self.end = end
        self.transport = self
        self._arrived = bytearray()
        self._to_send: deque[bytes] = deque()
        self._sending: asyncio.Task[None] | None = None
        self.version = 0
        """The length of all logs when the last of what was read had left."""

    async def readexactly(self, size: int) -> bytes:
        while len(self._arrived) < size:
            data, self.version = await self.end.read()
            if not data:
                raise asyncio.IncompleteReadError(bytes(self._arrived), size)
            self._arrived += data
        found = bytes(self._arrived[:size])
        del self._arrived[:size]
        return found

    def write(self, data: bytes) -> None:
        self._to_send.append(data)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        with contextlib.suppress(OSError):  # who reads learns of it
            while self._to_send:
                await self.end.send(self._to_send.popleft())

    async def drain(self) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending])

    def close(self) -> None:
        self.end.close()

    def abort(self) -> None:
        self.end.abort()

    async def wait_closed(self) -> None:
        pass


class Judged(Connection):
    """It waits for as long as the service may take, and holds each answer against the log."""

    def __init__(self, end: ClientEnd, talk: Talk) -> None:
        stream = cast("Any", Duplex(end))
        super().__init__(stream, stream)
        self._talk = talk

    def say(self, data: bytes) -> None:
        kind, size = HEADER.unpack_from(data)
        if kind == Kind.BEGIN_APPEND_BLOCK and self.messages is today.MESSAGES:
            at = HEADER.size + size  # its end has the number
            self._asks(data[at:])
        elif kind not in (Kind.HELLO, Kind.KEEP_ALIVE):
            self._asks(data)
        super().say(data)

    def _asks(self, data: bytes) -> None:
        kind, size = HEADER.unpack_from(data)
        self._talk.asks(self.messages.decode(kind, data[HEADER.size : HEADER.size + size]))

    async def reply(self, seconds: float = REPLY_TIME) -> Any:
        try:
            answer = await super().reply(seconds)
        except TimeoutError:
            raise ClosedError from None
        if not isinstance(answer, today.Hello | today.KeepAlive | original.KeepAlive):
            self._talk.hears(answer, cast("Any", self._reader).version)
        return answer


class Patient(Judged, SegmentClient):
    """In the original dialect."""


class Today(Judged, TodayClient):
    """In today's dialect."""

    async def greet(self) -> None:
        assert await self.ask(speaking_today.HELLO) == today.Hello(17, 5)
