"""The log's producer through what its client may do: whatever goes wrong, a fresh one goes on, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from headrace_common.kafka import producer as module
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.replica.producing import LogProducer
from headrace_segment.replica.tail import SLICE
from headrace_segment.store.early import OwnRecord

from tests.contract.topic import since
from tests.contract.waiting import until

PATIENCE = 60.0


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("whose", ["LogAppendTime", "CreateTime"])
async def test_it_hears_what_a_reader_reads(own_segments: KafkaSettings, whose: str) -> None:
    """Offsets, keys, values and times."""
    admin = AIOKafkaAdminClient(bootstrap_servers=own_segments.bootstrap_servers)
    await admin.start()
    try:
        setting = {"message.timestamp.type": whose, "max.message.bytes": str(17 << 20)}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, own_segments.segments_topic, setting)])
    finally:
        await admin.close()
    heard: list[tuple[int, int, int, bytes, bytes]] = []
    all_heard = asyncio.Event()

    def stored(partition: int, first: int, own: Sequence[OwnRecord], time_ms: int) -> None:
        heard.extend((partition, offset, time_ms, key, value) for offset, (key, value) in enumerate(own, first))
        if len(heard) == 60:
            all_heard.set()

    producer = LogProducer(own_segments, 2, ReceiverMetrics(), structlog.get_logger(), stored, lambda: None)
    pumps = [asyncio.create_task(producer.pump(number)) for number in range(2)]
    for number in range(60):
        producer.put(number % 2, b"s", b"%d" % number)
        await asyncio.sleep(0.002 * (number % 7 == 0))
    await asyncio.wait_for(all_heard.wait(), PATIENCE)
    for pump in pumps:
        pump.cancel()
    await asyncio.wait(pumps)
    await producer.close()
    read, _ = await since(own_segments, own_segments.segments_topic, {})
    assert sorted(heard) == [(each.partition, each.offset, each.timestamp, each.key, each.value) for each in read]


@dataclass
class Answer:
    """Kafka's, to a batch."""

    offset: int = 7
    timestamp: int = -1
    timestamp_type: int = 0


class Batch:
    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.times: set[int | None] = set()

    def append(self, *, timestamp: int | None, key: bytes, value: bytes) -> object:
        self.times.add(timestamp)
        self.values.append(value)
        return object()


