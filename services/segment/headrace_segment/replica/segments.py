"""All segments, as the sessions of this replica question them: each question goes to the partition of its segment."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

from aiokafka.errors import KafkaError
from headrace_common.connection.backend import Backend, Caller
from headrace_common.kafka.client import Topic, describe, explain
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.tasks import stood_still
from headrace_common.publishing.partitions import partition_of
from headrace_common.service.parts import OwnParts, Runtime
from headrace_common.session.interface import Question
from typing_extensions import override

from headrace_segment.metrics import STORED, SegmentMetrics
from headrace_segment.questions import AppendBlock, ChangeSegment, LimitExceeded, OpenSession, OutcomeUnknown
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.replica.producing import LogProducer
from headrace_segment.replica.readers import Asked, Readers
from headrace_segment.replica.topics import needed_bytes, problems
from headrace_segment.replica.upkeep import PartitionUpkeep
from headrace_segment.serving import ServedSessions
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.outcomes import Appended, Outcome, Refused
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import Create, Record

LOOK: Final = 1.0
RETRY: Final = 1.0
STUCK_TIME: Final = 30.0
"""Seconds after which readiness turns red: without an answer from Kafka for a batch, or of failures without a stored one."""

LOOKED: Final = 500
"""Names of segments that are looked at before the event loop turns."""

Appending = OpenSession | AppendBlock | ChangeSegment


def new_id() -> bytes:
    """Returns a unique id."""
    return uuid.uuid4().bytes


class Segments(Backend, OwnParts):
    """The replica. Its clients' questions come from sessions of either dialect."""

    def __init__(self, runtime: Runtime[SegmentSettings], metrics: SegmentMetrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._settings = runtime.settings
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._reader = LogReader(runtime.settings.kafka)
        self._partitions: list[Partition] = []
        self._producer: LogProducer | None = None
        self._problem: str | None = "starting"
        section = runtime.settings.segment
        self._readers = Readers(
            self._reader,
            self._of,
            runtime.log,
            section.tail_wait,
            section.replies_bytes,
            runtime.settings.kafka.ack_deadline,
        )

    # Starting and stopping

    @property
    def topics(self) -> tuple[str, str]:
        """The topics that must exist."""
        kafka = self._settings.kafka
        return kafka.segments_topic, kafka.snapshots_topic

    @override
    async def start(self) -> None:
        runtime, settings = self._runtime, self._settings
        topic = await self._usable()
        while True:
            try:
                await self._reader.start()
                break
            except (KafkaError, OSError) as error:
                self._problem = f"Kafka: {explain(error)}"
            await asyncio.sleep(RETRY)
        self._producer = LogProducer(
            settings.kafka,
            topic,
            runtime.metrics,
            runtime.log,
            lambda number, first, count: self._partitions[number].stored(first, count),
            lambda number: self._partitions[number].serving.producer_lost(),
        )
        while True:
            try:
                await self._producer.open()
                break
            except DeliveryError as error:
                self._problem = str(error)
            await asyncio.sleep(RETRY)
        for number in range(topic.partitions):
            partition = Partition(
                number,
                settings.kafka,
                self._reader,
                ServedSessions(new_id),
                RecentBlocks(settings.segment.cache_bytes // topic.partitions),
                runtime.log,
                self._readers.heard,
                self._judged,
            )
            self._partitions.append(partition)
            runtime.tasks.start(partition.follow(), f"segments {number}")
            runtime.tasks.start(self._producer.pump(number), f"segments producer {number}")
            upkeep = PartitionUpkeep(
                partition,
                settings.kafka,
                settings.segment,
                self._put,
                partial(self._producer.waits, number),
                lambda: time.time_ns() // 1_000_000,
                self._metrics,
                runtime.log,
            )
            runtime.tasks.start(upkeep.run(), f"segments upkeep {number}")
        self._problem = None
        runtime.tasks.start(self._watch(), "segments")
        for partition in self._partitions:
            await partition.live.wait()
        if (problem := await self._misplaced()) is not None:
            self._unusable(problem)
            await asyncio.Event().wait()

    async def _misplaced(self) -> str | None:
        """Returns the problem if a segment is in a partition that its name does not choose: its writers would begin again."""
        for partition in self._partitions:
            for number, name in enumerate(partition.fold.segments):
                if (leads := self._of(name).number) != partition.number:
                    topic = self._settings.kafka.segments_topic
                    return (
                        f"topic {topic}: segment {name} lies in partition {partition.number}, and of"
                        f" {len(self._partitions)} its name chooses {leads}: some were added, and their number may never change"
                    )
                if number % LOOKED == 0:
                    await asyncio.sleep(0)
        return None

    async def _usable(self) -> Topic:
        """Returns the segments topic, once both topics have the settings that they need."""
        settings = self._settings
        needed = needed_bytes(settings.limits.frame_bytes, settings.segment.name_bytes)
        known = self._runtime.receiver.publisher.own_topics  # the publisher has asked just now
        while True:
            try:
                if known:
                    segments, snapshots = (known[name] for name in self.topics)
                    known = {}
                else:
                    _, _, segments, snapshots = await describe(settings.kafka, self.topics)
                found = problems(segments, snapshots, needed)
                if not found:
                    return segments
                problem = "; ".join(found)
            except DeliveryError as error:
                problem = str(error)
            self._unusable(problem)
            await asyncio.sleep(RETRY)

    def _unusable(self, problem: str) -> None:
        if problem != self._problem:
            self._runtime.log.warning("topics of segments cannot be used", problem=problem)
        self._problem = problem

    @override
    async def stop(self) -> None:
        for partition in self._partitions:  # blocks of clients that have left may wait for an answer that Kafka owes
            partition.serving.producer_lost()
        await self._readers.close()
        self._runtime.tasks.stopping()
        if self._producer is not None:
            await self._producer.close()
        await self._reader.close()

    @override
    def ready_problems(self) -> list[str]:
        found = [] if self._problem is None else [self._problem]
        found += [
            f"segments {each.number}: {each.problem or 'the log is not read yet'}"
            for each in self._partitions
            if not each.live.is_set()
        ]
        if self._producer is None:
            return found
        if (silent := self._producer.waited()) > STUCK_TIME:
            found.append(f"Kafka has not answered for a block for {silent:.0f} s: {self._producer.silence()}")
        seconds, problem = self._producer.failing()
        if seconds > STUCK_TIME:
            found.append(f"Kafka has stored no block for {seconds:.0f} s: {problem}")
        return found

    # Questions

    def _of(self, segment: str) -> Partition:
        return self._partitions[partition_of(segment.encode(), len(self._partitions))]

    @override
    def ask(self, question: Question, caller: Caller) -> None:
        if isinstance(question, Asked):
            self._readers.ask(question, caller)
            return
        assert isinstance(question, Appending)
        partition = self._of(question.segment)
        if not partition.live.is_set():  # the client comes again
            caller.end("log")
            caller.answered(question.ticket, OutcomeUnknown())
            return
        since = self._clock()
        exceeded = self._limit(partition, question)
        if exceeded is not None:
            caller.answered(question.ticket, LimitExceeded(exceeded))
            return
        serving = partition.serving
        record: Record | None
        session = None
        if isinstance(question, OpenSession):
            record = opened = serving.open(question, caller, since)
            session = opened.session
        elif isinstance(question, AppendBlock):
            record, session = serving.append(question, caller, since), question.session
        else:
            record = change = serving.change(question, caller, since)
            session = change.request
        if record is not None:
            self._put(question.segment, record, session)

    def _limit(self, partition: Partition, question: Appending) -> str | None:
        """Returns the limit that the question exceeds. Replicas that are asked at once may together go a little beyond it."""
        if isinstance(question, AppendBlock):
            return None
        change = question.change if isinstance(question, ChangeSegment) else None
        section = self._settings.segment
        segment = partition.fold.segments.get(question.segment)
        if segment is None and isinstance(change, Create | None):
            count = sum(len(each.fold.segments) for each in self._partitions)
            return "SEGMENT__SEGMENTS" if count >= section.segments else None
        if segment is not None and isinstance(question, OpenSession) and question.writer not in segment.writers:
            return "SEGMENT__WRITERS" if len(segment.writers) >= section.writers else None
        return None

    def _put(self, segment: str, record: Record, session: bytes | None = None) -> None:
        assert self._producer is not None
        key = segment.encode()
        self._producer.put(partition_of(key, len(self._partitions)), key, record.encode(), session)

    @override
    def ended(self, caller: Caller) -> None:
        self._readers.ended(caller)
        for partition in self._partitions:
            partition.serving.ended(caller)

    # What becomes of them

    def _judged(self, outcome: Outcome) -> None:
        if isinstance(outcome, Appended):
            self._metrics.blocks.labels(STORED).inc()
        elif isinstance(outcome, Refused) and outcome.after is not None:
            self._metrics.blocks.labels(outcome.why.name.lower()).inc()

    async def _watch(self) -> None:
        """Ends conversations that have waited for too long, and counts."""
        late = False
        while True:
            looked = self._clock()
            await asyncio.sleep(LOOK)
            late = stood_still(self._clock(), looked + LOOK) and not late
            if late:  # it takes what came meanwhile first
                continue
            before = self._clock() - self._settings.kafka.ack_deadline
            assert self._producer is not None
            for partition in self._partitions:
                partition.serving.overdue(before)
                self._producer.forget(partition.number, partition.serving.serves)
            self._count()

    def _count(self) -> None:
        metrics = self._metrics
        segments = [segment for each in self._partitions for segment in each.fold.segments.values()]
        metrics.segments.set(len(segments))
        metrics.writers.set(sum(len(segment.writers) for segment in segments))
        metrics.bytes.set(sum(segment.length - segment.start for segment in segments))
        metrics.sessions.set(sum(len(each.serving) for each in self._partitions))
        metrics.replies_bytes.set(self._readers.used)
