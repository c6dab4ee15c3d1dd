"""Reads of the log of segments: its records, for the owner; and bytes of segments, for clients.

A client gets what is there at once, from memory if it is new, else from the log; at a segment's end the next bytes. A connection
has one reply with bytes at a time, until that has left: a client that takes nothing holds one, and only its own other reads wait
for that. While all replies together have `SegmentSection.replies_bytes`, further ones are of at most `SHARE`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from headrace_common.kafka.client import make_consumer
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings
from headrace_common.session.interface import Caller

from headrace_segment.questions import BytesRead, OutcomeUnknown, ReadBytes, Refusal, Refused
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.fold import Fold, Segment
from headrace_segment.store.records import Block, LogError, decode

SLICE: Final = 200
"""Records that are read before the event loop turns."""

WAIT_MS: Final = 1000

ENOUGH_RECORDS: Final = 20_000
"""Records after which a read that has found something is answered with that."""

SHARE: Final = 16 << 10
"""Bytes of a reply beyond the memory: few enough to leave for the system's buffers at once."""

BLOCK: Final = 200
SEGMENT: Final = 1000
"""Bytes that a block in memory costs beyond its own, and a segment beyond its blocks: small blocks cost mostly this."""


class LogReader:
    """Reads one after the other, once `bounds` has connected."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._where = TopicPartition(settings.segments_topic, 0)
        self._consumers: list[AIOKafkaConsumer] = []  # the first never fetches: a fetch would hold its questions up
        self._turn = asyncio.Lock()

    async def bounds(self) -> tuple[int, int]:
        """Returns the offsets of the first record, and after the last one. Raises `KafkaError`."""
        while len(self._consumers) < 2:
            consumer = make_consumer(self._settings)
            consumer.assign([self._where])  # one that is assigned later waits for a tenth of a second
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            consumer.seek(self._where, 0)
            consumer.pause(self._where)
            self._consumers.append(consumer)
        asking = self._consumers[0]
        first = await asking.beginning_offsets([self._where])
        end = await asking.end_offsets([self._where])
        return int(first[self._where]), int(end[self._where])

    async def read(self, offset: int, take: Callable[[Any], bool]) -> None:
        """Hands the records from `offset` on to `take`, until that returns True. Waits for its turn, and for Kafka without limit.

        Raises `KafkaError` (`OffsetOutOfRangeError`: they are gone from the log), and what `take` raises.
        """
        async with self._turn:
            reader = self._consumers[1]
            reader.assign([self._where])
            reader.seek(self._where, offset)
            try:
                while True:
                    found = await reader.getmany(self._where, timeout_ms=WAIT_MS, max_records=SLICE)
                    for record in found.get(self._where, ()):
                        if take(record):
                            return
                    await asyncio.sleep(0)
            finally:
                reader.pause(self._where)

    async def close(self) -> None:
        """Ends the consumers."""
        for consumer in self._consumers:
            await consumer.stop()


class Gathering:
    """Takes records of the log from `log_offset` on, until `data` has all bytes that were asked for, or enough.

    It reads the state that the segment had when this was made, whatever is appended meanwhile.
    """

    def __init__(self, name: str, segment: Segment, offset: int, length: int) -> None:
        """`offset` lies in the segment, before its end."""
        self._key = name.encode()
        self._offset, self._end = offset, min(offset + length, segment.length)
        self._at, self.log_offset = segment.find(offset)  # where the next block begins in the segment
        self._enough = self.log_offset + ENOUGH_RECORDS
        self.data = b""

    def take(self, record: Any) -> bool:
        """Takes the next record of the log. Returns whether that is all. Raises `LogError`."""
        if record.key == self._key:
            block, _ = decode(record.value)
            if isinstance(block, Block):
                self.data += block.data[max(self._offset - self._at, 0) : max(self._end - self._at, 0)]
                self._at += len(block.data)
        return self._at >= self._end or (bool(self.data) and record.offset >= self._enough)


class RecentBlocks:
    """Blocks of any segments, up to `limit` bytes of memory: the oldest leave first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._segments: dict[str, deque[tuple[int, bytes]]] = {}
        self._order: deque[str] = deque()
        self._bytes = 0

    def add(self, segment: str, offset: int, data: bytes) -> None:
        """Adds a block that begins at `offset`, after all that were added before it."""
        if segment not in self._segments:
            self._segments[segment] = deque()
            self._bytes += SEGMENT
        self._segments[segment].append((offset, data))
        self._order.append(segment)
        self._bytes += BLOCK + len(data)
        while self._bytes > self._limit:
            oldest = self._order.popleft()
            self._bytes -= BLOCK + len(self._segments[oldest].popleft()[1])
            if not self._segments[oldest]:
                self._bytes -= SEGMENT
                del self._segments[oldest]

    def read(self, segment: str, offset: int, length: int) -> bytes | None:
        """Returns up to `length` bytes from `offset` on, which is before the segment's end. None: they are gone."""
        blocks = self._segments.get(segment)
        if blocks is None or offset < blocks[0][0]:
            return None
        first = len(blocks) - 1
        while blocks[first][0] > offset:
            first -= 1
        pieces, end = [], offset + length
        for at in range(first, len(blocks)):
            start, data = blocks[at]
            if start >= end:
                break
            pieces.append(data[max(offset - start, 0) : end - start])
        return b"".join(pieces)


