"""Own records that are folded before they are read: what comes of it is what the log says, in whatever order all is heard."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
import structlog
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.questions import BytesRead, OpenSession, OutcomeUnknown, ReadBytes
from headrace_segment.replica import log_reader
from headrace_segment.replica import partition as partition_module
from headrace_segment.replica import tail as tail_module
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.replica.readers import Readers
from headrace_segment.replica.tail import Tail
from headrace_segment.serving import ServedSessions
from headrace_segment.store.early import OwnRecord, fold_early
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Opened, Outcome
from headrace_segment.store.reading import Gathering
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import Create, Numbering, Seal
from headrace_segment.store.snapshots import snapshot
from headrace_segment.store.state import Segment
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.waiting import before, until
from tests.segment.instant import Hears
from tests.segment.naive import Naive
from tests.segment.recorded import W1
from tests.segment.test_fold import Step, record_of, steps
from tests.segment.test_segments import Bench as Front
from tests.tiers import examples


@settings(max_examples=examples(1_000))
@given(steps, st.integers(0, 1 << 32))
def test_the_fold_is_that_of_the_log_whatever_is_folded_early(history: list[Step], seed: int) -> None:
    """Two replicas append batches in turns. Each reads at its own pace, and hears late, or never, where its batches stand."""
    chance = random.Random(seed)
    model, log = Naive(), list[tuple[bytes, bytes, int]]()
    folds, heard = [Fold(), Fold()], list[list[Outcome]]([[], []])
    answers = [deque[tuple[int, list[OwnRecord], int]]() for _ in folds]
    waiting = deque(enumerate(history))
    while waiting or any(fold.next_offset < len(log) for fold in folds):
        which, what = chance.randrange(2), chance.randrange(8)
        fold = folds[which]
        if what < 3 and waiting:
            first, time_ms = len(log), len(log) + chance.randrange(3)
            own = []
            for number, step in itertools.islice(waiting, chance.randint(1, 3)):
                name, record = record_of(model, step, number)
                model.apply(name, record)
                own.append((name.encode(), record.encode()))
            for key, value in own:
                waiting.popleft()
                log.append((key, value, time_ms))
            answers[which].append((first, own, time_ms))
        elif what < 6 and answers[which]:
            before = fold.next_offset
            outcomes = fold_early(fold, *answers[which].popleft()) if what < 5 else None
            assert fold.next_offset == before + len(outcomes or ())
            heard[which] += outcomes or ()
        elif what >= 6 and fold.next_offset < len(log):
            heard[which].append(fold.apply(fold.next_offset, *log[fold.next_offset]))
    plain = Fold()
    said = [plain.apply(offset, *record) for offset, record in enumerate(log)]
    assert heard == [said, said]
    assert all(list(snapshot(fold, 0)) == list(snapshot(plain, 0)) for fold in folds)


@dataclass
class Record:
    offset: int
    key: bytes
    value: bytes
    timestamp: int = 5


class Consumer:
    """As much of aiokafka's consumer as a tail uses: a log whose records come when the test says so."""

    def __init__(self) -> None:
        self.place = 0
        self.paused = False
        self.said: list[str] = []
        self.records: asyncio.Queue[Record] = asyncio.Queue()
        self.cut: Exception | None = None  # the next read ends so
        self.denied = False

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.said.append("stop")

    def assign(self, where: object) -> None: ...

    def seek(self, where: object, offset: int) -> None:
        self.place = offset

    def pause(self, where: object) -> None:
        self.paused = True
        self.said.append("pause")

    def resume(self, where: object) -> None:
        self.paused = False
        self.said.append(f"resume at {self.place}")

    async def getmany(self, where: object, timeout_ms: int, **_: object) -> dict[Any, list[Record]]:
        if self.denied:
            raise TopicAuthorizationFailedError
        try:
            found = [await asyncio.wait_for(self.records.get(), timeout_ms / 1000)]
        except TimeoutError:
            return {}
        if self.cut is not None:
            cut, self.cut = self.cut, None
            raise cut
        while not self.records.empty():
            found.append(self.records.get_nowait())
        return {where: found}


class Log:
    """What `Partition` asks of the log beside its tail."""

    end = 0

    async def end_offset(self, partition: int) -> int:
        return self.end

    async def start_offset(self, partition: int) -> int:
        return 0


class Nothing:
    """A topic of snapshots without any."""

    async def newest(self, start: int) -> None: ...


