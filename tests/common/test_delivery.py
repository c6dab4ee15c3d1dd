"""Storing a batch, whatever goes wrong: each class of error has its policy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from aiokafka import errors
from headrace_common.kafka.client import InvalidRecordError, Topic
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.publishing import delivery as module
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.delivery import POISON, REFUSALS_PER_BATCH, REFUSED, Delivery
from headrace_common.publishing.in_flight import NO_DEADLINE
from headrace_common.record.encoding import decode

from tests.common.kafkaless import (
    MIB,
    SILENCE,
    Answer,
    FakeBroker,
    FakeFrame,
    FakeSource,
    StoredUnseen,
    event,
    in_flight,
    until,
)
from tests.common.slowly import SlowLoop
from tests.contract.waiting import PATIENCE

LOOP = SlowLoop


def number(value: bytes) -> int:
    return int(value.strip(b'"'))


class Bench:
    def __init__(self, script: Callable[[list[bytes]], Answer] = lambda values: None) -> None:
        self.broker = FakeBroker(script)
        self.source = FakeSource(self.broker)
        self.metrics = ReceiverMetrics()
        self.delivery = Delivery(self.source, self.metrics)  # type: ignore[arg-type]
        self.most = 4 * MIB

    def batch(self, count: int, size: int = 10, topic: str = "events") -> Batch:
        batch = Batch(topic, 2, 1 << 30)
        for index in range(count):
            assert batch.add(event(index, size), in_flight(FakeFrame([], ticket=index)))
        return batch

    async def store(self, batch: Batch, seconds: float = 5.0) -> list[int]:
        """The numbers of the records that were refused."""
        deadline = asyncio.get_running_loop().time() + seconds
        refused = await self.delivery.store(batch, deadline, lambda: self.most)
        for record, owner in refused:
            assert number(decode(record)[0]) == owner.frame.ticket
        return [owner.frame.ticket for _, owner in refused]

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"headrace_{name}_total", labels) or 0.0


def marked(bench: Bench) -> list[bool]:
    return [b"republished" in headers.get("ce_attributes", b"") for _, headers in bench.broker.stored]


RETRIABLE = [
    errors.RequestTimedOutError(),
    errors.NotLeaderForPartitionError(),
    errors.OutOfOrderSequenceNumber(),
    errors.ProducerFenced(),
    errors.KafkaConnectionError(),
    errors.ProducerClosed(),
    errors.KafkaTimeoutError(),
    ConnectionResetError(),
    AssertionError("a bug in aiokafka"),
    KeyError("another"),
]


class TestRetried:
    @pytest.mark.parametrize("error", RETRIABLE, ids=lambda error: type(error).__name__)
    async def test_by_a_fresh_producer_and_marked(self, error: Exception) -> None:
        answers: list[Answer] = [error, error, None]
        bench = Bench(lambda values: answers.pop(0))
        assert await bench.store(bench.batch(3)) == []
        assert len(bench.source.producers) == 3
        assert [producer.stored for producer in bench.source.producers] == [False, False, True]
        assert [client for client, *_ in bench.broker.sent] == [producer.client for producer in bench.source.producers]
        assert bench.source.why == ["failed", "failed"]
        assert marked(bench) == [True] * 3
        assert bench.counted("events_republished") == 3

    async def test_an_answer_that_was_cancelled_is_no_end_of_the_pump(self) -> None:
        answers: list[Answer] = [SILENCE, None]
        bench = Bench(lambda values: answers.pop(0))
        storing = asyncio.create_task(bench.store(bench.batch(2)))
        await until(lambda: bench.broker.sent)
        await asyncio.sleep(0)
        bench.source.producers[0].client.answers[0].cancel()
        assert await asyncio.wait_for(storing, PATIENCE) == []
        assert marked(bench) == [True, True]


EVERY_ERROR = [each() for code, each in sorted(errors.kafka_errors.items()) if code]


class TestQuarantine:
    async def test_that_refuses_costs_events_no_producer(self) -> None:
        """One client with a faulty frame, sent again and again, put what others had under way in doubt each time."""
        refusing = True
        bench = Bench(lambda values: errors.TopicAuthorizationFailedError("quarantine") if refusing else None)
        for _ in range(3):
            with pytest.raises(DeliveryError, match="quarantine") as caught:
                await bench.store(bench.batch(1, topic="quarantine"))
            assert caught.value.policy is DeliveryPolicy.REFUSED
        assert (len(bench.source.producers), len(bench.source.alone)) == (1, 2)
        with pytest.raises(DeliveryError):
            await bench.store(bench.batch(1))
        assert (len(bench.source.producers), len(bench.source.alone)) == (2, 2), "events are another matter"
        refusing = False
        for _ in range(2):
            assert await bench.store(bench.batch(1, topic="quarantine")) == []
        assert (len(bench.source.producers), len(bench.source.alone)) == (3, 3), "it takes them again"

    async def test_that_refuses_a_record_takes_the_others(self) -> None:
        answers: list[Answer] = [errors.TopicAuthorizationFailedError("quarantine"), errors.MessageSizeTooLargeError()]
        bench = Bench(lambda values: answers.pop(0) if answers else None)
        with pytest.raises(DeliveryError):
            await bench.store(bench.batch(2, topic="quarantine"))
        assert await bench.store(bench.batch(2, topic="quarantine")) == []
        assert len(bench.broker.stored) == 2


class TestStoredUnseen:
    """A batch is stored, its answer is lost, and aiokafka's own second attempt is answered with an error."""

    @pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: f"{error.errno}-{type(error).__name__}")
    async def test_whatever_the_second_answer_is_no_double_is_unmarked(self, error: Exception) -> None:
        answers: list[Answer] = [StoredUnseen(error), StoredUnseen(error)]
        bench = Bench(lambda values: answers.pop(0) if answers else None)
        with contextlib.suppress(DeliveryError):  # some are for good: nothing is sent again then
            await bench.store(bench.batch(4))
        assert len(bench.broker.stored) >= 4
        seen: set[bytes] = set()
        for (value, _), mark in zip(bench.broker.stored, marked(bench), strict=True):
            assert mark or value not in seen
            seen.add(value)

    async def test_parts_that_fail_for_unknown_reasons_after_the_whole_was_refused(self) -> None:
        """The halves are stored, nobody hears of it, and the search begins again with the whole batch."""
        calls = 0

        def script(values: list[bytes]) -> Answer:
            nonlocal calls
            calls += 1
            if calls <= 2:
                return errors.MessageSizeTooLargeError("no")
            return StoredUnseen(errors.UnknownError("?")) if calls <= 2 + 2 * module.UNKNOWN_TRIES else None

        bench = Bench(script)
        assert await bench.store(bench.batch(2)) == []
        assert len(bench.broker.stored) > 2
        assert all(marked(bench))