@dataclass(eq=False, slots=True)
class _Connection:
    """The reads of a connection under way. `turn` is locked while a reply with `held` bytes is read, or has not left."""

    tasks: set[asyncio.Task[object]] = field(default_factory=set)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: int = 0


class Readers:
    """The reads of this process' clients, while it owns the segments."""

    def __init__(self, reader: LogReader, settings: SegmentSettings, log: Log) -> None:
        self._reader = reader
        self._section = settings.segment
        self._deadline = settings.kafka.ack_deadline
        self._log = log
        self._fold: Fold | None = None
        self._recent = RecentBlocks(0)
        self._connections: dict[Caller, _Connection] = {}
        self._more: dict[str, asyncio.Event] = {}  # by segment at whose end a read waits
        self.used = 0
        """Bytes of replies that are read, or have not left."""

    def owns(self, fold: Fold) -> None:
        """Answers from this state from now on."""
        self._fold, self._recent = fold, RecentBlocks(self._section.cache_bytes)

    def lost(self) -> None:
        """Ends the conversations with reads under way: this process does not own the segments any more."""
        self._fold = None
        for caller, connection in list(self._connections.items()):
            if connection.tasks:
                caller.end("log")

    def stored(self, blocks: Iterable[tuple[str, int, Block]]) -> None:
        """Keeps blocks of segments, each with its offset there, and wakes the reads that wait for them."""
        for name, offset, block in blocks:
            self._recent.add(name, offset, block.data)
            if (more := self._more.pop(name, None)) is not None:
                more.set()

    def ask(self, question: ReadBytes, caller: Caller) -> None:
        """Answers now or later, but in any case."""
        connection = self._connections.setdefault(caller, _Connection())
        task = asyncio.create_task(self._read(question, connection))
        connection.tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, question, caller, connection))

    def left(self, caller: Caller) -> None:
        """Learns that the reply with bytes has left for the client."""
        if (known := self._connections.get(caller)) is not None and known.held:
            self._hold(known, 0)

    def ended(self, caller: Caller) -> None:
        """Gives up the reads of a conversation that has ended, and forgets its replies."""
        if (connection := self._connections.pop(caller, None)) is not None:
            for task in list(connection.tasks):
                task.cancel()
            self.used -= connection.held
            connection.held = 0

    def _hold(self, connection: _Connection, size: int) -> None:
        """Notes the bytes of the connection's reply. The next one has its turn when it has none."""
        self.used += size - connection.held
        connection.held = size
        if not size:
            connection.turn.release()

    def _done(self, task: asyncio.Task[object], question: ReadBytes, caller: Caller, connection: _Connection) -> None:
        # here, since a task that is cancelled before its first step does nothing at all
        connection.tasks.discard(task)
        answer: object = OutcomeUnknown()
        if not task.cancelled():
            error = task.exception()
            if error is None:
                answer = task.result()
            elif isinstance(error, KafkaError | OSError | LogError):  # a time limit is an OSError, too
                caller.end("log")
            else:
                self._log.error("read failed", segment=question.segment, exc_info=error)
                caller.end("internal")
        caller.answered(question.ticket, answer)

    async def _read(self, question: ReadBytes, connection: _Connection) -> object:
        clock = asyncio.get_running_loop().time
        until, name, offset = clock() + self._section.tail_wait, question.segment, question.offset
        while self._fold is not None:
            segment = self._fold.segments.get(name)
            if segment is None:
                return Refused(Refusal.NO_SEGMENT)
            if offset < segment.start:
                return Refused(Refusal.TRUNCATED, segment.start)
            if offset < segment.length:
                data = b""
                if question.length and not (data := await self._in_turn(segment, question, connection)):
                    continue  # let go meanwhile
                return BytesRead(data, at_tail=False)
            if clock() >= until:
                return BytesRead(b"", at_tail=True)
            more = self._more.setdefault(name, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - clock()):
                    await more.wait()
        return OutcomeUnknown()  # `lost` ends the conversation

    async def _in_turn(self, segment: Segment, question: ReadBytes, connection: _Connection) -> bytes:
        """Returns the bytes in the segment, once the reply before them has left; none: they were let go meanwhile."""
        await connection.turn.acquire()
        name, offset, length, data = question.segment, question.offset, question.length, b""
        try:
            if self.used + length > self._section.replies_bytes:
                length = min(length, SHARE)
            self._hold(connection, length)
            if segment.start <= offset:
                found = self._recent.read(name, offset, length)
                if found is None:
                    gathering = Gathering(name, segment, offset, length)
                    async with asyncio.timeout(self._deadline):
                        await self._reader.read(gathering.log_offset, gathering.take)
                    found = gathering.data
                data = found
        finally:
            self._hold(connection, len(data))
        return data