class Bench:
    """A partition that follows a log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.consumer, self.log = Consumer(), Log()
        monkeypatch.setattr(tail_module, "make_consumer", lambda *_, **__: self.consumer)
        monkeypatch.setattr(tail_module, "REST", 3600.0)
        monkeypatch.setattr(partition_module, "RETRY", 0.01)
        self.judged: list[Outcome] = []
        ids = itertools.count(1)
        self.partition = Partition(
            0,
            KafkaSettings(),
            cast("Any", self.log),
            ServedSessions(lambda: next(ids).to_bytes(16, "big")),
            RecentBlocks(1 << 20),
            structlog.get_logger(),
            lambda names: None,
            self.judged.append,
            lambda number: None,
        )
        self.partition.snapshots = cast("Any", Nothing())
        self.tasks: list[asyncio.Task[None]] = []

    async def goes_live(self) -> None:
        self.tasks.append(asyncio.create_task(self.partition.follow()))
        await asyncio.wait_for(self.partition.live.wait(), 60)

    async def brings(self, *records: Record) -> None:
        for record in records:
            self.consumer.records.put_nowait(record)
        await until(
            lambda: self.partition.fold.next_offset > records[-1].offset and self.consumer.records.empty(),
            "all is read",
        )

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        assert self.consumer.said[-1] == "stop"


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """One that is live."""
    made = Bench(monkeypatch)
    await made.goes_live()
    yield made
    await made.close()


def seals(count: int) -> list[OwnRecord]:
    return [(b"s", Seal(bytes([number]) * 16).encode()) for number in range(count)]


def read(offset: int, count: int = 1) -> list[Record]:
    return [Record(offset + number, b"s", Seal(b"x" * 16).encode()) for number in range(count)]


async def test_own_records_are_answered_before_they_are_read_and_passed_over_then(bench: Bench) -> None:
    caller = Hears("a")
    partition = bench.partition
    opened = partition.serving.open(OpenSession(1, "s", W1, Numbering.BYTES), caller, 0)
    partition.stored(0, [(b"s", opened.encode())], 9)
    assert caller.heard == [(1, Opened("s", W1, opened.session, 0))]
    assert partition.fold.segments["s"].modified == partition.log_time == 9
    await bench.brings(Record(0, b"s", opened.encode()), *read(1))
    assert caller.heard == [(1, Opened("s", W1, opened.session, 0))]
    assert len(bench.judged) == partition.fold.next_offset == 2


async def test_a_tail_rests_while_all_is_our_own_and_looks_when_others_come_between(bench: Bench) -> None:
    bench.partition.stored(0, seals(2), 1)
    bench.partition.stored(2, seals(1), 1)
    assert bench.consumer.said == ["pause", "resume at 0", "pause"]  # the first one of `start_at`
    bench.partition.stored(4, seals(1), 1)
    assert bench.consumer.said[-1] == "resume at 3"
    assert len(bench.judged) == bench.partition.fold.next_offset == 3
    await bench.brings(*read(3, 2))
    bench.partition.stored(5, seals(1), 1)
    assert bench.consumer.said[-1] == "pause"
    assert bench.partition.fold.next_offset == 6


async def test_a_tail_does_not_rest_for_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "REST", 0.01)
    bench.partition.stored(0, seals(1), 1)
    assert bench.consumer.paused
    bench.partition.stored(1, seals(1), 1)
    await until(lambda: not bench.consumer.paused, "it looks")
    assert bench.consumer.said[-1] == "resume at 2"


async def test_a_fold_that_must_not_move_is_left_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.partition.stored(0, seals(1), 1)  # nothing is read yet
    assert bench.partition.fold.next_offset == 0
    bench.log.end = 1
    bench.tasks.append(asyncio.create_task(bench.partition.follow()))
    await until(lambda: bench.consumer.said, "it has begun")
    bench.partition.stored(0, seals(1), 1)  # not live
    assert bench.partition.fold.next_offset == 0
    await bench.brings(*read(0))
    await until(bench.partition.live.is_set, "it is live")
    async with bench.partition.still:  # a snapshot is taken
        bench.partition.stored(1, seals(1), 1)
        assert bench.partition.fold.next_offset == 1
    assert not bench.consumer.paused
    await bench.brings(*read(1))
    bench.partition.stored(2, seals(1), 1)
    assert bench.partition.fold.next_offset == 3
    await bench.close()


async def test_a_barrier_is_reached_early_and_a_tail_that_rests_looks_when_one_lies_ahead(bench: Bench) -> None:
    bench.log.end = 1
    passed = asyncio.create_task(bench.partition.passed())
    await asyncio.sleep(0)
    bench.partition.stored(0, seals(1), 1)
    await asyncio.wait_for(passed, 60)
    await asyncio.wait_for(bench.partition.passed(), 60)
    assert bench.consumer.paused  # nothing lies ahead
    bench.log.end = 2
    passed = asyncio.create_task(bench.partition.passed())
    await until(lambda: bench.consumer.said[-1] == "resume at 1", "it looks")
    await bench.brings(*read(1))
    await asyncio.wait_for(passed, 60)


async def test_who_waits_at_a_barrier_goes_on_when_the_log_is_read_anew(bench: Bench) -> None:
    bench.log.end = 2
    passed = asyncio.create_task(bench.partition.passed())
    await until(lambda: bench.partition._barrier._waiting, "it waits")
    bench.consumer.cut = KafkaConnectionError()
    bench.consumer.records.put_nowait(read(0)[0])
    await until(lambda: bench.partition.problem, "nothing is read")
    await bench.brings(*read(0, 2))
    await asyncio.wait_for(passed, 60)


async def test_a_log_that_may_not_be_read_is_not_served(bench: Bench) -> None:
    """Each second the partition went live, opened sessions, met the refusal and ended them: so did readiness."""
    lives: list[int] = []
    bench.partition._went_live = lives.append
    bench.consumer.denied = True
    bench.consumer.records.put_nowait(read(0)[0])
    await until(lambda: bench.consumer.said.count("stop") > 5, "it tries again and again")
    assert (lives, bench.partition.live.is_set(), bench.partition.problem is None) == ([], False, False)
    bench.consumer.denied = False
    await until(bench.partition.live.is_set, "it is live")
    assert (lives, bench.partition.problem) == ([0], None)


async def test_a_log_that_lost_records_is_read_again_before_anything_is_judged(bench: Bench) -> None:
    """Kafka's data was restored from an older copy, say: it has not the session, and refuses its blocks at each later reading."""
    caller = Hears("a")
    partition = bench.partition
    opened = partition.serving.open(OpenSession(1, "s", W1, Numbering.BYTES), caller, 0)
    partition.stored(0, [*seals(1), (b"s", opened.encode())], 1)
    judged = len(bench.judged)
    partition.stored(0, seals(1), 2)
    bench.log.end = 2
    assert not partition.live.is_set()
    partition.stored(1, seals(1), 2)
    partition.stored(2, seals(1), 2)  # the fold stands here
    bench.consumer.records.put_nowait(read(2)[0])
    await until(lambda: partition.fold.next_offset == 0, "it begins again")
    assert len(bench.judged) == judged
    await bench.brings(*read(0, 2))
    await until(partition.live.is_set, "it is live")
    assert partition.fold.next_offset == 2


