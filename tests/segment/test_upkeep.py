"""What keeps a partition small, and the limits that depend on its size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.kafka.client import Topic
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import MIB, KafkaSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.service.parts import Runtime
from headrace_segment.metrics import SegmentMetrics
from headrace_segment.questions import CreateSegment, OpenSession, OutcomeUnknown
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition, UnreadableError
from headrace_segment.replica.segments import Segments
from headrace_segment.replica.upkeep import MOST, PartitionUpkeep
from headrace_segment.settings import SegmentSection, SegmentSettings
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import Block, Claim, Create, Numbering, Record, Truncate

from tests.segment.instant import Hears
from tests.segment.recorded import W1, W2

HOUR = 3_600_000
NOW = 1_700_000_000_000


class Bench:
    """A partition that is owned; the test stores what waits for it."""

    def __init__(self, **section: Any) -> None:
        settings, log = SegmentSettings.model_validate({"segment": section}), structlog.get_logger()
        self.segments = Segments(
            Runtime(settings, cast("ReceiverState", None), ReceiverMetrics(), log, Tasks(lambda: None), list),
            SegmentMetrics(ReceiverMetrics()),
        )
        self.partition = Partition(
            0, settings.kafka, Topic("segments", 1, MIB), LogReader(settings.kafka), RecentBlocks(0), log,
            lambda names, blocks: None, self.segments._exceeds, 1000,
        )  # fmt: skip
        self.segments._partitions = [self.partition]
        self.partition._reader = cast("Any", self)
        self.now = NOW
        self.upkeep = PartitionUpkeep(
            self.partition,
            KafkaSettings(),
            SegmentSection.model_validate(section),
            lambda: self.now,
            log,
        )
        self.stores("", Claim(1, 0, W1))
        self.partition.live.set()

    def stores(self, segment: str, *records: Record) -> None:
        for record in records:
            self.partition.fold.apply(self.partition.fold.next_offset, segment, record, self.now)

    def lands(self) -> list[Record]:
        """What waits, which is stored now."""
        found: list[Record] = []

        def add(key: bytes, record: Record) -> bool:
            found.append(record)
            return True

        while self.partition.appending.fill(add):
            self.partition.appending.stored(self.partition.fold.next_offset, self.now)
        return found

    def looks(self) -> list[Record]:
        """What is due."""
        self.upkeep.look()
        self.upkeep.look()  # nothing piles up
        return self.lands()


def piece(at: int) -> Block:
    return Block(W1, at * MIB, (at + 1) * MIB, bytes(MIB))


async def test_what_is_older_than_the_retention_is_let_go_in_whole_blocks() -> None:
    bench = Bench(retention_time=3600)
    bench.stores("s", Create())
    for at in range(4):
        bench.stores("s", piece(at))
        bench.now += HOUR // 4
    assert bench.looks() == []  # the first one is just old enough to stay
    bench.stores("s", piece(4))
    bench.now += HOUR // 2
    assert bench.looks() == []  # our clock says so, and the log does not yet
    bench.stores("s", piece(5))
    assert bench.looks() == [Truncate(MIB)]  # the next block is just young enough


async def test_a_segment_to_which_nothing_comes_is_let_go_whole() -> None:
    """Else its last blocks would keep the log's head for ever."""
    bench = Bench(retention_time=3600)
    bench.stores("s", Create(), piece(0), piece(1))
    bench.now += 2 * HOUR
    bench.stores("other", Create())
    assert bench.looks() == [Truncate(2 * MIB)]
    assert bench.partition.fold.needed_from() == bench.partition.fold.next_offset


async def test_what_is_due_at_once_is_appended_in_parts() -> None:
    bench = Bench(retention_time=3600)
    for number in range(MOST + 1):
        bench.stores(f"{number}", Create(), piece(0))
    bench.now += 2 * HOUR
    bench.stores("young", Create())
    assert [len(bench.looks()), len(bench.looks()), len(bench.looks())] == [MOST, 1, 0]


async def test_writers_that_store_nothing_for_long_are_forgotten_unless_they_have_a_connection() -> None:
    bench, caller = Bench(), Hears()
    bench.stores("s", Create(), piece(0), Block(W2, 0, 1, b"x"))
    bench.segments.ask(OpenSession(1, "s", W2, Numbering.BYTES), caller)
    bench.lands()
    bench.now += 8 * 24 * HOUR
    bench.upkeep.look()
    assert len(bench.partition.fold.segments["s"].writers) == 2  # our clock alone could be wrong
    bench.stores("t", Create())
    bench.now += 24 * HOUR
    bench.upkeep.look()
    assert bench.partition.fold.segments["s"].writers.keys() == {W2}
    bench.stores("s", piece(0))  # it begins anew
    assert bench.partition.fold.segments["s"].writers[W1].level == MIB


@pytest.mark.parametrize(
    ("starts", "first", "found"),
    [
        ([0, 0, 0], 0, 0),
        ([0, 0, 2, 2], 0, 2),
        ([0, 0, 2, 2, 0], 2, 2),  # the last one is a claim that was made before the log was read
        ([0, 0, 2, 2, 0, 0, 0, 0], 2, 2),
        ([0, 0, 2], 1, 2),
        ([0, 0, 0], 1, None),
        ([0, 0, 0], 3, None),
    ],
)
async def test_where_the_log_is_read_from(starts: list[int], first: int, found: int | None) -> None:
    bench = Bench()

    async def read(partition: int, offset: int, take: Any) -> None:
        assert take(SimpleNamespace(value=Create().encode(starts[offset])))

    bench.read = read  # type: ignore[attr-defined]
    if found is not None:
        assert await bench.partition._begin(first, len(starts)) == found
    else:
        with pytest.raises(UnreadableError, match=f"the log begins at {first}"):
            await bench.partition._begin(first, len(starts))


async def test_the_limits_of_segments_and_writers() -> None:
    bench = Bench(segments=2, writers=1)
    bench.stores("a", Create(), piece(0))
    assert [bench.segments._exceeds("a", W2), bench.segments._exceeds("b", None)] == ["SEGMENT__WRITERS", None]
    bench.stores("b", Create())
    assert bench.segments._exceeds("c", None) == "SEGMENT__SEGMENTS"


async def test_who_asks_a_process_that_does_not_own_the_segment_ends_and_comes_again() -> None:
    bench, caller = Bench(), Hears()
    bench.partition.lost()
    bench.segments.ask(CreateSegment(1, "s"), caller)
    assert caller.takes() == ["log", (1, OutcomeUnknown())]
    assert bench.lands() == []