class TestDeadline:
    async def test_costs_no_producer(self) -> None:
        """One stuck partition must not disturb the others. Abandoned frames are told elsewhere; the answer is awaited."""
        bench = Bench(lambda values: SILENCE)
        storing = asyncio.create_task(bench.store(bench.batch(2), seconds=1))
        await asyncio.sleep(5)
        assert not storing.done()
        assert bench.source.why == []
        bench.source.producers[0].client.answers[0].set_result(None)
        assert await storing == []

    async def test_kafkas_silence_has_an_end_of_its_own(self) -> None:
        bench = Bench(lambda values: SILENCE)
        batch = bench.batch(2)
        with pytest.raises(DeliveryError, match="has not answered for") as caught:
            await bench.store(batch, seconds=1)
        assert asyncio.get_running_loop().time() == module.SILENCE_TIME
        assert caught.value.policy is DeliveryPolicy.RETRY
        assert len(bench.source.why) == 1  # what is in doubt must not be answered by a producer that goes on
        assert batch.doubt() == 0  # marked already
        bench.source.producers[0].client.answers[0].set_exception(errors.ProducerClosed())  # nobody is asked about it

    async def test_without_a_producer(self) -> None:
        bench = Bench()
        bench.source.available.clear()
        with pytest.raises(DeliveryError, match="KAFKA__ACK_DEADLINE has passed"):
            await bench.store(bench.batch(1))
        assert bench.broker.sent == []

    async def test_without_a_leader_the_producer_is_spared(self) -> None:
        bench = Bench()
        bench.broker.leader = -1
        with pytest.raises(DeliveryError, match="no leader") as caught:
            await bench.store(bench.batch(1))
        assert caught.value.policy is DeliveryPolicy.RETRY
        assert (bench.broker.sent, bench.source.why) == ([], [])
        assert bench.broker.metadata_updates > 1

    @pytest.mark.parametrize("seconds", [100.0, NO_DEADLINE])
    async def test_what_a_recreated_topic_has_no_partition_for_goes_to_another(self, seconds: float) -> None:
        """It waited for a leader that does not come: for ever, or until all of its clients were given up."""
        bench = Bench()
        bench.broker.there = bench.broker.led = 2
        for _ in range(2):
            assert await bench.store(bench.batch(3), seconds) == []
        assert [partition for _, _, partition, _ in bench.broker.sent] == [0, 0]
        assert asyncio.get_running_loop().time() < seconds
        assert bench.source.why == []

    @pytest.mark.parametrize("there", [3, None])
    async def test_what_has_a_partition_or_no_topic_yet_waits_there(self, there: int | None) -> None:
        bench = Bench()
        bench.broker.there, bench.broker.led = there, 2
        storing = asyncio.create_task(bench.store(bench.batch(3), 100.0))
        await until(lambda: bench.broker.metadata_updates > 3)
        assert bench.broker.sent == []
        bench.broker.there, bench.broker.led = 3, 3
        assert await storing == []
        assert [partition for _, _, partition, _ in bench.broker.sent] == [2]

    async def test_a_batch_with_an_abandoned_frame_is_not_sent_again_as_it_is(self) -> None:
        bench = Bench(lambda values: errors.RequestTimedOutError())
        batch = bench.batch(2)
        batch.owners[1].abandoned = True
        with pytest.raises(DeliveryError):
            await bench.store(batch, seconds=PATIENCE)
        assert len(bench.broker.sent) == 1


