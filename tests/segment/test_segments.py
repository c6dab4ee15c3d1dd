"""The replica's front, while its partition is not live yet; and when it gives up what has waited for too long."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast

import structlog
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.tasks import LATE, Tasks
from headrace_common.publishing.partitions import partition_of
from headrace_common.service.parts import Runtime
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import ChangeSegment, OpenSession, OutcomeUnknown
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.replica.segments import LOOK, STUCK_TIME, Segments
from headrace_segment.serving import ServedSessions
from headrace_segment.settings import SegmentSettings
from headrace_segment.store.outcomes import Refusal, Refused
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import (
    Change,
    Create,
    Numbering,
    Open,
    Seal,
    decode,
)

from tests.common.slowly import SlowLoop, slowly
from tests.segment.instant import Hears
from tests.segment.recorded import W1, W2


class Produced:
    """The log's producer, without a log."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.fails = 0.0, ""

    def waited(self) -> float:
        return 0.0

    def failing(self) -> tuple[float, str]:
        return self.fails

    def put(self, partition: int, key: bytes, value: bytes, session: bytes | None = None) -> None:
        self.records.append(decode(value))


class Bench:
    """One partition, which is live when the test says so."""

    def __init__(self, number: int = 0, **section: object) -> None:
        settings = SegmentSettings.model_validate({"segment": section})
        log = structlog.get_logger()
        runtime = Runtime(settings, cast("ReceiverState", None), ReceiverMetrics(), log, Tasks(lambda: None), list)
        self.segments = Segments(runtime, SegmentMetrics(runtime.metrics))
        ids = itertools.count(1)
        self.partition = Partition(
            number,
            settings.kafka,
            LogReader(settings.kafka),
            ServedSessions(lambda: next(ids).to_bytes(16, "big")),
            RecentBlocks(0),
            log,
        )
        self.produced = Produced()
        self.segments._partitions = [self.partition]
        self.segments._producer = cast("Any", self.produced)

    def goes_live(self) -> list[Any]:
        """What is produced then."""
        self.partition.live.set()
        return self.produced.records


async def test_who_asks_while_the_log_is_not_read_ends_and_comes_again() -> None:
    bench, caller = Bench(), Hears("a")
    bench.segments.ask(ChangeSegment(1, "s", Create(b"")), caller)
    assert caller.takes() == ["log", (1, OutcomeUnknown())]
    assert bench.goes_live() == []
    bench.segments.ask(ChangeSegment(2, "s", Create(b"")), caller)
    assert len(bench.produced.records) == 1
    assert caller.heard == []


async def test_it_is_not_ready_while_kafka_refuses_all_blocks() -> None:
    bench = Bench()
    bench.segments._problem = None
    assert bench.segments.ready_problems() != []  # its log is not read yet
    bench.goes_live()
    for seconds in (0.0, STUCK_TIME):
        bench.produced.fails = seconds, "no right"
        assert bench.segments.ready_problems() == []
    bench.produced.fails = STUCK_TIME + 1, "no right"
    assert bench.segments.ready_problems() == ["Kafka has stored no block for 31 s: no right"]


async def test_partitions_that_were_added_are_noticed_at_the_start() -> None:
    """Of both topics at once. A segment was sought elsewhere, made again there, and its writers began again at 0."""
    bench = Bench()
    name = next(name for name in map(str, itertools.count()) if partition_of(name.encode(), 2) == 1)
    bench.partition.fold.apply(0, b"other", Create(bytes(16)).encode(), 1)
    assert await bench.segments._misplaced() is None
    bench.partition.fold.apply(1, name.encode(), Create(bytes(16)).encode(), 1)
    bench.segments._partitions += [Bench(number=1).partition]
    problem = await bench.segments._misplaced()
    assert problem is not None
    assert f"segment {name} lies in partition 0, and of 2 its name chooses 1" in problem


async def test_the_limits_of_segments_and_writers() -> None:
    bench, caller = Bench(segments=2, writers=1), Hears("a")
    bench.goes_live()
    for number, record in enumerate([Create(bytes(16)), Open(W1, b"s" * 16, Numbering.BYTES, create=True)]):
        bench.partition.fold.apply(number, b"a", record.encode(), 1)

    def exceeded(segment: str, change: Change | None, writer: bytes = W2) -> object:
        before = len(bench.produced.records)
        if change is None:
            bench.segments.ask(OpenSession(1, segment, writer, Numbering.BYTES), caller)
        else:
            bench.segments.ask(ChangeSegment(1, segment, change), caller)
        heard = caller.takes()
        assert len(bench.produced.records) == before + (not heard)
        return heard[0][1].setting if heard else None

    assert exceeded("a", None) == "SEGMENT__WRITERS"
    assert exceeded("a", None, W1) is None
    assert exceeded("b", Create(b"")) is exceeded("b", None) is None
    bench.partition.fold.apply(2, b"other", Create(bytes(16)).encode(), 1)
    assert exceeded("b", Create(b"")) == exceeded("b", None) == "SEGMENT__SEGMENTS"
    assert exceeded("b", Seal(b"")) is exceeded("a", Create(b"")) is None


async def test_an_opening_that_is_refused_is_no_block() -> None:
    bench = Bench()
    blocks = bench.segments._metrics.blocks.labels("no_segment")
    for after, count in ((None, 0), (3, 1)):
        bench.segments._judged(Refused("a", W1, b"s" * 16, after, Refusal.NO_SEGMENT))
        assert blocks._value.get() == count


def test_a_process_that_stood_still_hears_first_what_came_meanwhile() -> None:
    """Kafka's answers may have arrived, and readers have taken nothing because nothing was sent to them."""
    slowly(_stands_still)


async def _stands_still(loop: SlowLoop) -> None:
    looks: list[float] = []
    replica: Any = SimpleNamespace(
        _clock=loop.time,
        _settings=SimpleNamespace(kafka=SimpleNamespace(ack_deadline=300)),
        _producer=object(),
        _partitions=[],
        _count=lambda: looks.append(loop.now),
    )
    watching = asyncio.create_task(Segments._watch(replica))
    await asyncio.sleep(2.5 * LOOK)
    assert len(looks) == 2
    loop.work(600)
    await asyncio.sleep(0.5 * LOOK)
    assert len(looks) == 2
    await asyncio.sleep(LOOK)
    assert len(looks) == 3
    for _ in range(4):
        loop.work(LOOK + LATE)
        await asyncio.sleep(0)
        await asyncio.sleep(0.1 * LOOK)
    assert len(looks) == 5, "it looks all the same where each turn of the loop takes long"
    watching.cancel()
    await asyncio.wait({watching})
