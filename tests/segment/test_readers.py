"""Reads beside the log's tail, when they are given up or Kafka is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from aiokafka.errors import KafkaConnectionError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.questions import BytesRead, Lost, ReadBytes
from headrace_segment.replica import log_reader as module
from headrace_segment.replica.log_reader import LogReader
from headrace_segment.replica.readers import Readers
from headrace_segment.replica.replies import ReplyMemory
from headrace_segment.store.reading import Gathering
from headrace_segment.store.records import Create
from headrace_segment.store.state import Segment

from tests.contract.waiting import until
from tests.segment.instant import Hears
from tests.segment.test_early import Bench as Log
from tests.segment.test_early import Record, bench
from tests.segment.test_segments import Bench

__all__ = ["bench"]  # a fixture


async def test_a_read_that_is_given_up_at_once_is_answered() -> None:
    """Else the budgets would never get its bytes back."""
    front, caller = Bench(), Hears("a")
    front.partition.fold.apply(0, b"s", Create(bytes(16)).encode(), 1)
    front.goes_live()
    front.segments.ask(ReadBytes(1, "s", 0, 8), caller)
    front.segments.ended(caller)
    for _ in range(5):
        await asyncio.sleep(0)
    assert caller.heard == [(1, Lost())]


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
    monkeypatch.setattr(module, "make_consumer", lambda settings: made.append(Away()) or made[-1])
    reader = LogReader(KafkaSettings())
    segment = Segment(length=1)
    for _ in range(10):
        with pytest.raises(KafkaConnectionError):
            await reader.start()
        with pytest.raises(KafkaConnectionError):
            await reader.gather(0, Gathering.of("s", segment, 0, 1))
    assert [each.stopped for each in made] == [1] * 20
    assert reader._made == []


async def test_what_is_read_anew_is_not_taken_for_all_there_is(bench: Log) -> None:
    """Its fold begins before the segment does. To say that there is no such segment would make the client let it go."""
    partition, caller = bench.partition, Hears("a")
    readers = Readers(
        partition._reader,
        lambda name: partition,
        ReplyMemory(1 << 20, lambda: None),
        ReceiverMetrics(),
        structlog.get_logger(),
        wait=60,
        limit=10,
        deadline=60,
    )
    partition._heard = readers.heard
    created = Record(0, b"s", Create(bytes(16)).encode())
    await bench.brings(created)
    bench.log.end = 1
    readers.ask(ReadBytes(1, "s", 0, 8), caller)
    await until(lambda: readers.waiting, "it waits at the segment's end")
    bench.consumer.cut = KafkaConnectionError()
    bench.consumer.records.put_nowait(created)
    await until(lambda: partition.fold.next_offset == 0, "it is read anew")
    readers.heard({"s"})  # as the records that follow would say
    for _ in range(20):
        await asyncio.sleep(0)
    assert caller.heard == []
    await bench.brings(created)
    await until(lambda: readers.waiting, "it waits again")
    readers.drain()
    await until(lambda: caller.heard, "it is answered")
    assert caller.heard == [(1, BytesRead(b"", at_tail=True, end_of_segment=False))]
    await readers.close()
