"""The log's producer through what its client may do: whatever goes wrong, a fresh one goes on, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, ProducerClosed, TopicAuthorizationFailedError
from headrace_common.kafka import producer as module
from headrace_common.kafka.client import Topic
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.replica import producing
from headrace_segment.replica.producing import FAILED_TIME, LogProducer
from headrace_segment.replica.tail import SLICE
from headrace_segment.replica.topics import MESSAGE_BYTES
from headrace_segment.store.early import OwnRecord
from structlog.testing import CapturingLogger

from tests.contract.topic import since
from tests.contract.waiting import before, until

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

    topic = Topic(own_segments.segments_topic, 2, MESSAGE_BYTES)
    producer = LogProducer(
        own_segments, topic, ReceiverMetrics(), structlog.get_logger(), stored, lambda: None, lambda *refused: None
    )
    async with pumping(producer, 2):
        for number in range(60):
            producer.put(number % 2, b"s", b"%d" % number)
            await asyncio.sleep(0.002 * (number % 7 == 0))
        await asyncio.wait_for(all_heard.wait(), PATIENCE)
    read, _ = await since(own_segments, own_segments.segments_topic, {})
    assert sorted(heard) == [(each.partition, each.offset, each.timestamp, each.key, each.value) for each in read]


@dataclass
class Answer:
    """Kafka's, to a batch."""

    offset: int = 7
    timestamp: int = -1
    timestamp_type: int = 0


class Batch:
    def __init__(self, most: int) -> None:
        self.most = most
        self.values: list[bytes] = []

    def append(self, *, key: bytes, value: bytes, **_: object) -> object | None:
        if self.values and len(value) > self.most - sum(map(len, self.values)):
            return None
        self.values.append(value)
        return object()

    def _build(self) -> bytes:
        return zlib.compress(b"".join(self.values))


class Client:
    """As much of aiokafka's producer as the log's producer uses."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.client = self.cluster = self

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, *request: Any) -> None: ...

    async def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def leader_for_partition(self, where: Any) -> int:
        return 1

    def create_batch(self) -> Batch:
        return Batch(self.bench.batch_bytes)

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[object]:
        self.bench.sent.append(batch.values)
        if self.bench.troubles:
            raise self.bench.troubles.pop(0)
        if len(batch._build()) > self.bench.most:
            raise MessageSizeTooLargeError
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        answer.set_result(self.bench.answer)
        self.bench.answered.set()
        return answer


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.troubles: list[Exception] = []
        self.sent: list[list[bytes]] = []
        self.lost = 0
        self.batch_bytes = 1 << 20
        self.most = MESSAGE_BYTES
        self.refused: list[tuple[int, bytes | None]] = []
        self.log = CapturingLogger()
        self.answer = Answer()
        self.stored: list[tuple[Any, ...]] = []
        self.answered = asyncio.Event()
        self.made = self.looks = 0
        self.away = False
        self.ends = asyncio.Event()
        monkeypatch.setattr(module, "make_producer", self._make)
        monkeypatch.setattr(producing, "describe", self.describe)
        self.produce(1, self._lost)

    def produce(self, partitions: int, lost: Callable[[], None]) -> None:
        self.producer = LogProducer(
            KafkaSettings(),
            Topic("segments", partitions, self.most, configuration={"max.message.bytes": str(self.most)}),
            ReceiverMetrics(),
            self.log,  # type: ignore[arg-type]
            lambda *heard: self.stored.append(heard),
            lost,
            lambda *refused: self.refused.append(refused),
        )

    async def describe(self, settings: KafkaSettings, also: Sequence[str]) -> tuple[Topic, ...]:
        self.looks += 1
        if self.away:
            raise DeliveryError("Kafka is away", DeliveryPolicy.RETRY)
        topic = Topic("segments", 1, self.most, configuration={"max.message.bytes": str(self.most)})
        return topic, topic, topic

    def _make(self, settings: KafkaSettings, batch_bytes: int) -> Client:
        self.batch_bytes = batch_bytes
        return Client(self)

    def _lost(self) -> None:
        self.lost += 1
        self.producer.put(0, b"s", b"after")


@contextlib.asynccontextmanager
async def pumping(producer: LogProducer, partitions: int = 1) -> AsyncIterator[None]:
    """Its pumps run, and none ends by itself."""
    pumps = [asyncio.create_task(producer.pump(number)) for number in range(partitions)]
    try:
        yield
        assert not any(pump.done() for pump in pumps), pumps
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)
        await producer.close()


async def pumped(bench: Bench) -> None:
    async with pumping(bench.producer):
        await asyncio.wait_for(bench.answered.wait(), PATIENCE)
        await asyncio.sleep(0)


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
    bench.producer._stored = before(lambda *_: told_in.append(turns), bench.producer._stored)

    async def count() -> None:
        nonlocal turns
        while len(bench.stored) < 3:
            turns += 1
            await asyncio.sleep(0)

    async with pumping(bench.producer):
        await asyncio.wait_for(count(), PATIENCE)
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
    async with pumping(bench.producer, 2):
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
    async with pumping(bench.producer, 2):
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


NOISE = random.Random(5).randbytes(100_000)


async def test_a_block_that_the_topic_takes_no_more_ends_its_own_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max.message.bytes` was lowered. Each time that its client came again with it, the sessions of all ended."""
    bench = Bench(monkeypatch)
    producer = bench.producer

    async def put(*records: tuple[bytes, bytes]) -> None:
        before = len(bench.stored)
        for session, value in records:
            producer.put(0, b"s", value, session)
        producer.put(0, b"s", b"other", b"other")
        await until(lambda: len(bench.stored) > before and not producer._queues[0].records, "the others' is stored")

    async with pumping(producer):
        await put((b"large", NOISE))
        assert (bench.lost, bench.looks) == (0, 0)
        bench.most = 50_000
        await put((b"large", NOISE))
        assert (bench.lost, bench.looks) == (1, 1), "Kafka refuses the first: it is not known that the limit is another"
        assert bench.batch_bytes == 37_500
        sent = len(bench.sent)
        for _ in range(3):
            await put((b"before", b"1"), (b"large", NOISE), (b"large", b"behind it"), (b"zeros", bytes(200_000)))
        assert (bench.lost, bench.refused) == (1, [(0, b"large")] * 3)
        assert b"behind it" not in b"".join(value for values in bench.sent[sent:] for value in values)
        assert b"".join(bench.sent[sent + 1]) == bytes(200_000), "compressed it is small"
        (said,) = {call.args for call in bench.log.calls if "larger" in call.args[0]}
        assert said == ("a block is larger than the segments topic takes",)
        bench.away = True
        await put((b"large", NOISE))
        assert len(bench.refused) == 4
        bench.away, bench.most = False, MESSAGE_BYTES
        await put((b"large", NOISE))
        assert len(bench.refused) == 4, "the limit was raised"
        assert producer._current is not None
        assert producer._current.stored