class Client:
    """As much of aiokafka's producer as the log's producer uses."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.client = self.cluster = self

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def leader_for_partition(self, where: Any) -> int:
        return 1

    def create_batch(self) -> Batch:
        return Batch()

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[object]:
        self.bench.sent.append(batch.values)
        self.bench.times.append(batch.times)
        if self.bench.troubles:
            raise self.bench.troubles.pop(0)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        answer.set_result(self.bench.answer)
        self.bench.answered.set()
        return answer


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts: list[Exception] = []
        self.troubles: list[Exception] = []
        self.sent: list[list[bytes]] = []
        self.times: list[set[int | None]] = []
        self.lost = 0
        self.answer = Answer()
        self.stored: list[tuple[Any, ...]] = []
        self.answered = asyncio.Event()
        self.made = 0
        self.ends = asyncio.Event()
        monkeypatch.setattr(module, "make_producer", self._make)
        self.produce(1, self._lost)

    def produce(self, partitions: int, lost: Callable[[], None]) -> None:
        self.producer = LogProducer(
            KafkaSettings(),
            partitions,
            ReceiverMetrics(),
            structlog.get_logger(),
            lambda *heard: self.stored.append(heard),
            lost,
        )

    def _make(self, settings: KafkaSettings, batch_bytes: int) -> Client:
        if self.starts:
            raise self.starts.pop(0)
        return Client(self)

    def _lost(self) -> None:
        self.lost += 1
        self.producer.put(0, b"s", b"after")


async def pumped(bench: Bench) -> None:
    pump = asyncio.create_task(bench.producer.pump(0))
    answered = asyncio.create_task(bench.answered.wait())
    await asyncio.wait({pump, answered}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    assert not pump.done(), pump
    assert bench.answered.is_set()
    pump.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await pump
    await bench.producer.close()


async def test_a_batch_without_a_place_is_left_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.answer = Answer(offset=-1)
    for _ in range(SLICE + 1):
        bench.producer.put(0, b"s", b"")
    await pumped(bench)
    assert bench.stored == []


async def test_of_a_large_batch_so_many_are_told_before_the_loop_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for number in range(2 * SLICE + 1):
        bench.producer.put(0, b"s", b"%d" % number)
    turns, told_in = 0, list[int]()
    told, bench.producer._stored = bench.producer._stored, lambda *heard: (told_in.append(turns), told(*heard))[1]

    async def count() -> None:
        nonlocal turns
        while len(bench.stored) < 3:
            turns += 1
            await asyncio.sleep(0)

    pump = asyncio.create_task(bench.producer.pump(0))
    await asyncio.wait_for(count(), PATIENCE)
    pump.cancel()
    await bench.producer.close()
    assert [(first, len(own)) for _, first, own, _ in bench.stored] == [
        (7, SLICE),
        (7 + SLICE, SLICE),
        (7 + 2 * SLICE, 1),
    ]
    assert len(set(told_in)) == 3


@pytest.mark.parametrize("trouble", [OSError("cut"), KeyError("a bug")], ids=repr)
async def test_what_failed_is_not_sent_again_and_its_sessions_hear_it(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    bench = Bench(monkeypatch)
    bench.troubles.append(trouble)
    bench.producer.put(0, b"s", b"first")
    await pumped(bench)
    assert bench.sent == [[b"first"], [b"after"]]
    assert bench.lost == 1
    assert [own for _, _, own, _ in bench.stored] == [[(b"s", b"after")]]


class Silent(Client):
    """Its first life never answers, and takes its time to end."""

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[object]:
        if self.bench.made == 1:
            self.bench.sent.append(batch.values)
            return asyncio.get_running_loop().create_future()
        return await super().send_batch(batch, topic, partition=partition)

    async def stop(self) -> None:
        if self.bench.made == 1:
            await self.bench.ends.wait()


async def test_a_fresh_producer_is_not_given_up_for_what_the_one_before_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes seconds until that has ended; meanwhile sessions begin anew."""
    bench = Bench(monkeypatch)

    def make(settings: KafkaSettings, batch_bytes: int) -> Client:
        bench.made += 1
        return Silent(bench)

    monkeypatch.setattr(module, "make_producer", make)
    bench.produce(2, lambda: None)
    pumps = [asyncio.create_task(bench.producer.pump(number)) for number in range(2)]
    bench.producer.put(0, b"s", b"never answered")
    await until(lambda: bench.sent, "it is under way")
    late = asyncio.get_running_loop().time() + 1
    bench.producer.overdue(late)
    bench.producer.put(1, b"t", b"after")
    await asyncio.wait_for(bench.answered.wait(), PATIENCE)
    for _ in range(3):
        bench.producer.overdue(late)
        await asyncio.sleep(0)
    assert bench.made == 2
    bench.producer.put(1, b"t", b"more")
    await until(lambda: len(bench.stored) == 2, "it goes on")
    assert bench.made == 2
    bench.ends.set()
    for pump in pumps:
        pump.cancel()
    await asyncio.wait(pumps)
    await bench.producer.close()


async def test_what_is_put_while_the_broker_is_busy_leaves_together(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    answers: list[asyncio.Future[object]] = []

    class Slow(Client):
        async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[object]:
            await super().send_batch(batch, topic, partition=partition)
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

    monkeypatch.setattr(module, "make_producer", lambda settings, batch_bytes: Slow(bench))
    bench.produce(2, lambda: None)
    pumps = [asyncio.create_task(bench.producer.pump(number)) for number in range(2)]
    bench.producer.put(0, b"s", b"first")
    await until(lambda: answers, "it is under way")
    for value in (b"second", b"third"):
        bench.producer.put(1, b"t", value)
        for _ in range(20):
            await asyncio.sleep(0)
    assert bench.sent == [[b"first"]]
    answers[0].set_result(Answer())
    await until(lambda: len(answers) == 2, "the others are under way")
    assert bench.sent == [[b"first"], [b"second", b"third"]]
    answers[1].set_result(Answer())
    await until(lambda: len(bench.stored) == 2, "they are stored")
    for pump in pumps:
        pump.cancel()
    await asyncio.wait(pumps)
    await bench.producer.close()
