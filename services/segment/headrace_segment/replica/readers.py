"""Reads of segments: old bytes at once; at a segment's end the next ones, or that the segment has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from headrace_common.connection.backend import Caller
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics

from headrace_segment.questions import (
    BytesRead,
    DescribeSegment,
    NoSegment,
    OutcomeUnknown,
    ReadBytes,
    RepliesLeft,
    SegmentDescription,
    Truncated,
)
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.replica.replies import ReplyMemory
from headrace_segment.store.fold import Fold
from headrace_segment.store.reading import Gathering
from headrace_segment.store.records import LogError
from headrace_segment.store.state import Segment

END_WAIT: Final = 1.0
"""Seconds that bytes up to a segment's end wait until Kafka says whether more follow; then they are sent without that."""

RETRY: Final = 0.5

Asked = ReadBytes | DescribeSegment | RepliesLeft


class Readers:
    """The reads of this replica's clients. `wait`: how long a read waits at a segment's end; `limit`: how many may do so."""

    def __init__(
        self,
        reader: LogReader,
        partition_of: Callable[[str], Partition],
        replies: ReplyMemory,
        metrics: ReceiverMetrics,
        log: Log,
        wait: float,
        limit: int,
        deadline: float,
    ) -> None:
        self._reader = reader
        self._partition_of = partition_of
        self._replies = replies
        self._metrics = metrics
        self._log = log
        self._wait = wait
        self._limit = limit
        self._deadline = deadline
        self._tasks: dict[Caller, set[asyncio.Task[object]]] = {}
        self._at_end: dict[str, set[asyncio.Event]] = {}
        self._waiting: dict[asyncio.Event, str] = {}  # the oldest first

    @property
    def waiting(self) -> int:
        """Reads that wait at a segment's end."""
        return len(self._waiting)

    def ask(self, question: Asked, caller: Caller) -> None:
        """Answers now or later, but in any case."""
        if isinstance(question, RepliesLeft):
            self._replies.left(caller, question.read)
            caller.answered(question.ticket, None)
            return
        if isinstance(question, ReadBytes) and (answer := self._at_once(question, caller)) is not None:
            caller.answered(question.ticket, answer)
            return
        task = asyncio.create_task(self._answer(question, caller))
        tasks = self._tasks.setdefault(caller, set())
        tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, question, caller))

    def _done(self, task: asyncio.Task[object], question: Asked, caller: Caller) -> None:
        tasks = self._tasks.get(caller)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._tasks[caller]
        # here, since a task that is cancelled before its first step does nothing at all
        caller.answered(question.ticket, OutcomeUnknown() if task.cancelled() else task.result())

    def ended(self, caller: Caller) -> None:
        """Gives up the reads of a conversation that has ended."""
        for task in list(self._tasks.get(caller, ())):
            task.cancel()
        self._replies.ended(caller)

    def heard(self, segments: set[str]) -> None:
        """Wakes the reads of these segments, which may have changed."""
        for name in segments & self._at_end.keys():
            for event in self._at_end[name]:
                event.set()

    def _at_once(self, question: ReadBytes, caller: Caller) -> object | None:
        """Answers at once in the usual case: the bytes are in memory, with more behind them, and there is room for a reply."""
        partition = self._partition_of(question.segment)
        segment = partition.fold.segments.get(question.segment) if partition.live.is_set() else None
        if segment is None or not segment.start <= question.offset < segment.length - question.length:
            return None
        if not (length := self._replies.take(caller, question.length)):
            return None
        data = partition.recent.read(question.segment, question.offset, length)
        self._replies.release(caller, length - len(data or b""))
        return None if data is None else BytesRead(data, at_tail=False, end_of_segment=False)

    async def _answer(self, question: ReadBytes | DescribeSegment, caller: Caller) -> object:
        try:
            partition = self._partition_of(question.segment)
            if isinstance(question, ReadBytes):
                return await self._read(partition, question, caller)
            return await self._describe(partition, question)
        except TimeoutError:
            caller.end("ack_deadline")
        except LogError:
            caller.end("log")
        except Exception:
            self._log.exception("read failed", segment=question.segment)
            caller.end("internal")
        return OutcomeUnknown()

    async def _describe(self, partition: Partition, question: DescribeSegment) -> object:
        async with asyncio.timeout(self._deadline):
            await partition.passed()
        segment = partition.fold.segments.get(question.segment)
        if segment is None:
            return NoSegment()
        return SegmentDescription(segment.start, segment.length, segment.sealed, segment.modified)

    async def _read(self, partition: Partition, question: ReadBytes, caller: Caller) -> object:
        clock = asyncio.get_running_loop().time
        until = clock() + self._wait
        name, offset = question.segment, question.offset
        async with asyncio.timeout(self._deadline):
            await partition.live.wait()
        known: Fold | None = None  # has all records that the log had when the read came
        while True:
            segment = partition.fold.segments.get(name)
            if segment is not None and offset < segment.start:
                return Truncated(segment.start)
            if segment is not None and offset < segment.length:
                answer = await self._with_room(partition, segment, question, caller)
                if answer is not None:
                    return answer
                continue  # truncated or deleted meanwhile
            if known is not partition.fold:  # also when the log is read again meanwhile
                async with asyncio.timeout(self._deadline):
                    await partition.passed()
                known = partition.fold
            elif segment is None:
                return NoSegment()
            elif segment.sealed or clock() >= until:
                return BytesRead(b"", at_tail=True, end_of_segment=segment.sealed)
            elif not await self._more(name, until - clock()):
                until = clock()

    async def _with_room(
        self, partition: Partition, segment: Segment, question: ReadBytes, caller: Caller
    ) -> BytesRead | None:
        """Returns the bytes in the segment, once their reply has room. None: look again."""
        name, offset = question.segment, question.offset
        length = min(question.length, segment.length - offset)
        async with asyncio.timeout(self._deadline):
            length = await self._replies.room(caller, length)
        answer = None
        try:
            if partition.fold.segments.get(name) is segment and segment.start <= offset:
                answer = await self._bytes(partition, segment, name, offset, length)
        finally:
            self._replies.release(caller, length - (0 if answer is None else len(answer.data)))
        return answer

    async def _bytes(
        self, partition: Partition, segment: Segment, name: str, offset: int, length: int
    ) -> BytesRead | None:
        """Returns the bytes in the segment. None: look again."""
        data = partition.recent.read(name, offset, length)
        if data is None:
            gathering = Gathering.of(name, segment, offset, length)
            try:
                async with asyncio.timeout(self._deadline):
                    data = await self._reader.gather(partition.number, gathering)
            except OffsetOutOfRangeError:  # the segment was truncated, and this replica may not know it yet
                async with asyncio.timeout(self._deadline):
                    await partition.passed()
                return None
            except (KafkaError, OSError):
                await asyncio.sleep(RETRY)
                return None
        end = offset + len(data)
        if end < segment.length:
            return BytesRead(data, at_tail=False, end_of_segment=False)
        try:
            async with asyncio.timeout(END_WAIT):
                await partition.passed()
        except TimeoutError:
            return BytesRead(data, at_tail=False, end_of_segment=False)
        at_tail = end >= segment.length and partition.fold.segments.get(name) is segment
        return BytesRead(data, at_tail, at_tail and segment.sealed)

    async def _more(self, name: str, seconds: float) -> bool:
        """Waits until the segment changes, at most `seconds`. Returns False if another read takes its place."""
        event = asyncio.Event()
        self._waiting[event] = name
        if len(self._waiting) > self._limit:
            self._metrics.limit_hits.labels("SEGMENT__TAIL_READERS").inc()
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.set()
        self._at_end.setdefault(name, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            kept = self._waiting.pop(event, None) is not None
            waiting = self._at_end[name]
            waiting.discard(event)
            if not waiting:
                del self._at_end[name]
        return kept

    def drain(self) -> None:
        """Lets no read wait at a segment's end any more: the service stops."""
        self._limit = 0
        waiting, self._waiting = list(self._waiting), {}
        for event in waiting:
            event.set()

    async def close(self) -> None:
        """Gives all reads up."""
        tasks = {task for tasks in self._tasks.values() for task in tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
