"""Reads of segments: what is there at once; at a segment's end the next bytes.

A connection has one reply with bytes at a time, until that has left: a client that takes nothing holds one, and only its own
other reads wait for that. All replies together have `memory`, and each gets a part of what is left of it. Beyond the memory a
connection still gets `SHARE`, so no read waits for another connection's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiokafka.errors import KafkaError
from headrace_common.operations.log import Log
from headrace_common.session.interface import Caller

from headrace_segment.questions import (
    BytesRead,
    DescribeSegment,
    OutcomeUnknown,
    ReadBytes,
    Refusal,
    Refused,
    RepliesLeft,
    SegmentDescription,
)
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.store.reading import Gathering
from headrace_segment.store.records import LogError
from headrace_segment.store.state import Segment

SHARE: Final = 16 << 10
"""Bytes of a reply beyond the memory: few enough to leave for the system's buffers at once."""

PART: Final = 8
"""A reply gets at most one of so many parts of the memory that is left."""

RETRY: Final = 0.5

Asked = ReadBytes | DescribeSegment | RepliesLeft


@dataclass(eq=False, slots=True)
class _Connection:
    """The reads of a connection under way. `turn` is locked while a reply with `held` bytes is read, or has not left."""

    tasks: set[asyncio.Task[object]] = field(default_factory=set)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: int = 0


class Readers:
    """The reads of this replica's clients. `wait`: seconds that a read waits at a segment's end; `memory`: bytes of replies."""

    def __init__(
        self,
        reader: LogReader,
        partition_of: Callable[[str], Partition],
        log: Log,
        wait: float,
        memory: int,
        deadline: float,
    ) -> None:
        self._reader = reader
        self._partition_of = partition_of
        self._log = log
        self._wait = wait
        self._memory = memory
        self._deadline = deadline
        self._connections: dict[Caller, _Connection] = {}
        self._at_end: dict[str, asyncio.Event] = {}
        self.used = 0
        """Bytes of replies that are read, or have not left."""

    def ask(self, question: Asked, caller: Caller) -> None:
        """Answers now or later, but in any case."""
        if isinstance(question, RepliesLeft):
            if (known := self._connections.get(caller)) is not None and known.held:
                self._hold(known, 0)
            caller.answered(question.ticket, None)
            return
        partition = self._partition_of(question.segment)
        if not partition.live.is_set():
            caller.end("log")
            caller.answered(question.ticket, OutcomeUnknown())
        elif isinstance(question, DescribeSegment):
            found = partition.fold.segments.get(question.segment)
            caller.answered(question.ticket, _described(found) if found else Refused(Refusal.NO_SEGMENT))
        else:
            connection = self._connections.setdefault(caller, _Connection())
            task = asyncio.create_task(self._answer(question, caller, connection))
            connection.tasks.add(task)
            task.add_done_callback(lambda done: self._done(done, question, caller, connection))

    def _done(self, task: asyncio.Task[object], question: ReadBytes, caller: Caller, connection: _Connection) -> None:
        connection.tasks.discard(task)
        # here, since a task that is cancelled before its first step does nothing at all
        caller.answered(question.ticket, OutcomeUnknown() if task.cancelled() else task.result())

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

    def lost(self) -> None:
        """Ends the conversations with reads under way: this process does not own their segments any more."""
        for caller, connection in list(self._connections.items()):
            if connection.tasks:
                caller.end("log")

    def heard(self, segments: set[str]) -> None:
        """Wakes the reads of these segments, which may have changed."""
        for name in segments & self._at_end.keys():
            self._at_end.pop(name).set()

    async def _answer(self, question: ReadBytes, caller: Caller, connection: _Connection) -> object:
        try:
            return await self._read(self._partition_of(question.segment), question, connection)
        except (TimeoutError, LogError):
            caller.end("log")
        except Exception:
            self._log.exception("read failed", segment=question.segment)
            caller.end("internal")
        return OutcomeUnknown()

    async def _read(self, partition: Partition, question: ReadBytes, connection: _Connection) -> object:
        clock = asyncio.get_running_loop().time
        until = clock() + self._wait
        name, offset = question.segment, question.offset
        while partition.live.is_set():
            segment = partition.fold.segments.get(name)
            if segment is None:
                return Refused(Refusal.NO_SEGMENT)
            if offset < segment.start:
                return Refused(Refusal.TRUNCATED, segment.start)
            if offset < segment.length:
                data = b""
                if question.length and not (data := await self._in_turn(partition, segment, question, connection)):
                    continue  # truncated meanwhile
                return BytesRead(data, at_tail=False)
            if clock() >= until:
                return BytesRead(b"", at_tail=True)
            await self._more(name, until - clock())
        return OutcomeUnknown()  # `lost` ends the conversation

    async def _in_turn(
        self, partition: Partition, segment: Segment, question: ReadBytes, connection: _Connection
    ) -> bytes:
        """Returns the bytes in the segment, once the reply before them has left; none: look again."""
        await connection.turn.acquire()
        data = b""
        try:
            length = min(question.length, max(SHARE, (self._memory - self.used) // PART))
            self._hold(connection, length)
            if segment.start <= question.offset:
                data = await self._bytes(partition, segment, question, length)
        finally:
            self._hold(connection, len(data))
        return data

    async def _bytes(self, partition: Partition, segment: Segment, question: ReadBytes, length: int) -> bytes:
        """Returns the bytes in the segment; none: look again."""
        name, offset = question.segment, question.offset
        data = partition.recent.read(name, offset, length)
        if data is not None:
            return data
        try:
            async with asyncio.timeout(self._deadline):
                return await self._reader.gather(partition.number, Gathering.of(name, segment, offset, length))
        except (KafkaError, OSError):  # also if it was truncated meanwhile
            await asyncio.sleep(RETRY)
        return b""

    async def _more(self, name: str, seconds: float) -> None:
        """Waits until the segment changes, at most `seconds`."""
        changes = self._at_end.setdefault(name, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changes.wait()

    async def close(self) -> None:
        """Gives all reads up."""
        tasks = {task for connection in self._connections.values() for task in connection.tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _described(segment: Segment) -> SegmentDescription:
    return SegmentDescription(segment.start, segment.length, segment.modified)
