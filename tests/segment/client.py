"""Clients of both dialects over a real socket, and the service as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from types import TracebackType
from typing import Any, Self

from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_segment.wire import original, today
from headrace_segment.wire.codes import HEADER
from headrace_segment.wire.layout import Table

from tests.contract.receiver import Receiver
from tests.contract.topic import own_topics, since
from tests.contract.waiting import PATIENCE, until
from tests.segment import speaking, speaking_today


class ClosedError(Exception):
    """The service has closed."""


class Client:
    """A connection of the original dialect. Replies come in the order of the service."""

    messages: Table = original.MESSAGES
    speaks: Any = speaking

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        return cls(*await asyncio.open_connection(*address))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def reply(self) -> Any:
        """The next message. Raises `ClosedError`."""
        try:
            async with asyncio.timeout(PATIENCE):
                kind, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                return self.messages.decode(kind, await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ClosedError from error

    async def ask(self, data: bytes) -> Any:
        """One request, and what is answered."""
        self._writer.write(data)
        return await self.reply()

    async def setup(self, segment: str, writer: bytes) -> int:
        """The writer's level."""
        answer = await self.ask(self.speaks.setup(segment, writer))
        assert isinstance(answer, original.AppendSetup | today.AppendSetup), answer
        assert (answer.segment, answer.writer) == (segment, writer)
        return int(answer.level)

    async def append(self, offset: int, content: bytes, writer: bytes) -> int:
        """A block, and its acknowledgement: the level."""
        answer = await self.ask(speaking.block(offset, content, writer))
        assert isinstance(answer, original.DataAppended), answer
        assert answer.writer == writer
        return int(answer.level)

    async def content(self, segment: str, offset: int = 0) -> bytes:
        """All of it, to its end."""
        pieces, at_tail = list[bytes](), False
        while not at_tail:
            piece = await self.ask(self.speaks.read(segment, offset, 1 << 20))
            assert isinstance(piece, original.SegmentRead | today.SegmentRead), piece
            assert piece.offset == offset
            pieces.append(piece.data)
            offset += len(piece.data)
            flag = piece.flags & original.AT_TAIL if isinstance(piece, original.SegmentRead) else piece.at_tail
            at_tail = bool(flag)
        return b"".join(pieces)


class TodayClient(Client):
    """A connection of today's dialect, which has begun with Hello."""

    messages = today.MESSAGES
    speaks = speaking_today

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        client = await super().connect(address)
        assert await client.ask(speaking_today.HELLO) == today.Hello(17, 5)
        return client


def new_writer() -> bytes:
    return os.urandom(16)


def segment_topics(bootstrap: str) -> KafkaSettings:
    """Topics of a test's own."""
    return own_topics(bootstrap, TopicSettings(events_partitions=2))


async def log_start(kafka: KafkaSettings) -> int:
    """How many records are gone from the log's head."""
    records, _ = await since(kafka, kafka.segments_topic, {})
    return records[0].offset


async def serves(service: Receiver, writer: bytes, level: int) -> float:
    """Waits until the process tells this level of a writer. Returns the seconds."""
    began = time.monotonic()
    while True:
        try:
            async with await Client.connect(service.address) as client:
                assert await client.setup("a", writer) == level
                return time.monotonic() - began
        except (ClosedError, ConnectionError):
            await asyncio.sleep(0.05)


async def restart(service: Receiver, event: str = "ready") -> None:
    """Starts it again after its end, and waits until it says this again."""
    before = len(service.lines(event))
    service.spawn()
    await until(lambda: len(service.lines(event)) > before, "it is there again")
    service.ops = service.lines("starting")[-1]["ops"]
