"""Producers: one for all, thrown away after a failure within a bound, made again until Kafka answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, OutOfOrderSequenceNumber, ProducerClosed
from aiokafka.structs import TopicPartition
from headrace_common.kafka import producer as module
from headrace_common.kafka.client import Topic, make_producer
from headrace_common.kafka.producer import FIRST_PAUSE, LAST_PAUSE, Producer, ProducerSource
from headrace_common.operations.errors import ConfigError, DeliveryError, DeliveryPolicy
from headrace_common.operations.log import RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.batch import Batch, Cycle
from structlog.testing import CapturingLogger

from tests.common.kafkaless import FakeFrame, in_flight, reject
from tests.common.slowly import SlowLoop
from tests.contract.waiting import PATIENCE

LOOP = SlowLoop


class Client:
    """As much of an aiokafka producer as is touched when it is made and ended."""

    def __init__(self, *, start: Any = None, stop: Any = None) -> None:
        self._start, self._stop = start, stop
        self.stopped = self.closed = 0
        self.failed: list[BaseException] = []
        self._sender = self
        self.sender_task: asyncio.Task[None] | None = None
        self._message_accumulator = self
        self.client = self
        self.cluster = self
        self.leader: int | None = 1
        self.throttle_time_ms = 0

    async def send(self, node: int, request: object) -> Client:
        return self

    async def start(self) -> None:
        self.sender_task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
        await _do(self._start)

    async def partitions_for(self, topic: str) -> set[int]:
        return {0}

    async def stop(self) -> None:
        self.stopped += 1
        await _do(self._stop)

    async def close(self) -> None:
        self.closed += 1

    def fail_all(self, error: BaseException) -> None:
        self.failed.append(error)

    def leader_for_partition(self, partition: Any) -> int | None:
        return self.leader


async def _do(what: Any) -> None:
    if isinstance(what, BaseException):
        raise what
    if what == "never":
        await asyncio.Event().wait()


class TestClose:
    async def test_that_ends_by_itself_cuts_nothing(self) -> None:
        client = Client()
        await self._closed(client)
        assert (client.stopped, client.failed) == (1, [])

    async def test_that_never_ends_is_bounded_and_cuts(self) -> None:
        """aiokafka's `stop` waits for batches that nobody will ever answer."""
        client = Client(stop="never")
        await client.start()
        await self._closed(client)
        assert isinstance(client.failed[0], ProducerClosed)
        assert client.closed == 1
        assert client.sender_task is not None
        assert client.sender_task.cancelled()

    @pytest.mark.parametrize(
        "stop", [KafkaConnectionError(), OSError(), RuntimeError("a bug"), AttributeError("x"), "never"], ids=repr
    )
    async def test_that_fails_never_raises_and_is_gone_all_the_same(self, stop: Any) -> None:
        """Without it, who waits for one of its batches waits until the deadline. What is cut may have another inside."""
        client = Client(stop=stop)
        await client.start()
        del client._message_accumulator
        await self._closed(client)

    async def _closed(self, client: Client) -> None:
        producer = Producer(client)
        await asyncio.wait_for(producer.close(), PATIENCE)
        assert producer.gone.done()


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clients: list[Client] = []
        self.starts: list[Any] = []
        self.answers: list[Any] = []
        self.asked: Sequence[str] = ()
        self.metrics = ReceiverMetrics()
        self.settings = KafkaSettings()
        monkeypatch.setattr(module, "make_producer", self._make)
        monkeypatch.setattr(module, "describe", self._describe)
        self.source = ProducerSource(self.settings, self.metrics, structlog.get_logger())

    def _make(self, settings: KafkaSettings, batch_bytes: int) -> Client:
        self.batch_bytes = batch_bytes
        client = Client(start=self.starts.pop(0) if self.starts else None)
        self.clients.append(client)
        return client

    async def _describe(self, settings: KafkaSettings, also: Sequence[str] = ()) -> tuple[Topic, ...]:
        self.asked = also
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer or (Topic("e", 4, 4 << 20), Topic("q", 3, 4 << 20), *(Topic(name, 7, 17 << 20) for name in also))

    def replaced(self, why: str) -> float:
        return self.metrics.registry.get_sample_value("headrace_producers_replaced_total", {"why": why}) or 0.0


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    made = Bench(monkeypatch)
    yield made
    await made.source.close()