REFUSALS = [*((kind, DeliveryPolicy.REFUSED) for kind in REFUSED), (errors.InvalidTimestampError, DeliveryPolicy.CLOCK)]


@pytest.mark.parametrize(("kind", "policy"), REFUSALS, ids=lambda each: getattr(each, "__name__", str(each)))
async def test_what_is_refused_for_reasons_outside_is_for_good(kind: type[Exception], policy: DeliveryPolicy) -> None:
    bench = Bench(lambda values: kind("no"))
    with pytest.raises(DeliveryError) as caught:
        await bench.store(bench.batch(3))
    assert caught.value.policy is policy
    assert bench.source.why == [policy.name.lower()]
    assert len(bench.broker.sent) == 1


def refuses(*bad: int, error: type[Exception] = errors.MessageSizeTooLargeError) -> Callable[[list[bytes]], Answer]:
    return lambda values: error("bad") if any(number(value) in bad for value in values) else None


class TestPoison:
    @pytest.mark.parametrize("kind", POISON, ids=lambda kind: kind.__name__)
    async def test_exactly_the_bad_record_comes_back(self, kind: type[Exception]) -> None:
        bench = Bench(refuses(5, error=kind))
        assert await bench.store(bench.batch(9)) == [5]
        assert sorted(number(value) for value in bench.broker.values) == [0, 1, 2, 3, 4, 6, 7, 8]
        assert bench.source.why == ["record_refused"]  # one producer for all of it; the search has its own
        assert len(bench.source.producers) == 1
        assert len(bench.source.alone) == len(bench.broker.sent) - 1
        assert all(producer.discarded for producer in bench.source.alone)

    @pytest.mark.parametrize("topic", ["events", "quarantine"])
    async def test_a_compacted_topic_is_not_taken_for_bad_records(self, topic: str) -> None:
        """A client that sent few events at a time was acknowledged for all of them, and they were in quarantine."""
        bench = Bench(lambda values: InvalidRecordError("no key"))
        described = Topic(topic, 4, 4 * MIB, configuration={"cleanup.policy": "compact,delete"})
        bench.source.refreshed = lambda: setattr(bench.source, topic, described)
        with pytest.raises(DeliveryError, match="is compacted") as caught:
            await bench.store(bench.batch(3, topic=topic))
        assert caught.value.policy is DeliveryPolicy.REFUSED
        assert (len(bench.broker.sent), bench.source.alone) == (1, [])
        with pytest.raises(DeliveryError, match="is compacted"):
            await bench.store(bench.batch(3, topic=topic))
        assert len(bench.source.alone) == (topic == "quarantine"), "the shared producer is not replaced again"

    async def test_a_topic_that_refuses_everything_is_not_taken_for_bad_records(self) -> None:
        count = 4 * REFUSALS_PER_BATCH
        bench = Bench(refuses(*range(count)))
        with pytest.raises(DeliveryError, match="record after record") as caught:
            await bench.store(bench.batch(count))
        assert caught.value.policy is DeliveryPolicy.REFUSED


