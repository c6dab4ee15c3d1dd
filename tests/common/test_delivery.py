"""Storing a batch, whatever goes wrong: each class of error has its policy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from aiokafka import errors
from headrace_common.kafka.client import InvalidRecordError, Topic
from headrace_common.kafka.producer import LOST_US, POISON, REFUSED
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.delivery import REFUSALS_PER_BATCH, Delivery
from headrace_common.publishing.in_flight import NO_DEADLINE
from headrace_common.record.encoding import decode

from tests.common.kafkaless import (
    MIB,
    SILENCE,
    Answer,
    FakeBroker,
    FakeFrame,
    FakeTopics,
    StoredUnseen,
    event,
    in_flight,
    producer_of,
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
        self.topics = FakeTopics()
        self.metrics = ReceiverMetrics()
        self.delivery = Delivery(producer_of(self.broker), self.topics, self.metrics)  # type: ignore[arg-type]

    def takes(self, most: int) -> None:
        """The events topic takes batches of at most this many bytes."""
        self.topics.events = Topic("events", 4, most)

    def batch(self, count: int, size: int = 10, topic: str = "events") -> Batch:
        batch = Batch(topic, 2, 1 << 30)
        for index in range(count):
            assert batch.add(event(index, size), in_flight(FakeFrame([], ticket=index)))
        return batch

    async def store(self, batch: Batch, seconds: float = 5.0) -> list[int]:
        """The numbers of the records that were refused."""
        deadline = asyncio.get_running_loop().time() + seconds
        refused = await self.delivery.store(batch, deadline)
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
    errors.NotEnoughReplicasAfterAppendError(),
    errors.KafkaConnectionError(),
    ConnectionResetError(),
    AssertionError("a bug in aiokafka"),
]


class TestRetried:
    @pytest.mark.parametrize("error", RETRIABLE, ids=lambda error: type(error).__name__)
    async def test_byte_for_byte_and_unmarked(self, error: Exception) -> None:
        answers: list[Answer] = [error, StoredUnseen(error), None]
        bench = Bench(lambda values: answers.pop(0))
        assert await bench.store(bench.batch(3)) == []
        assert len(bench.broker.sent) == 3
        assert len({sent.data for sent in bench.broker.sent}) == 1
        assert marked(bench) == [False] * 3
        assert bench.counted("events_republished") == 0

    @pytest.mark.parametrize("error", LOST_US, ids=lambda kind: kind.__name__)
    @pytest.mark.parametrize("in_doubt", [False, True])
    async def test_under_another_identity_where_kafka_has_forgotten_us(
        self, error: type[Exception], in_doubt: bool
    ) -> None:
        answers: list[Answer] = [*[StoredUnseen(errors.RequestTimedOutError())] * in_doubt, error(), None]
        bench = Bench(lambda values: answers.pop(0))
        assert await bench.store(bench.batch(3)) == []
        assert len({sent.identity for sent in bench.broker.sent}) == 2
        assert bench.broker.sent[-1].sequence == 0
        assert marked(bench) == ([False] * 3 + [True] * 3 if in_doubt else [False] * 3)
        assert bench.counted("events_republished") == 3 * in_doubt


EVERY_ERROR = [each() for code, each in sorted(errors.kafka_errors.items()) if code]


class TestStoredUnseen:
    """A batch is stored, its answer is lost, and that to the second attempt is an error."""

    @pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: f"{error.errno}-{type(error).__name__}")
    async def test_whatever_the_second_answer_is_no_double_is_unmarked(self, error: Exception) -> None:
        answers: list[Answer] = [StoredUnseen(errors.RequestTimedOutError()), error, error]
        bench = Bench(lambda values: answers.pop(0) if answers else None)
        batch = bench.batch(4)
        for _ in range(2):  # some are for good: then the batch is sent again later
            with contextlib.suppress(DeliveryError):
                await bench.store(batch)
                break
        seen: set[bytes] = set()
        for (value, _), mark in zip(bench.broker.stored, marked(bench), strict=True):
            assert mark or value not in seen
            seen.add(value)

    async def test_parts_that_fail_for_unknown_reasons_after_the_whole_was_refused(self) -> None:
        """The halves are stored, nobody hears of it, and the whole batch is sent again."""
        answers: list[Answer] = [errors.MessageSizeTooLargeError(), *[StoredUnseen(errors.UnknownError())] * 6]
        bench = Bench(lambda values: answers.pop(0) if answers else None)
        assert await bench.store(bench.batch(2)) == []
        assert len(bench.broker.stored) > 2
        assert marked(bench)[-2:] == [True, True]


class TestNumbers:
    async def test_only_what_is_stored_takes_them(self) -> None:
        answers: list[Answer] = [None, errors.MessageSizeTooLargeError(), errors.InvalidTimestampError(), None]
        bench = Bench(lambda values: answers.pop(0))
        await bench.store(bench.batch(3))
        assert await bench.store(bench.batch(1)) == [0]
        with pytest.raises(DeliveryError):
            await bench.store(bench.batch(1))
        await bench.store(bench.batch(2))
        assert [sent.sequence for sent in bench.broker.sent] == [0, 3, 3, 3]
        assert bench.broker.identities == 1

    async def test_no_other_batch_has_those_of_one_in_doubt(self) -> None:
        """Kafka would confirm it, and not store it."""
        bench = Bench(lambda values: StoredUnseen(errors.RequestTimedOutError()))
        with pytest.raises(DeliveryError):
            await bench.store(bench.batch(3), seconds=0)
        bench.broker.script = lambda values: None
        assert await bench.store(bench.batch(3)) == []
        assert len(bench.broker.stored) == 6
        assert bench.broker.sent[0].identity != bench.broker.sent[-1].identity


class TestDeadline:
    async def test_an_answer_that_is_under_way_is_awaited(self) -> None:
        bench = Bench(lambda values: SILENCE)
        storing = asyncio.create_task(bench.store(bench.batch(2), seconds=1))
        await asyncio.sleep(5)
        assert not storing.done()
        bench.broker.open.set()
        assert await storing == []

    async def test_without_a_leader_nothing_is_sent(self) -> None:
        bench = Bench()
        bench.broker.leader = -1
        with pytest.raises(DeliveryError) as caught:
            await bench.store(bench.batch(1))
        assert (caught.value.policy, caught.value.in_doubt) == (DeliveryPolicy.RETRY, False)
        assert bench.broker.sent == []
        assert bench.broker.metadata_updates > 1

    @pytest.mark.parametrize("seconds", [100.0, NO_DEADLINE])
    async def test_what_a_recreated_topic_has_no_partition_for_goes_to_another(self, seconds: float) -> None:
        """It waited for a leader that does not come: for ever, or until all of its clients were given up."""
        bench = Bench()
        bench.broker.there = bench.broker.led = 2
        batch = bench.batch(3)
        for _ in range(2):
            assert await bench.store(batch, seconds) == []
        assert [sent.where.partition for sent in bench.broker.sent] == [0, 0]
        assert asyncio.get_running_loop().time() < seconds

    @pytest.mark.parametrize("there", [3, None])
    async def test_what_has_a_partition_or_no_topic_yet_waits_there(self, there: int | None) -> None:
        bench = Bench()
        bench.broker.there, bench.broker.led = there, 2
        storing = asyncio.create_task(bench.store(bench.batch(3), 100.0))
        await until(lambda: bench.broker.metadata_updates > 3)
        assert bench.broker.sent == []
        bench.broker.there, bench.broker.led = 3, 3
        assert await storing == []
        assert [sent.where.partition for sent in bench.broker.sent] == [2]


REFUSALS = [*((kind, DeliveryPolicy.REFUSED) for kind in REFUSED), (errors.InvalidTimestampError, DeliveryPolicy.CLOCK)]


@pytest.mark.parametrize(("kind", "policy"), REFUSALS, ids=lambda each: getattr(each, "__name__", str(each)))
async def test_what_is_refused_for_reasons_outside_is_for_good(kind: type[Exception], policy: DeliveryPolicy) -> None:
    bench = Bench(lambda values: kind("no"))
    with pytest.raises(DeliveryError) as caught:
        await bench.store(bench.batch(3))
    assert caught.value.policy is policy
    assert len(bench.broker.sent) == 1


def refuses(*bad: int, error: type[Exception] = errors.MessageSizeTooLargeError) -> Callable[[list[bytes]], Answer]:
    return lambda values: error("bad") if any(number(value) in bad for value in values) else None


class TestPoison:
    @pytest.mark.parametrize("kind", POISON, ids=lambda kind: kind.__name__)
    async def test_exactly_the_bad_record_comes_back(self, kind: type[Exception]) -> None:
        bench = Bench(refuses(5, error=kind))
        assert await bench.store(bench.batch(9)) == [5]
        assert sorted(number(value) for value in bench.broker.values) == [0, 1, 2, 3, 4, 6, 7, 8]
        assert bench.broker.identities == 1
        assert marked(bench) == [False] * 8

    @pytest.mark.parametrize("topic", ["events", "quarantine"])
    async def test_a_compacted_topic_is_not_taken_for_bad_records(self, topic: str) -> None:
        """A client that sent few events at a time was acknowledged for all of them, and they were in quarantine."""
        bench = Bench(lambda values: InvalidRecordError("no key"))
        described = Topic(topic, 4, 4 * MIB, configuration={"cleanup.policy": "compact,delete"})
        bench.topics.refreshed = lambda: setattr(bench.topics, topic, described)
        with pytest.raises(DeliveryError, match="is compacted") as caught:
            await bench.store(bench.batch(3, topic=topic))
        assert caught.value.policy is DeliveryPolicy.REFUSED
        assert len(bench.broker.sent) == 1

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
        with pytest.raises(DeliveryError) as caught:
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
        bench.takes(50)
        assert await bench.store(bench.batch(3)) == [0, 1, 2]
        assert bench.broker.sent == []

    async def test_a_limit_that_was_lowered_is_looked_up(self) -> None:
        """Kafka says too large, we thought not: the topic's limit is another now."""
        bench = Bench(lambda values: errors.MessageSizeTooLargeError("x") if len(values) > 2 else None)
        batch = bench.batch(8, size=3000)

        def refreshed() -> None:
            bench.takes(batch.sealed().size() - 1 if len(batch) > 2 else 4 * MIB)

        bench.topics.refreshed = refreshed
        assert await bench.store(batch) == []
        assert sorted(number(value) for value in bench.broker.values) == list(range(8))

    async def test_where_a_part_of_it_fails_all_is_in_doubt(self) -> None:
        """The other half is stored, and the whole is sent again."""
        bench = Bench(lambda values: errors.TopicAuthorizationFailedError("no") if number(values[-1]) == 7 else None)
        batch = bench.batch(8, size=3000)
        bench.takes(batch.sealed().size() - 1)
        with pytest.raises(DeliveryError):
            await bench.store(batch)
        assert bench.broker.stored
        assert batch.doubt() == 0
