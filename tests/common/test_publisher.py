"""Where frames go, how long they wait, and what becomes of them when their pump ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import structlog
from aiokafka.partitioner import DefaultPartitioner
from headrace_common.fairness.budget import Growth
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.publishing.batch import Cycle
from headrace_common.publishing.in_flight import InFlightFrame
from headrace_common.publishing.partitions import CACHED_KEY, partition_of
from headrace_common.publishing.publisher import QUIET_TIME, REFUSED_TIME, STUCK_TIME, Publisher
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from tests.common.kafkaless import MIB, FakeFrame, FakeTopics, Heard, Kafka, event, producer_of, until
from tests.common.slowly import SlowLoop, slow_loop

LOOP = SlowLoop


class Bench:
    def __init__(self) -> None:
        self.broker = Kafka()
        self.ends: list[str] = []
        self.tasks = Tasks(lambda: self.ends.append("ended"))
        scheduler = Scheduler(cpu=slow_loop().time)
        self.publisher = Publisher(
            KafkaSettings(), scheduler, Growth(MIB, MIB), ReceiverMetrics(), structlog.get_logger(), self.tasks
        )  # fmt: skip
        self.topics = FakeTopics()
        self.publisher._topics = self.publisher._delivery._topics = self.topics  # type: ignore[assignment]
        self.publisher._producer.open = self._open  # type: ignore[method-assign]
        self.listener = Heard()
        self.refusing = True

    async def _open(self, topics: Sequence[str]) -> None:
        self.publisher._producer._client = producer_of(self.broker)._client


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.publisher.start()
    yield made
    await made.tasks.stop()


async def test_whatever_goes_wrong_at_the_start_is_tried_again_but_a_wrong_setting() -> None:
    made = Bench()
    troubles: list[Exception] = [ConfigError("no such file"), AssertionError("a bug"), KeyError("x")]

    def refreshed() -> None:
        if troubles:
            raise troubles.pop()

    made.topics.refreshed = refreshed
    with pytest.raises(ConfigError):
        await made.publisher.start()
    assert troubles == []
    await made.publisher.start()
    assert made.publisher.ready_problems() == []
    await made.tasks.stop()


@pytest.mark.parametrize("small", [False, True])
async def test_a_pump_that_ends_ends_the_service(bench: Bench, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a process would keep these clients waiting for ever. Those of other partitions are served until it stops."""

    def add_some(cycle: Cycle, owner: InFlightFrame) -> bool:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Cycle, "add_some", add_some)
        bench.publisher._pumps[2].publish(FakeFrame([event(1)], small=small), bench.listener)
        await until(lambda: bench.ends)
    assert bench.tasks.problem == "pump 2 has ended: KeyError('a bug')"
    bench.publisher._pumps[1].publish(FakeFrame([event(3)], ticket=2), bench.listener)
    await until(lambda: bench.listener.whole)
    assert bench.listener.whole == [2]


async def test_connections_take_partitions_in_turn_whether_or_not_they_have_leaders(bench: Bench) -> None:
    for leaderless in ((), range(4)):
        bench.broker.weather.leaderless = frozenset(leaderless)
        chosen = [bench.publisher.choose().where.partition for _ in range(8)]
        assert sorted(chosen) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_what_is_refused_again_and_again_is_silence_too(bench: Bench) -> None:
    """A missing right: each frame is abandoned at once, so none ever waits for long."""
    publisher, up, number = bench.publisher, bench.publisher._metrics.kafka_up, 0
    publisher._log = log = CapturingLogger()  # type: ignore[assignment]

    async def trying(seconds: float, *, refused: bool = True) -> list[str]:
        nonlocal number
        for _ in range(int(seconds)):
            number += 1
            bench.broker.says["headrace.events"].extend(["TopicAuthorizationFailedError"] * refused)
            publisher._pumps[number % 4].publish(FakeFrame([event(number)], ticket=number), bench.listener)
            await until(lambda: number in bench.listener.whole + bench.listener.lost)  # noqa: B023  (called at once)
            await asyncio.sleep(1)
        return publisher.ready_problems()

    await trying(2)
    await trying(15, refused=False)
    assert log.calls == [], "it stores"
    assert await trying(QUIET_TIME + 2) == [], "not yet"
    publisher.collect()
    assert up._value.get() == 0
    (said,) = log.calls
    assert said.args == ("kafka stores nothing",)
    assert "TopicAuthorizationFailedError" in said.kwargs["problem"]
    (problem,) = await trying(STUCK_TIME - QUIET_TIME)
    assert "TopicAuthorizationFailedError" in problem
    await asyncio.sleep(REFUSED_TIME)
    assert publisher.ready_problems() == [], "clients may try again"
    assert len(log.calls) == 1, "and it has stored nothing"
    assert await trying(1, refused=False) == []
    await until(lambda: len(log.calls) > 1)
    assert log.calls[1].args == ("kafka stores again",)


# An ordering key's partition is the one that Kafka's own clients choose for it


@given(st.binary(min_size=1, max_size=2 * CACHED_KEY), st.integers(1, 200))
def test_as_kafkas_clients(key: bytes, partitions: int) -> None:
    everywhere = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, everywhere, everywhere)
