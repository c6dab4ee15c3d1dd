"""A partition follows its log, also where that was cut, is denied, or has lost records."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
import structlog
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.questions import BytesRead, OutcomeUnknown, ReadBytes
from headrace_segment.replica import log_reader
from headrace_segment.replica import partition as partition_module
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.partition import Partition
from headrace_segment.replica.readers import Readers
from headrace_segment.serving import ServedSessions
from headrace_segment.store.outcomes import Outcome
from headrace_segment.store.reading import Gathering
from headrace_segment.store.recent import RecentBlocks
from headrace_segment.store.records import Create, Seal
from headrace_segment.store.state import Segment

from tests.contract.waiting import before, until
from tests.segment.instant import Hears
from tests.segment.test_segments import Bench as Front


@dataclass
class Record:
    offset: int
    key: bytes
    value: bytes
    timestamp: int = 5


class Consumer:
    """As much of aiokafka's consumer as a partition uses: a log whose records come when the test says so."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.records: asyncio.Queue[Record] = asyncio.Queue()
        self.cut: Exception | None = None  # the next read ends so
        self.denied = False

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.said.append("stop")

    def assign(self, where: object) -> None: ...

    def seek(self, where: object, offset: int) -> None: ...

    def pause(self, where: object) -> None: ...

    def resume(self, where: object) -> None: ...

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
        monkeypatch.setattr(partition_module, "make_consumer", lambda *_, **__: self.consumer)
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


def read(offset: int, count: int = 1) -> list[Record]:
    return [Record(offset + number, b"s", Seal(b"x" * 16).encode()) for number in range(count)]


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
    lives: list[bool] = []
    bench.partition.live.set = before(lambda: lives.append(True), bench.partition.live.set)  # type: ignore[method-assign]
    bench.consumer.denied = True
    bench.consumer.records.put_nowait(read(0)[0])
    await until(lambda: bench.consumer.said.count("stop") > 5, "it tries again and again")
    assert (lives, bench.partition.live.is_set(), bench.partition.problem is None) == ([], False, False)
    bench.consumer.denied = False
    await until(bench.partition.live.is_set, "it is live")
    assert (lives, bench.partition.problem) == ([True], None)


async def test_a_log_that_lost_records_is_read_again_before_anything_is_judged(bench: Bench) -> None:
    """Kafka's data was restored from an older copy, say: our batch has an offset that one of ours had before."""
    partition = bench.partition
    partition.stored(0, 2)
    await bench.brings(*read(0, 2))
    judged = len(bench.judged)
    partition.stored(0, 1)
    assert not partition.live.is_set()
    bench.log.end = 2
    bench.consumer.records.put_nowait(read(2)[0])
    await until(lambda: partition.fold.next_offset == 0, "it begins again")
    assert len(bench.judged) == judged
    await bench.brings(*read(0, 2))
    await until(partition.live.is_set, "it is live")
    assert partition.fold.next_offset == 2


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