class TestSource:
    async def test_tells_a_quota_that_is_used_up(self, bench: Bench) -> None:
        producer = await bench.source.current()
        assert bench.source.silence() == "no answer"
        for milliseconds, after in ((0, "no answer"), (3_600_000, "a quota of Kafka's is used up")):
            bench.clients[0].throttle_time_ms = milliseconds
            assert await producer.client.client.send(0, None) is bench.clients[0]
            assert bench.source.silence() == after
        assert bench.metrics.registry.get_sample_value("headrace_kafka_throttled_seconds_total") == 3600

    async def test_that_is_being_closed_gives_its_producer_to_nobody(self, bench: Bench) -> None:
        """Who waits for a producer that may be used would otherwise ask for ever, without a pause."""
        assert await bench.source.current()
        closing = asyncio.create_task(bench.source.close())
        await asyncio.sleep(0)
        asking = asyncio.create_task(bench.source.current())
        await closing
        await asyncio.sleep(0)
        assert not asking.done()
        assert len(bench.clients) == 1
        asking.cancel()

    @pytest.mark.parametrize(
        "trouble", [ConfigError("KAFKA__CA /ca.pem: no such file"), AssertionError("a bug"), KeyError("x")], ids=repr
    )
    async def test_is_made_again_whatever_goes_wrong_meanwhile(self, bench: Bench, trouble: Exception) -> None:
        first = await bench.source.current()
        bench.answers += [trouble, None, trouble]
        bench.starts += [trouble]
        bench.source.discard(first, DeliveryError("why", DeliveryPolicy.RETRY))
        await asyncio.wait_for(bench.source.current(), PATIENCE)
        assert bench.source.problem is None
        assert [client.stopped for client in bench.clients[1:]] == [1, 0]

    async def test_a_wrong_setting_is_one_only_at_the_start(self, bench: Bench) -> None:
        bench.answers += [ConfigError("KAFKA__CA /ca.pem: no such file")]
        with pytest.raises(ConfigError, match="no such file"):
            await bench.source.current()

    @pytest.mark.parametrize("trouble", [ConfigError("no such file"), AssertionError("a bug")], ids=repr)
    async def test_one_of_its_own_that_cannot_be_made_is_tried_again(self, bench: Bench, trouble: Exception) -> None:
        await bench.source.current()
        bench.starts.append(trouble)
        with pytest.raises(DeliveryError) as caught:
            async with bench.source.isolated():
                pass
        assert caught.value.policy is DeliveryPolicy.RETRY

    async def test_a_start_that_never_ends_is_bounded(self, bench: Bench) -> None:
        bench.starts.append("never")
        await asyncio.wait_for(bench.source.current(), PATIENCE)
        assert len(bench.clients) == 2

    async def test_who_gives_up_waiting_does_not_stop_the_others(self, bench: Bench) -> None:
        bench.answers += [DeliveryError("wait", DeliveryPolicy.RETRY)] * 5
        first, second = asyncio.create_task(bench.source.current()), asyncio.create_task(bench.source.current())
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.wait_for(second, PATIENCE)

    async def test_one_that_is_discarded_is_replaced_once(self, bench: Bench) -> None:
        first = await bench.source.current()
        for _ in range(3):
            bench.source.discard(first, DeliveryError("why", DeliveryPolicy.RETRY))
        assert first.discarded
        second = await bench.source.current()
        bench.source.discard(first, DeliveryError("why", DeliveryPolicy.RETRY))
        assert await bench.source.current() is second
        assert bench.replaced("failed") == 1
        await asyncio.wait_for(first.gone, PATIENCE)
        await bench.source.close()
        assert second.gone.done()

    async def test_those_that_store_nothing_are_replaced_more_and_more_rarely(self, bench: Bench) -> None:
        """Where a right is missing, each frame that a client sent again cost a producer: twenty in a second, with a line each."""
        log = CapturingLogger()
        clock = asyncio.get_running_loop().time

        async def replaced(*, stored: bool, policy: DeliveryPolicy = DeliveryPolicy.REFUSED) -> float:
            producer = await bench.source.current()
            producer.stored = stored
            bench.source.discard(producer, DeliveryError("no right", policy))
            before = clock()
            await bench.source.current()
            return clock() - before

        waits = [await replaced(stored=False) for _ in range(9)]
        assert waits == pytest.approx([FIRST_PAUSE * 2**n for n in range(6)] + [LAST_PAUSE] * 3, abs=0.05)
        assert await replaced(stored=True) < FIRST_PAUSE
        assert await replaced(stored=False) == pytest.approx(FIRST_PAUSE, abs=0.05)
        assert bench.replaced("refused") == 11
        for policy in (
            DeliveryPolicy.POISON,
            DeliveryPolicy.UNKNOWN,
            DeliveryPolicy.RETRY,
        ):  # of what it sent: others wait
            assert await replaced(stored=False, policy=policy) < FIRST_PAUSE
        bench.source._limited = RateLimited(log, clock=clock)  # type: ignore[arg-type]
        for _ in range(30):
            await replaced(stored=True)
        assert len(log.calls) == 10
        assert log.calls[0].kwargs == {"why": "refused", "problem": "no right"}

    async def test_a_batch_is_three_quarters_of_what_the_topic_takes(self, bench: Bench) -> None:
        bench.answers.append((Topic("e", 4, 100_000), Topic("q", 3, 4 << 20)))
        await bench.source.current()
        assert bench.batch_bytes == bench.source.batch_bytes == 75_000

    @pytest.mark.parametrize("most", [0, 1])
    async def test_a_topic_that_takes_nothing_leaves_room_for_a_reject(self, bench: Bench, most: int) -> None:
        """Kafka takes 0 as `max.message.bytes`: a cycle without room for anything held the loop for ever."""
        bench.answers.append((Topic("e", 4, most), Topic("q", 3, 4 << 20)))
        await bench.source.current()
        cycle = Cycle(Batch("e", 0, bench.source.batch_bytes), bench.source.batch_bytes)
        assert cycle.add([reject(0)], in_flight(FakeFrame([]))) == 1

    async def test_one_of_its_own_is_closed_whatever_happens(self, bench: Bench) -> None:
        shared = await bench.source.current()
        made: list[Producer] = []

        async def use() -> None:
            async with bench.source.isolated() as producer:
                made.append(producer)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await use()
        assert made[0] is not shared
        assert made[0].gone.done()
        assert bench.clients[1].stopped == 1
        assert await bench.source.current() is shared

    async def test_a_weak_topic_is_told(self, bench: Bench) -> None:
        bench.answers.append((Topic("e", 4, 4 << 20, ("min.insync.replicas below 2",)), Topic("q", 3, 4 << 20)))
        await bench.source.current()
        assert bench.metrics.registry.get_sample_value("headrace_topic_settings_weak") == 1


