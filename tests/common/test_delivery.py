"""Storing a batch, whatever goes wrong: each class of error has its policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import errors
from headrace_common.kafka.client import InvalidRecordError, Topic
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.delivery import REFUSALS_PER_BATCH, Delivery
from headrace_common.record.encoding import decode

from tests.common.kafkaless import (
    MIB,
    Answer,
    FakeBroker,
    FakeFrame,
    FakeTopics,
    event,
    in_flight,
    producer_of,
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
        self.delivery = Delivery(producer_of(self.broker), self.topics, ReceiverMetrics())  # type: ignore[arg-type]

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


def refuses(error: type[Exception], *bad: int) -> Callable[[list[bytes]], Answer]:
    return lambda values: error("bad") if any(number(value) in bad for value in values) else None


MANY = 4 * REFUSALS_PER_BATCH
ALONE = refuses(errors.UnknownError, *range(MANY))
BLAMED = [
    (MANY, refuses(errors.MessageSizeTooLargeError, *range(MANY)), DeliveryPolicy.REFUSED, "record after record"),
    (MANY, refuses(errors.UnknownError, *range(1, MANY, 2)), DeliveryPolicy.REFUSED, "record after record"),
    # UNKNOWN_SERVER_ERROR: the broker says that it failed, and not why
    *((count, ALONE, DeliveryPolicy.RETRY, "unknown reason") for count in (1, 3, MANY)),
]


@pytest.mark.parametrize(("count", "script", "policy", "says"), BLAMED)
async def test_a_topic_or_broker_that_takes_nothing_is_not_taken_for_bad_records(
    count: int, script: Callable[[list[bytes]], Answer], policy: DeliveryPolicy, says: str
) -> None:
    with pytest.raises(DeliveryError, match=says) as caught:
        await Bench(script).store(Bench().batch(count), PATIENCE)
    assert caught.value.policy is policy


@pytest.mark.parametrize("topic", ["events", "quarantine"])
async def test_a_compacted_topic_is_not_taken_for_bad_records(topic: str) -> None:
    """A client that sent few events at a time was acknowledged for all of them, and they were in quarantine."""
    bench = Bench(lambda values: InvalidRecordError("no key"))
    described = Topic(topic, 4, 4 * MIB, configuration={"cleanup.policy": "compact,delete"})
    bench.topics.refreshed = lambda: setattr(bench.topics, topic, described)
    with pytest.raises(DeliveryError, match="is compacted") as caught:
        await bench.store(bench.batch(3, topic=topic))
    assert caught.value.policy is DeliveryPolicy.REFUSED
    assert len(bench.broker.sent) == 1