async def test_a_tail_that_is_closed_while_it_rests_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer()
    monkeypatch.setattr(tail_module, "make_consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(tail_module, "REST", 0.0)
    tail = Tail(KafkaSettings(), TopicPartition("t", 0), lambda: 7)
    await tail.start()
    tail.rest()
    await tail.close()
    await asyncio.sleep(0.01)
    assert consumer.said == ["pause", "resume at 7", "pause", "stop"]


# Reads beside the tail, when they are given up or Kafka is away


async def test_a_read_that_is_given_up_at_once_is_answered() -> None:
    """Else the budgets would never get its bytes back."""
    front, caller = Front(), Hears("a")
    front.partition.fold.apply(0, b"s", Create(bytes(16)).encode(), 1)
    front.goes_live()
    front.segments.ask(ReadBytes(1, "s", 0, 8), caller)
    front.segments.ended(caller)
    for _ in range(5):
        await asyncio.sleep(0)
    assert caller.heard == [(1, OutcomeUnknown())]


class Away:
    """A consumer whose brokers cannot be reached."""

    def __init__(self) -> None:
        self.stopped = 0

    def assign(self, partitions: Any) -> None: ...

    async def start(self) -> None:
        raise KafkaConnectionError

    async def stop(self) -> None:
        self.stopped += 1


async def test_consumers_that_could_not_start_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Away] = []
    monkeypatch.setattr(log_reader, "make_consumer", before(lambda _: made.append(Away()), lambda _: made[-1]))
    reader = LogReader(KafkaSettings())
    segment = Segment(length=1)
    for _ in range(10):
        with pytest.raises(KafkaConnectionError):
            await reader.start()
        with pytest.raises(KafkaConnectionError):
            await reader.gather(0, Gathering.of("s", segment, 0, 1))
    assert [each.stopped for each in made] == [1] * 20
    assert reader._made == []


async def test_what_is_read_anew_is_not_taken_for_all_there_is(bench: Bench) -> None:
    """Its fold begins before the segment does. To say that there is no such segment would make the client let it go."""
    partition, caller = bench.partition, Hears("a")
    readers = Readers(
        partition._reader,
        lambda name: partition,
        structlog.get_logger(),
        wait=0.5,
        memory=1 << 20,
        deadline=60,
    )
    partition._heard = readers.heard
    created = Record(0, b"s", Create(bytes(16)).encode())
    await bench.brings(created)
    bench.log.end = 1
    readers.ask(ReadBytes(1, "s", 0, 8), caller)
    await until(lambda: readers._at_end, "it waits at the segment's end")
    bench.consumer.cut = KafkaConnectionError()
    bench.consumer.records.put_nowait(created)
    await until(lambda: partition.fold.next_offset == 0, "it is read again from its beginning")
    readers.heard({"s"})  # as the records that follow would say
    for _ in range(20):
        await asyncio.sleep(0)
    assert caller.heard == []
    await bench.brings(created)
    await until(lambda: caller.heard, "it is answered")
    assert caller.heard == [(1, BytesRead(b"", at_tail=True, end_of_segment=False))]
    await readers.close()
