"""Where frames go, how long they wait, and what becomes of them when their pump ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from headrace_common.publishing.batch import Cycle
from headrace_common.publishing.in_flight import Growth, InFlightFrame
from headrace_common.publishing.publisher import QUIET_TIME, REFUSED_TIME, STUCK_TIME

from tests.common.kafkaless import FakeFrame, Heard, Kafka, Stage, event, reject
from tests.common.slowly import SlowLoop
from tests.contract.waiting import until
from tests.simulation.kafka import Weather

LOOP = SlowLoop


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Stage(Kafka()) as stage:
        yield stage


@pytest.mark.parametrize("small", [False, True])
async def test_a_pump_that_ends_ends_the_service(stage: Stage, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a process would keep these clients waiting for ever. Those of other partitions are served until it stops."""

    listener = Heard()

    def add_some(cycle: Cycle, owner: InFlightFrame) -> bool:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Cycle, "add_some", add_some)
        stage.pumps[2].publish(FakeFrame([event(1)], small=small), listener)
        await until(lambda: stage.ends, "the service ends")
    assert stage.tasks.problem == "pump 2 has ended: KeyError('a bug')"
    stage.pumps[1].publish(FakeFrame([event(3)], ticket=2), listener)
    await until(lambda: listener.whole, "another frame is stored")
    assert listener.whole == [2]


@pytest.mark.parametrize(("leaderless", "led"), [((), range(4)), ((0, 2), (1, 3)), (range(4), range(4))])
async def test_connections_take_partitions_in_turn_that_have_leaders(
    stage: Stage, leaderless: Sequence[int], led: Sequence[int]
) -> None:
    stage.kafka.weather.leaderless = frozenset(leaderless)
    chosen = [stage.publisher.choose().where.partition for _ in range(8)]
    assert Counter(chosen) == dict.fromkeys(led, 8 // len(led))


async def test_what_is_refused_again_and_again_is_silence_too(stage: Stage) -> None:
    """A missing right: each frame is abandoned at once, so none ever waits for long."""
    publisher, up, number, log = stage.publisher, stage.metrics.kafka_up, 0, stage.log
    listener = Heard()

    async def trying(seconds: float, *, refused: bool = True) -> list[str]:
        nonlocal number
        for _ in range(int(seconds)):
            number += 1
            stage.kafka.says["events"].extend(["TopicAuthorizationFailedError"] * refused)
            stage.pumps[number % 4].publish(FakeFrame([event(number)], ticket=number), listener)
            await until(lambda: number in listener.whole + listener.lost, "its fate is told")  # noqa: B023  (called at once)
            await asyncio.sleep(1)
        return publisher.ready_problems()

    await trying(2)
    await trying(15, refused=False)
    assert log.calls == [], "it stores"
    assert await trying(QUIET_TIME + 2) == [], "not yet"
    publisher.collect()
    assert up._value.get() == 0
    (problem,) = await trying(STUCK_TIME - QUIET_TIME)
    await asyncio.sleep(REFUSED_TIME)
    assert publisher.ready_problems() == [], "clients may try again"
    assert await trying(1, refused=False) == []
    await until(lambda: len(log.calls) > 1, "that is said")
    assert [said.args for said in log.calls] == [("kafka stores nothing",), ("kafka stores again",)]
    assert all("TopicAuthorizationFailedError" in said for said in (problem, log.calls[0].kwargs["problem"]))


async def test_what_is_stored_in_quarantine_is_stored(stage: Stage) -> None:
    """A receiver to which only unreadable events come is ready: its clients are answered."""
    stage.kafka.weather = Weather(delay=(0.05, 0.05))
    listener = Heard()

    async def client(partition: int) -> None:
        for number in range(int(STUCK_TIME) * 30):
            ticket = 4 * number + partition
            stage.pumps[partition].publish(FakeFrame([reject(ticket)], ticket=ticket), listener)
            await until(lambda: ticket in listener.whole[-8:], "it is stored")  # noqa: B023  (called at once)
            assert stage.publisher.ready_problems() == []

    await asyncio.gather(*map(client, range(4)))


def test_nobody_passes_who_waits_to_grow_and_holds_nothing() -> None:
    """What fits goes on beside it, and does not take its room. It waited for ever behind frames that fitted. Frames of at most 60
    bytes, and room for 80.
    """
    growth, told = Growth(80, 60), list[InFlightFrame]()

    def grown(size: int) -> InFlightFrame:
        frame = InFlightFrame(FakeFrame([]), Heard(), 0, 0)
        frame.grown = size
        return frame

    def may_grow(frame: InFlightFrame) -> bool:
        return growth.reserve(frame, lambda: told.append(frame))

    holds = grown(60)
    assert may_grow(holds)
    waiting = [grown(1) for _ in range(4)]
    for frame in waiting:
        assert may_grow(frame)
        frame.grown = 21
        assert not may_grow(frame)
        assert not frame.reserved
    waiting[1].abandoned = True
    for _ in range(3):
        fits = grown(20)
        assert may_grow(fits)
        growth.release(holds)
        holds = told[-1]
        growth.release(fits)
        assert not may_grow(grown(21))
        holds.grown = 60
        assert may_grow(holds)
    assert told == [waiting[0], waiting[2], waiting[3]]
