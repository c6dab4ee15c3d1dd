"""All segments, as the sessions of this process question them: each question goes to the partition of its segment."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.errors import KafkaError
from headrace_common.kafka.client import Topic, describe, explain
from headrace_common.operations.errors import DeliveryError
from headrace_common.publishing.partitions import partition_of
from headrace_common.service.parts import OwnParts, Runtime
from headrace_common.session.interface import Backend, Caller, Question
from typing_extensions import override

from headrace_segment.appending import Question as Asks
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import OutcomeUnknown
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.owner import Owner
from headrace_segment.replica.partition import Partition, now_ms
from headrace_segment.replica.readers import Asked, Readers
from headrace_segment.replica.topics import needed_bytes, problems
from headrace_segment.replica.upkeep import PartitionUpkeep
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.recent import RecentBlocks

LOOK: Final = 1.0
RETRY: Final = 1.0


class Segments(Backend, OwnParts):
    """The part of one process. Its clients' questions come from sessions of either dialect."""

    def __init__(self, runtime: Runtime[SegmentSettings], metrics: SegmentMetrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._settings = runtime.settings
        self._reader = LogReader(runtime.settings.kafka)
        self._partitions: list[Partition] = []
        self._owner: Owner | None = None
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
    def topics(self) -> tuple[str]:
        """The topic that must exist."""
        return (self._settings.kafka.segments_topic,)

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
        for number in range(topic.partitions):
            partition = Partition(
                number,
                settings.kafka,
                topic,
                self._reader,
                RecentBlocks(settings.segment.cache_bytes // topic.partitions),
                runtime.log,
                self._heard,
                self._exceeds,
                settings.segment.checkpoint_records,
            )
            self._partitions.append(partition)
            upkeep = PartitionUpkeep(partition, settings.kafka, settings.segment, now_ms, runtime.log)
            runtime.tasks.start(upkeep.run(), f"segments upkeep {number}")
        self._problem = None
        self._owner = Owner(
            self._partitions, settings.kafka, runtime.metrics.kafka_throttled.inc, self._readers.lost, runtime.log
        )
        runtime.tasks.start(self._owner.run(), "segments owner")
        runtime.tasks.start(self._count(), "segments count")
        for partition in self._partitions:
            await partition.live.wait()

    async def _usable(self) -> Topic:
        """Returns the segments topic, once it has the settings that it needs."""
        settings = self._settings
        needed = needed_bytes(settings.limits.frame_bytes, settings.segment.name_bytes)
        known = self._runtime.receiver.publisher.own_topics  # the publisher has asked just now
        while True:
            try:
                if known:
                    (segments,) = (known[name] for name in self.topics)
                    known = {}
                else:
                    _, _, segments = await describe(settings.kafka, self.topics)
                found = problems(segments, needed)
                if not found:
                    return segments
                problem = "; ".join(found)
            except DeliveryError as error:
                problem = str(error)
            self._unusable(problem)
            await asyncio.sleep(RETRY)

    def _unusable(self, problem: str) -> None:
        if problem != self._problem:
            self._runtime.log.warning("the topic of segments cannot be used", problem=problem)
        self._problem = problem

    @override
    async def stop(self) -> None:
        if self._owner is not None:
            await self._owner.resign()
        await self._readers.close()
        self._runtime.tasks.stopping()
        await self._reader.close()

    @override
    def ready_problems(self) -> list[str]:
        problem = self._problem if self._owner is None else self._owner.problem
        if problem is not None:
            return [problem]
        return [
            f"segments {each.number}: the log is not read yet" for each in self._partitions if not each.live.is_set()
        ]

    # Questions

    def _of(self, segment: str) -> Partition:
        return self._partitions[partition_of(segment.encode(), len(self._partitions))]

    @override
    def ask(self, question: Question, caller: Caller) -> None:
        if isinstance(question, Asked):
            self._readers.ask(question, caller)
            return
        assert isinstance(question, Asks)
        partition = self._of(question.segment)
        if partition.live.is_set():
            partition.ask(question, caller)
        else:  # the client comes again
            caller.end("log")
            caller.answered(question.ticket, OutcomeUnknown())

    def _exceeds(self, name: str, writer: bytes | None) -> str | None:
        """Returns the limit that another segment exceeds, or another writer of this one. Partitions that are asked at once may
        together go a little beyond it.
        """
        section = self._settings.segment
        if writer is not None:
            return "SEGMENT__WRITERS" if len(self._of(name).fold.segments[name].writers) >= section.writers else None
        count = sum(len(each.fold.segments) for each in self._partitions)
        return "SEGMENT__SEGMENTS" if count >= section.segments else None

    @override
    def ended(self, caller: Caller) -> None:
        self._readers.ended(caller)
        for partition in self._partitions:
            partition.appending.ended(caller)

    # What becomes of them

    def _heard(self, segments: set[str], blocks: int) -> None:
        self._metrics.blocks.inc(blocks)
        self._readers.heard(segments)

    async def _count(self) -> None:
        metrics = self._metrics
        while True:
            await asyncio.sleep(LOOK)
            segments = [segment for each in self._partitions for segment in each.fold.segments.values()]
            metrics.segments.set(len(segments))
            metrics.writers.set(sum(len(segment.writers) for segment in segments))
            metrics.bytes.set(sum(segment.length - segment.start for segment in segments))
