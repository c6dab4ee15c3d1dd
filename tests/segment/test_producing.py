"""The producer of the log: nothing in doubt is produced again, and who waits for it hears that."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, TopicAuthorizationFailedError
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

from tests.common.kafkaless import SILENCE, Answer, FakeBroker, FakeClient
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
        own_segments, topic, ReceiverMetrics(), structlog.get_logger(), stored, lambda lost: None, lambda *refused: None
    )
    await producer.open()
    async with pumping(producer, 2):
        for number in range(60):
            producer.put(number % 2, b"s", b"%d" % number)
            await asyncio.sleep(0.002 * (number % 7 == 0))
        await asyncio.wait_for(all_heard.wait(), PATIENCE)
    read, _ = await since(own_segments, own_segments.segments_topic, {})
    assert sorted(heard) == [(each.partition, each.offset, each.timestamp, each.key, each.value) for each in read]


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.troubles: list[Answer] = []
        self.broker = FakeBroker(self._said)
        self.lost: list[int] = []
        self.most = MESSAGE_BYTES
        self.refused: list[tuple[int, bytes | None]] = []
        self.log = CapturingLogger()
        self.stored: list[tuple[Any, ...]] = []
        self.looks = 0
        self.away = False
        monkeypatch.setattr(producing, "PAUSE", 0.0)
        monkeypatch.setattr(producing, "describe", self.describe)
        self.producer = LogProducer(
            KafkaSettings(segments_topic="segments"),
            Topic("segments", partitions, self.most, configuration={"max.message.bytes": str(self.most)}),
            ReceiverMetrics(),
            self.log,  # type: ignore[arg-type]
            lambda *heard: self.stored.append(heard),
            self.lost.append,
            lambda *refused: self.refused.append(refused),
        )
        self.producer._producer._client = FakeClient(self.broker)

    def _said(self, values: list[bytes]) -> Answer:
        if self.troubles:
            return self.troubles.pop(0)
        return MessageSizeTooLargeError() if len(self.broker_bytes(values)) > self.most else None

    def broker_bytes(self, values: list[bytes]) -> bytes:
        """What of these values cannot be compressed."""
        return b"".join(value for value in values if value.strip(b"\0"))

    @property
    def sent(self) -> list[list[bytes]]:
        return [sent.values for sent in self.broker.sent]

    async def describe(self, settings: KafkaSettings, also: Sequence[str]) -> tuple[Topic, ...]:
        self.looks += 1
        if self.away:
            raise DeliveryError("Kafka is away", DeliveryPolicy.RETRY)
        topic = Topic("segments", 1, self.most, configuration={"max.message.bytes": str(self.most)})
        return topic, topic, topic


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


async def test_of_a_large_batch_a_slice_is_told_before_the_loop_turns(monkeypatch: pytest.MonkeyPatch) -> None:
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
    first = bench.stored[0][1]
    assert [(at - first, len(own)) for _, at, own, _ in bench.stored] == [(0, SLICE), (SLICE, SLICE), (2 * SLICE, 1)]
    assert len(set(told_in)) == 3


async def test_what_is_given_up_is_not_sent_again_and_the_sessions_of_its_partition_hear_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, 2)
    bench.troubles.append(TopicAuthorizationFailedError())
    async with pumping(bench.producer, 2):
        bench.producer.put(0, b"s", b"first")
        await until(lambda: bench.lost, "it is given up")
        bench.producer.put(1, b"t", b"other")
        bench.producer.put(0, b"s", b"after")
        await until(lambda: len(bench.stored) == 2, "the others are stored")
    assert sorted(bench.sent) == [[b"after"], [b"first"], [b"other"]]
    assert bench.lost == [0]


async def test_a_lost_answer_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.troubles.append(ConnectionResetError())
    async with pumping(bench.producer):
        bench.producer.put(0, b"s", b"first")
        await until(lambda: bench.stored, "it is stored")
    assert bench.broker.sent[0].data == bench.broker.sent[1].data
    assert bench.lost == []


async def test_what_is_put_while_the_broker_is_busy_leaves_together(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, 2)
    bench.troubles.append(SILENCE)
    async with pumping(bench.producer, 2):
        bench.producer.put(0, b"s", b"first")
        await until(lambda: bench.sent, "it is under way")
        for value in (b"second", b"third"):
            bench.producer.put(1, b"t", value)
            for _ in range(20):
                await asyncio.sleep(0)
        assert bench.sent == [[b"first"]]
        bench.broker.open.set()
        await until(lambda: len(bench.stored) == 2, "they are stored")
        assert bench.sent == [[b"first"], [b"second", b"third"]]


NOISE = random.Random(5).randbytes(100_000)


async def test_a_block_that_the_topic_takes_no_more_ends_its_own_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max.message.bytes` was lowered. Each time that its client came again with it, the sessions of all ended."""
    bench = Bench(monkeypatch)
    producer = bench.producer

    async def put(*records: tuple[bytes, bytes]) -> None:
        for session, value in records:
            producer.put(0, b"s", value, session)
        producer.put(0, b"s", b"other", b"other")
        await until(lambda: not producer._queues[0].records and producer._queues[0].since is None, "all is decided")

    async with pumping(producer):
        await put((b"large", NOISE))
        assert (bench.lost, bench.looks) == ([], 0)
        bench.most = 50_000
        await put((b"large", NOISE))
        await until(lambda: bench.looks, "the limit is looked at")
        assert bench.lost == [0], "Kafka refuses the first: it is not known that the limit is another"
        sent = len(bench.sent)
        for _ in range(3):
            await put((b"before", b"1"), (b"large", NOISE), (b"large", b"behind it"), (b"zeros", bytes(200_000)))
        assert (bench.lost, bench.refused) == ([0], [(0, b"large")] * 3)
        assert b"behind it" not in b"".join(value for values in bench.sent[sent:] for value in values)
        (said,) = {call.args for call in bench.log.calls if "larger" in call.args[0]}
        assert said == ("a block is larger than the segments topic takes",)
        bench.away = True
        await put((b"large", NOISE))
        assert len(bench.refused) == 4
        bench.away, bench.most = False, MESSAGE_BYTES
        await put((b"large", NOISE))
        assert len(bench.refused) == 4, "the limit was raised"
        assert NOISE in bench.broker.values[-2:]


async def test_a_topic_that_refuses_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right: each block was refused at once, so none waited, and the replica called itself ready."""
    bench = Bench(monkeypatch)
    producer, now = bench.producer, 100.0
    producer._clock = lambda: now

    async def refused() -> None:
        lost = len(bench.lost)
        bench.troubles += [TopicAuthorizationFailedError()]
        producer.put(0, b"s", b"1")
        await until(lambda: len(bench.lost) > lost, "it is given up")

    async with pumping(producer):
        assert producer.failing() == (0.0, "")
        await refused()
        now += FAILED_TIME - 1
        await refused()
        now += 5
        seconds, problem = producer.failing()
        assert (seconds, "TopicAuthorizationFailedError" in problem) == (FAILED_TIME + 4, True)
        now += FAILED_TIME
        assert producer.failing()[0] == 0.0, "nobody tries"
        await refused()
        assert producer.failing()[0] > FAILED_TIME
        producer.put(0, b"s", b"2")
        await until(lambda: bench.stored, "it is stored")
        assert producer.failing() == (0.0, "")
