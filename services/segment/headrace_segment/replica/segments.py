"""All segments, as the sessions of this process question them."""

from __future__ import annotations

import asyncio
from typing import Final

from headrace_common.kafka.client import Topic, describe
from headrace_common.operations.errors import DeliveryError
from headrace_common.service.parts import OwnParts, Runtime
from headrace_common.session.interface import Backend, Caller, Question
from typing_extensions import override

from headrace_segment.appending import Question as Asks
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import DescribeSegment, OutcomeUnknown, ReadBytes, Refusal, Refused, RepliesLeft
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.owner import Owner
from headrace_segment.replica.readers import Readers
from headrace_segment.replica.topics import needed_bytes, problems
from headrace_segment.settings import SegmentSettings

LOOK: Final = 1.0
RETRY: Final = 1.0


class Segments(Backend, OwnParts):
    """The part of one process. Its clients' questions come from sessions of either dialect, once it has started."""

    def __init__(self, runtime: Runtime[SegmentSettings], metrics: SegmentMetrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._settings = runtime.settings
        self._reader = LogReader(runtime.settings.kafka)
        self._problem: str | None = "starting"

    # Starting and stopping

    @property
    def topics(self) -> tuple[str]:
        """The topic that must exist."""
        return (self._settings.kafka.segments_topic,)

    @override
    async def start(self) -> None:
        runtime, settings = self._runtime, self._settings
        topic = await self._usable()
        self._owner = Owner(
            settings,
            topic,
            self._reader,
            runtime.metrics.kafka_throttled.inc,
            self._heard,
            lambda: self._readers.lost(),
            runtime.log,
        )
        self._readers = Readers(self._reader, self._owner, settings, runtime.log)
        self._problem = None
        runtime.tasks.start(self._owner.run(), "segments owner")
        runtime.tasks.start(self._owner.keep_short(), "segments cut")
        runtime.tasks.start(self._count(), "segments count")
        await self._owner.live.wait()

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
            if problem != self._problem:
                self._runtime.log.warning("the topic of segments cannot be used", problem=problem)
            self._problem = problem
            await asyncio.sleep(RETRY)

    @override
    async def stop(self) -> None:
        if self._problem is None:  # it has come so far
            await self._owner.resign()
        self._runtime.tasks.stopping()
        await self._reader.close()

    @override
    def ready_problems(self) -> list[str]:
        problem = self._problem or self._owner.problem
        return [problem] if problem is not None else []

    # Questions

    @override
    def ask(self, question: Question, caller: Caller) -> None:
        if isinstance(question, RepliesLeft):
            self._readers.left(caller)
            caller.answered(question.ticket, None)
        elif not self._owner.live.is_set():  # the client comes again
            caller.end("log")
            caller.answered(question.ticket, OutcomeUnknown())
        elif isinstance(question, ReadBytes):
            self._readers.ask(question, caller)
        elif isinstance(question, DescribeSegment):
            found = self._owner.fold.segments.get(question.segment)
            caller.answered(question.ticket, found or Refused(Refusal.NO_SEGMENT))
        else:
            assert isinstance(question, Asks)
            self._owner.ask(question, caller)

    @override
    def ended(self, caller: Caller) -> None:
        self._readers.ended(caller)
        self._owner.appending.ended(caller)

    # What becomes of them

    def _heard(self, segments: set[str], blocks: int) -> None:
        self._metrics.blocks.inc(blocks)
        self._readers.heard(segments)

    async def _count(self) -> None:
        metrics = self._metrics
        while True:
            await asyncio.sleep(LOOK)
            segments = self._owner.fold.segments.values()
            metrics.segments.set(len(segments))
            metrics.writers.set(sum(len(segment.writers) for segment in segments))
            metrics.bytes.set(sum(segment.length - segment.start for segment in segments))
