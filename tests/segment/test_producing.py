"""The producer of the log: nothing in doubt is produced again, and who waits for it hears that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from headrace_common.kafka.client import Topic
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.replica import producing
from headrace_segment.replica.producing import FAILED_TIME, LogProducer
from headrace_segment.replica.topics import MESSAGE_BYTES
from structlog.testing import CapturingLogger

from tests.common.kafkaless import SILENCE, Answer, FakeBroker, FakeClient
from tests.contract.waiting import until

PATIENCE = 60.0


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.troubles: list[Answer] = []
        self.broker = FakeBroker(self._said)
        self.lost: list[int] = []
        self.most = MESSAGE_BYTES
        self.log = CapturingLogger()
        self.stored: list[tuple[Any, ...]] = []
        monkeypatch.setattr(producing, "PAUSE", 0.0)
        self.producer = LogProducer(
            KafkaSettings(segments_topic="segments"),
            Topic("segments", partitions, self.most, configuration={"max.message.bytes": str(self.most)}),
            ReceiverMetrics(),
            self.log,  # type: ignore[arg-type]
            lambda *heard: self.stored.append(heard),
            self.lost.append,
        )
        self.producer._producer._client = FakeClient(self.broker)

    def _said(self, values: list[bytes]) -> Answer:
        if self.troubles:
            return self.troubles.pop(0)
        return None

    @property
    def sent(self) -> list[list[bytes]]:
        return [sent.values for sent in self.broker.sent]


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