async def test_what_fails_behind_a_block_that_is_too_large_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit was not looked at again, so the block ended the sessions of all once more."""
    bench = Bench(monkeypatch)
    bench.produce(2, lambda: None)
    answers: dict[int, asyncio.Future[object]] = {}

    async def send(client: Client, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[object]:
        return answers.setdefault(partition, asyncio.get_running_loop().create_future())

    monkeypatch.setattr(Client, "send_batch", send)
    monkeypatch.setattr(Client, "leader_for_partition", lambda client, where: where.partition)
    async with pumping(bench.producer, 2):
        for number in range(2):
            bench.producer.put(number, b"s", b"block")
        await until(lambda: len(answers) == 2, "they are under way")
        answers[0].set_exception(MessageSizeTooLargeError())
        answers[1].set_exception(ProducerClosed())
        await until(lambda: bench.producer._current is None, "the producer is given up")
        await bench.producer.current()
        assert bench.looks == 1


async def test_a_topic_that_refuses_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right: each block was refused at once, so none waited, and the replica called itself ready."""
    bench = Bench(monkeypatch)
    producer, now = bench.producer, 100.0
    producer._clock = lambda: now

    async def refused() -> None:
        sent = len(bench.sent)
        bench.troubles += [TopicAuthorizationFailedError("segments")]
        producer.put(0, b"s", b"1")
        await until(lambda: len(bench.sent) > sent, "it is sent")

    producer._lost = lambda: None
    async with pumping(producer):
        assert producer.failing() == (0.0, "")
        await refused()
        now += FAILED_TIME - 1
        await refused()
        now += 5
        seconds, problem = producer.failing()
        assert (seconds, "TopicAuthorizationFailedError: segments" in problem) == (FAILED_TIME + 4, True)
        now += FAILED_TIME
        assert producer.failing()[0] == 0.0, "nobody tries"
        await refused()
        assert producer.failing()[0] > FAILED_TIME
        producer.put(0, b"s", b"2")
        await until(lambda: bench.stored, "it is stored")
        assert producer.failing() == (0.0, "")