async def test_aiokafka_still_has_what_is_cut() -> None:
    """`_cut` reaches into a client that has no bounded way to stop: a release that changes it must be noticed here."""
    client = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    assert client._sender.sender_task is None
    assert callable(client._message_accumulator.fail_all)
    assert callable(client.client.close)
    assert callable(client.client.force_metadata_update)
    assert client.client.cluster.leader_for_partition(TopicPartition("t", 0)) in (None, -1)
    await Producer(client).close()


async def test_a_sender_that_ends_fails_what_waits_for_it_and_nothing_else() -> None:
    """Kafka's disk was full: a stack of aiokafka's own, with an AttributeError, stood in the log beside what we say."""
    producer = make_producer(KafkaSettings(bootstrap_servers="127.0.0.1:1"), 1 << 20)
    assert callable(type(producer._txn_manager).fatal_error), "aiokafka still has what is replaced"

    async def ends() -> None:
        raise OutOfOrderSequenceNumber

    sender = asyncio.create_task(ends())
    await asyncio.wait({sender})
    producer._sender._fail_all(sender)
    with pytest.raises(OutOfOrderSequenceNumber):
        await producer._message_accumulator.add_batch(producer.create_batch(), TopicPartition("t", 0), timeout=1)
    await Producer(producer).close()


async def test_topics_of_a_services_own_must_exist_too(bench: Bench) -> None:
    bench.source.required = ("segments",)
    await bench.source.current()
    assert bench.asked == ("segments",)
    assert bench.source.own == {"segments": Topic("segments", 7, 17 << 20)}
