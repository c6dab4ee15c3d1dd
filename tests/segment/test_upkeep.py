"""What keeps a partition small, while nothing can be produced, and by a clock that jumps."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from aiokafka.errors import MessageSizeTooLargeError
from headrace_common.kafka.client import Topic
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import MIB, KafkaSettings
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import ChangeSegment, OpenSession, OutcomeUnknown
from headrace_segment.replica import upkeep
from headrace_segment.replica.producing import LogProducer
from headrace_segment.replica.topics import MESSAGE_BYTES
from headrace_segment.replica.upkeep import LAST_PAUSE, MOST, PartitionUpkeep
from headrace_segment.settings import SegmentSection
from headrace_segment.store.records import Block, Create, Numbering, Open, Record, Renew, Seal, Truncate, decode
from typing_extensions import override

from tests.segment.instant import Hears
from tests.segment.recorded import W1
from tests.segment.test_segments import Bench as Front

HOUR = 3_600_000
NOW = 1_700_000_000_000


class Bench(Front):
    """A partition whose log stands still: the test moves what waits for it."""

    def __init__(self, **section: Any) -> None:
        super().__init__(**section)
        self.producer = LogProducer(
            KafkaSettings(),
            Topic("segments", 1, MESSAGE_BYTES),
            ReceiverMetrics(),
            structlog.get_logger(),
            lambda *heard: None,
            lambda lost: None,
        )
        self.segments._producer = self.producer
        self.now = NOW
        self.upkeep = PartitionUpkeep(
            self.partition,
            KafkaSettings(),
            SegmentSection.model_validate(section),
            self.segments._put,
            lambda: self.producer.waits(0),
            lambda: self.now,
            SegmentMetrics(ReceiverMetrics()),
            structlog.get_logger(),
        )
        self.goes_live()

    @override
    def goes_live(self) -> list[Any]:
        self.partition.live.set()
        return []

    def waiting(self) -> list[Record]:
        return [decode(each.value) for each in self.producer._queues[0].records]

    def lands(self) -> None:
        """All that waits is in the log, and read."""
        records = self.producer._queues[0].records
        while records:
            record = records.popleft()
            self.reads(decode(record.value))

    def reads(self, *records: Record) -> None:
        fold = self.partition.fold
        for record in records:
            self.partition.serving.read_back(fold.apply(fold.next_offset, b"s", record.encode(), self.now))


async def test_what_is_cut_already_does_not_pile_up_while_nothing_is_produced() -> None:
    bench = Bench(retention_bytes=MIB)
    bench.reads(Open(W1, W1, Numbering.BYTES, create=True))
    for at in range(3):
        bench.reads(Block(W1, W1, at * MIB, (at + 1) * MIB, bytes(MIB)))
    for _ in range(5):
        bench.upkeep.look()
    assert bench.waiting() == [Truncate(bytes(16), 2 * MIB)]
    bench.lands()
    assert bench.partition.fold.segments["s"].start == 2 * MIB
    bench.reads(Block(W1, W1, 3 * MIB, 4 * MIB, bytes(MIB)))
    bench.upkeep.look()
    assert bench.waiting() == [Truncate(bytes(16), 3 * MIB)]


class Times(Bench):
    """Kafka tells the first record of a time from the times at which they landed."""

    def __init__(self, **section: Any) -> None:
        super().__init__(**section)
        self.times: list[int] = []
        self.partition._reader = cast("Any", self)

    @override
    def reads(self, *records: Record) -> None:
        self.times += [self.now] * len(records)
        super().reads(*records)
        self.partition.log_time = self.now

    async def offset_at(self, partition: int, time_ms: int) -> int | None:
        return next((offset for offset, at in enumerate(self.times) if at >= time_ms), None)

    async def ages(self) -> list[Record]:
        """What is due a minute later."""
        self.upkeep._ages_due = 0
        await self.upkeep.age()
        return self.waiting()


def piece(at: int) -> Block:
    return Block(W1, W1, at * MIB, (at + 1) * MIB, bytes(MIB))


async def test_what_is_older_than_the_retention_is_let_go_in_whole_blocks() -> None:
    bench = Times(retention_time=3600)
    bench.reads(Open(W1, W1, Numbering.BYTES, create=True))
    for at in range(4):
        bench.reads(piece(at))
        bench.now += HOUR // 4
    assert await bench.ages() == []  # the first one is just old enough to stay
    bench.reads(piece(4))
    assert await bench.ages() == []
    bench.now += HOUR // 2
    assert await bench.ages() == []  # our clock says so, and the log does not yet
    bench.reads(piece(5))
    assert await bench.ages() == [Truncate(bytes(16), 2 * MIB)]
    await bench.upkeep.age()
    assert len(await bench.ages()) == 1  # nothing piles up
    bench.lands()
    assert bench.partition.fold.segments["s"].start == 2 * MIB


async def test_a_segment_to_which_nothing_comes_is_let_go_whole() -> None:
    """Else its last blocks would keep the log's head for ever."""
    bench = Times(retention_time=3600)
    bench.reads(Open(W1, W1, Numbering.BYTES, create=True), piece(0), piece(1))
    bench.now += 2 * HOUR
    fold = bench.partition.fold
    bench.times.append(bench.now)
    fold.apply(fold.next_offset, b"other", Create(bytes(16)).encode(), bench.now)
    bench.partition.log_time = bench.now
    assert await bench.ages() == [Truncate(bytes(16), 2 * MIB)]
    bench.lands()
    assert fold.segments["s"].start == fold.segments["s"].length == 2 * MIB
    assert fold.needed_from() == fold.next_offset


