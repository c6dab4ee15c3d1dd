"""A proxy between clients of today's dialect and the service, which cuts a connection after every fifth block."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random

from headrace_segment.wire.codes import HEADER, Kind
from typing_extensions import override

from tests.system.proxy import HOST, Proxy


class Cut(enum.Enum):
    """Where, seen from the block's end."""

    WITHIN = "some of the end's bytes never arrive"
    AT_ONCE = "the end has been sent, and nothing is heard any more"
    LATER = "some milliseconds later: the acknowledgement may be on its way, or heard"


class CutError(Exception):
    """This connection is to be cut now."""


class CuttingProxy(Proxy):
    """Forwards connections to `port`. Counts blocks over all of them: after every `every`-th, its connection is cut somewhere."""

    def __init__(self, port: int, every: int, seed: int) -> None:
        super().__init__((HOST, port))
        self._every = every
        self._chance = random.Random(seed)
        self.blocks = 0
        self.cuts = dict.fromkeys(Cut, 0)

    @override
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, far_writer))
                group.create_task(self._replies(far_reader, writer))
        except* (CutError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, far_writer):
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header = await reader.readexactly(HEADER.size)
            kind, length = HEADER.unpack(header)
            message = header + await reader.readexactly(length)
            self.blocks += kind == Kind.END_APPEND_BLOCK
            if kind != Kind.END_APPEND_BLOCK or self.blocks % self._every:
                writer.write(message)
                await writer.drain()
                continue
            least = min(self.cuts.values())  # each kind as often as the others
            where = self._chance.choice([cut for cut, count in self.cuts.items() if count == least])
            self.cuts[where] += 1
            if where is Cut.WITHIN:
                message = message[: self._chance.randrange(len(message))]
            writer.write(message)
            await writer.drain()
            writer.write_eof()  # what was sent arrives
            await asyncio.sleep(self._chance.random() * 0.03 if where is Cut.LATER else 0)
            raise CutError

    @override
    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await super()._replies(reader, writer)
        raise CutError
