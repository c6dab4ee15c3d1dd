"""A proxy in front of Kafka that knows where a request and an answer begin, and which answers a producer waits for."""

from __future__ import annotations

import asyncio
import io
import random
import struct
from typing import Any, Final

from aiokafka.protocol import produce
from aiokafka.protocol.types import Int32
from typing_extensions import override

from tests.system.proxy import Proxy, Stream

PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22
NEWEST: Final = 8
"""The newest version of the answer to Produce that is rewritten; newer ones pass. It is what our producer speaks."""

ERRORS: Final = (-1, 3, 5, 6, 7, 20, 45, 46, 47, 56, 59)
"""What Kafka may say of a batch that it has stored: unknown error or topic, no leader or another, timed out, too few replicas
after the append, out of order, duplicate, old epoch, storage, unknown producer. Of what it refuses it has stored nothing, and the
producer uses the sequence numbers again.
"""

NO_ID: Final = (7, 14, 15, 16, 51)
"""What a producer may hear that asks for an id: timed out, the coordinator loads, is away, is another, is busy."""


Asked = dict[int, tuple[int | None, int]]
"""(key, version) of the requests whose answers may be changed, by correlation id."""


class KafkaProxy(Proxy):
    """Forwards connections to a broker. What it does to them is set from outside, and holds for all connections."""

    def __init__(self, target: tuple[str, int], port: int, chance: random.Random) -> None:
        super().__init__(target, port)
        self._chance = chance
        self.quiet()

    def quiet(self) -> None:
        """From now on it does nothing."""
        self.delay = 0.0
        """Seconds by which each answer is late, at most."""
        self.swallow = 0.0
        self.rewrite = 0.0
        """Shares of the answers to Produce that are swallowed, and that say an error instead of success."""
        self.codes = ERRORS
        self.deaf = 0.0
        """Share of the answers behind which the broker's side is shut, while requests still pass."""

    @override
    async def _forward(self, near: Stream, far: Stream) -> None:
        asked: Asked = {}
        await asyncio.gather(self._requests(near[0], far[1], asked), self._said(far[0], near[1], asked))

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        while True:
            message = await _whole(reader)
            key, version, correlation = struct.unpack_from(">hhi", message)
            if key in (PRODUCE, INIT_PRODUCER_ID):
                asked[correlation] = key, version
            writer.write(struct.pack(">i", len(message)) + message)
            await writer.drain()

    async def _said(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        while True:
            message = await _whole(reader)
            key, version = asked.pop(int.from_bytes(message[:4], "big", signed=True), (None, 0))
            if self.delay:
                await asyncio.sleep(self._chance.uniform(0, self.delay))
            if key is not None and self._chance.random() < self.swallow:
                continue
            if key == PRODUCE and version <= NEWEST and self._chance.random() < self.rewrite:
                message = rewritten(message, version, self._chance.choice(self.codes))
            if key == INIT_PRODUCER_ID and version < 2 and self._chance.random() < self.rewrite:
                message = without_id(message, self._chance.choice(NO_ID))
            writer.write(struct.pack(">i", len(message)) + message)
            await writer.drain()
            if self._chance.random() < self.deaf:
                writer.write_eof()
                await asyncio.sleep(3600)


def without_id(answer: bytes, code: int) -> bytes:
    """The answer to InitProducerId, version 0 or 1, with an error: correlation id, time to wait, error, id, epoch."""
    return answer[:8] + struct.pack(">hqh", code, -1, -1)


async def _whole(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def rewritten(answer: bytes, version: int, code: int) -> bytes:
    """The answer to Produce, with an error where it says success: Kafka has stored it all the same."""
    schema: Any = getattr(produce, f"ProduceResponse_v{version}").SCHEMA
    stream = io.BytesIO(answer)
    correlation = Int32.decode(stream)
    topics, *rest = schema.decode(stream)
    changed = [
        (topic, [(number, code if error == 0 else error, -1, *more[1:]) for number, error, *more in partitions])
        for topic, partitions in topics
    ]
    return Int32.encode(correlation) + schema.encode((changed, *rest))