async def test_what_is_due_at_once_is_appended_in_parts() -> None:
    """300,000 writers of one day, forgotten in one turn of the loop, held it for half a second; so did that many old segments."""
    bench = Bench()
    bench.reads(*(Open(b"%016d" % number, W1, Numbering.BYTES, create=True) for number in range(2 * MOST + 1)))
    bench.partition.log_time = bench.now = NOW + 8 * 24 * HOUR
    found = []
    for _ in range(4):
        bench.upkeep.look()
        found.append(len(bench.waiting()))
        bench.lands()
    assert found == [MOST, MOST, 1, 0]
    assert not bench.partition.fold.segments["s"].writers
    aged = Times(retention_time=3600)
    fold, records = aged.partition.fold, aged.producer._queues[0].records
    for number in range(MOST + 1):
        for record in (Open(W1, W1, Numbering.BYTES, create=True), piece(0)):
            aged.times.append(aged.now)
            fold.apply(fold.next_offset, b"%d" % number, record.encode(), aged.now)
    aged.now += 2 * HOUR
    aged.partition.log_time = aged.now
    for due in (MOST, 1, 0):
        await aged.upkeep.age()
        assert len(records) == due
        while records:
            fold.apply(fold.next_offset, records[0].key, records.popleft().value, aged.now)


async def test_without_a_retention_nothing_ages() -> None:
    bench = Times()
    bench.reads(Open(W1, W1, Numbering.BYTES, create=True), piece(0))
    bench.now += 10_000 * HOUR
    bench.reads(piece(1))
    assert await bench.ages() == []


async def test_changes_that_nobody_waits_for_do_not_pile_up_while_nothing_is_produced() -> None:
    bench, caller = Bench(), Hears("a")
    bench.segments.ask(ChangeSegment(1, "s", Create(b"")), caller)
    bench.segments.ask(ChangeSegment(2, "s", Seal(b"")), caller)
    serving = bench.partition.serving
    bench.producer.forget(0, serving.serves)
    assert len(bench.waiting()) == 2
    serving.overdue(bench.segments._clock() + 1)
    assert caller.takes()[1::2] == [(1, OutcomeUnknown()), (2, OutcomeUnknown())]
    bench.producer.forget(0, serving.serves)
    assert bench.waiting() == []


async def test_a_clock_that_was_ahead_for_a_moment_does_not_keep_writers_from_being_renewed() -> None:
    """Else another replica would forget them, with their connection."""
    bench, caller = Bench(), Hears("a")
    bench.reads(Create(bytes(16)))
    bench.segments.ask(OpenSession(1, "s", W1, Numbering.BYTES), cast("Any", caller))
    bench.lands()
    bench.now += 1000 * 24 * HOUR
    bench.upkeep.look()
    assert [type(each) for each in bench.waiting()] == [Renew]
    bench.producer._queues[0].records.clear()  # its producer was given up
    bench.now = NOW
    bench.upkeep.look()
    bench.now += 4 * 24 * HOUR
    bench.upkeep.look()
    assert [type(each) for each in bench.waiting()] == [Renew]


async def test_a_snapshot_that_fails_is_tried_more_and_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right, or a topic that takes less than a part: the whole state was encoded again every two seconds, and each try
    left the parts before the one that failed.
    """
    bench, now, tries = Bench(), 100.0, list[float]()
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: now))

    async def attempt() -> None:
        tries.append(now)
        if failing:
            raise MessageSizeTooLargeError

    monkeypatch.setattr(bench.upkeep, "_snapshot", attempt)
    failing = True
    for _ in range(1300):
        await bench.upkeep.snapshot()
        now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, LAST_PAUSE, LAST_PAUSE]
    failing = False
    now += LAST_PAUSE
    await bench.upkeep.snapshot()
    failing = True
    await bench.upkeep.snapshot()
    now += 2
    await bench.upkeep.snapshot()
    assert len(tries) == len(pauses) + 4, "it begins again"
