"""Reads of segments: what is there at once; at a segment's end the next bytes.

A connection has one reply with bytes at a time, until that has left: a client that takes nothing holds one, and only its own
other reads wait for that. While all replies together have `memory`, further ones are of at most `SHARE`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from aiokafka.errors import KafkaError
from headrace_common.operations.log import Log
from headrace_common.session.interface import Caller

from headrace_segment.questions import BytesRead, OutcomeUnknown, ReadBytes, Refusal, Refused
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.owner import Owner
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.reading import Gathering
from headrace_segment.store.records import LogError
from headrace_segment.store.state import Segment

SHARE: Final = 16 << 10
"""Bytes of a reply beyond the memory: few enough to leave for the system's buffers at once."""


@dataclass(eq=False, slots=True)
class _Connection:
    """The reads of a connection under way. `turn` is locked while a reply with `held` bytes is read, or has not left."""

    tasks: set[asyncio.Task[object]] = field(default_factory=set)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: int = 0


class Readers:
    """The reads of this process' clients."""

    def __init__(self, reader: LogReader, owner: Owner, settings: SegmentSettings, log: Log) -> None:
        self._reader = reader
        self._owner = owner
        self._wait = settings.segment.tail_wait
        self._memory = settings.segment.replies_bytes
        self._deadline = settings.kafka.ack_deadline
        self._log = log
        self._connections: dict[Caller, _Connection] = {}
        self._at_end: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self.used = 0
        """Bytes of replies that are read, or have not left."""

    def ask(self, question: ReadBytes, caller: Caller) -> None:
        """Answers now or later, but in any case."""
        connection = self._connections.setdefault(caller, _Connection())
        task = asyncio.create_task(self._answer(question, caller, connection))
        connection.tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, question, caller, connection))

    def _done(self, task: asyncio.Task[object], question: ReadBytes, caller: Caller, connection: _Connection) -> None:
        connection.tasks.discard(task)
        # here, since a task that is cancelled before its first step does nothing at all
        caller.answered(question.ticket, OutcomeUnknown() if task.cancelled() else task.result())

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

    def lost(self) -> None:
        """Ends the conversations with reads under way: this process does not own the segments any more."""
        for caller, connection in list(self._connections.items()):
            if connection.tasks:
                caller.end("log")

    def heard(self, segments: set[str]) -> None:
        """Wakes the reads at the end of these segments, which have more."""
        for name in segments & self._at_end.keys():
            for read in self._at_end.pop(name):
                read.set_result(None)

    async def _answer(self, question: ReadBytes, caller: Caller, connection: _Connection) -> object:
        try:
            return await self._read(question, connection)
        except (KafkaError, OSError, LogError):  # a time limit is an OSError, too
            caller.end("log")
        except Exception:
            self._log.exception("read failed", segment=question.segment)
            caller.end("internal")
        return OutcomeUnknown()

    async def _read(self, question: ReadBytes, connection: _Connection) -> object:
        clock = asyncio.get_running_loop().time
        until, offset = clock() + self._wait, question.offset
        while self._owner.live.is_set():
            segment = self._owner.fold.segments.get(question.segment)
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
            await self._more(question.segment, until - clock())
        return OutcomeUnknown()  # `lost` ends the conversation

    async def _in_turn(self, segment: Segment, question: ReadBytes, connection: _Connection) -> bytes:
        """Returns the bytes in the segment, once the reply before them has left; none: they were let go meanwhile."""
        await connection.turn.acquire()
        name, offset, data = question.segment, question.offset, b""
        try:
            length = question.length if self.used + question.length <= self._memory else min(question.length, SHARE)
            self._hold(connection, length)
            if segment.start <= offset:
                found = self._owner.recent.read(name, offset, length)
                if found is None:
                    async with asyncio.timeout(self._deadline):
                        found = await self._reader.gather(Gathering(name, segment, offset, length))
                data = found
        finally:
            self._hold(connection, len(data))
        return data

    async def _more(self, name: str, seconds: float) -> None:
        """Waits until the segment has more, at most `seconds`."""
        more = asyncio.get_running_loop().create_future()
        self._at_end[name].add(more)
        try:
            await asyncio.wait({more}, timeout=seconds)
        finally:
            if not more.done():
                self._at_end[name].discard(more)
                if not self._at_end[name]:
                    del self._at_end[name]
