"""Connections of segment clients in the simulation, whose answers are held against the log."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from headrace_segment.wire import original, today
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import Table
from headrace_segment.wire.parser import ReplyParser

from tests.segment import speaking_today
from tests.segment.client import ClosedError
from tests.simulation.answers import Talk
from tests.simulation.network import ClientEnd

REPLY_TIME = 400.0
"""Seconds that a client waits for an answer: longer than any deadline of the service."""

LONGEST_PAUSE = 1.0


class Judged:
    """It waits for as long as the service may take, and holds each answer against the log."""

    messages: Table

    def __init__(self, end: ClientEnd, talk: Talk) -> None:
        self._end = end
        self._talk = talk
        self._parser = ReplyParser(self.messages)
        self._heard: deque[Any] = deque()

    def say(self, data: bytes) -> None:
        kind, size = HEADER.unpack_from(data)
        if kind == Kind.BEGIN_APPEND_BLOCK and self.messages is today.MESSAGES:
            at = HEADER.size + size  # its end has the number
            self._asks(data[at:])
        elif kind not in (Kind.HELLO, Kind.KEEP_ALIVE):
            self._asks(data)
        self._end.send_now(data)

    def _asks(self, data: bytes) -> None:
        kind, size = HEADER.unpack_from(data)
        self._talk.asks(self.messages.decode(kind, data[HEADER.size : HEADER.size + size]))

    async def reply(self) -> Any:
        """The next answer. Raises `ClosedError`, and `OSError`."""
        async with asyncio.timeout(REPLY_TIME):
            while not self._heard:
                data, version = await self._end.read()
                if not data:
                    raise ClosedError
                for answer in self._parser.receive(data):
                    self._heard.append(answer)
                    if not isinstance(answer, today.Hello | today.KeepAlive | original.KeepAlive):
                        self._talk.hears(answer, version)
        return self._heard.popleft()

    async def ask(self, data: bytes) -> Any:
        """One request, and what is answered."""
        self.say(data)
        return await self.reply()

    def cut(self) -> None:
        """Gone without a word."""
        self._end.abort()


class Patient(Judged):
    """In the original dialect."""

    messages = original.MESSAGES


class Today(Judged):
    """In today's dialect."""

    messages = today.MESSAGES

    async def greet(self) -> None:
        assert await self.ask(speaking_today.HELLO) == today.Hello(17, 5)