class TestUnknown:
    """UNKNOWN_SERVER_ERROR: the broker says that it failed, and not why."""

    @pytest.mark.parametrize("count", [1, 3, 4 * REFUSALS_PER_BATCH])
    async def test_what_fails_alone_is_tried_until_its_deadline(self, count: int) -> None:
        bench = Bench(lambda values: errors.UnknownError("trouble"))
        with pytest.raises(DeliveryError, match="unknown reason") as caught:
            await bench.store(bench.batch(count))
        assert caught.value.policy is DeliveryPolicy.RETRY

    async def test_more_than_a_few_that_fail_beside_others_are_the_topics_fault(self) -> None:
        bench = Bench(refuses(*range(1, 4 * REFUSALS_PER_BATCH, 2), error=errors.UnknownError))
        with pytest.raises(DeliveryError, match="record after record") as caught:
            await bench.store(bench.batch(4 * REFUSALS_PER_BATCH), seconds=PATIENCE)
        assert caught.value.policy is DeliveryPolicy.REFUSED


class TestTooLarge:
    async def test_a_record_that_is_too_large_alone_comes_back_unsent(self) -> None:
        bench = Bench()
        bench.most = 50
        assert await bench.store(bench.batch(3)) == [0, 1, 2]
        assert (bench.broker.sent, bench.source.why) == ([], [])

    async def test_a_limit_that_was_lowered_is_looked_up(self) -> None:
        """Kafka says too large, we thought not: the topic's limit is another now."""
        bench = Bench(lambda values: errors.MessageSizeTooLargeError("x") if len(values) > 2 else None)
        batch = bench.batch(8, size=3000)

        def refreshed() -> None:
            bench.most = batch.sealed().size() - 1 if len(batch) > 2 else 4 * MIB

        bench.source.refreshed = refreshed
        assert await bench.store(batch) == []
        assert sorted(number(value) for value in bench.broker.values) == list(range(8))

    async def test_where_a_part_of_it_fails_all_is_in_doubt(self) -> None:
        """The other half is stored, and the whole is sent again."""
        bench = Bench(lambda values: errors.TopicAuthorizationFailedError("no") if number(values[-1]) == 7 else None)
        batch = bench.batch(8, size=3000)
        bench.most = batch.sealed().size() - 1
        with pytest.raises(DeliveryError):
            await bench.store(batch)
        assert bench.broker.stored
        assert batch.doubt() == 0
