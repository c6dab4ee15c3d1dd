"""A client of today's dialect over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from headrace_segment.wire import messages as said
from headrace_segment.wire.codes import HEADER

from tests.contract.waiting import PATIENCE
from tests.segment.speaking_today import HELLO, append, read, setup


class TodayClient:
    """One connection that has begun with Hello. Replies come in the order of the service."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        client = cls(*await asyncio.open_connection(*address))
        assert await client.ask(HELLO) == said.Hello(17, 5)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def reply(self) -> Any:
        """The next message."""
        async with asyncio.timeout(PATIENCE):
            kind, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            return said.MESSAGES.decode(kind, await self._reader.readexactly(length))

    async def ask(self, data: bytes) -> Any:
        """One request, and what is answered."""
        self.say(data)
        return await self.reply()

    async def setup(self, segment: str, writer: bytes) -> int:
        """The writer's level."""
        answer = await self.ask(setup(segment, writer))
        assert isinstance(answer, said.AppendSetup), answer
        return answer.level

    async def append(self, level: int, *data: bytes, writer: bytes) -> said.DataAppended:
        answer = await self.ask(append(level, *data, writer=writer))
        assert isinstance(answer, said.DataAppended), answer
        assert answer.level == level
        return answer

    async def content(self, segment: str, offset: int = 0) -> bytes:
        """All of it, to its end or its tail."""
        pieces = []
        while True:
            piece = await self.ask(read(segment, offset, 1 << 20))
            assert isinstance(piece, said.SegmentRead), piece
            assert piece.offset == offset
            pieces.append(piece.data)
            offset += len(piece.data)
            if piece.at_tail or piece.end_of_segment:
                return b"".join(pieces)
