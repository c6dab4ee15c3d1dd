"""Batches wait for their broker's turn, and grow meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import TopicPartition
from headrace_common.kafka.turns import Turns

from tests.common.kafkaless import event, until
from tests.common.slowly import SlowLoop
from tests.common.test_pump import Bench, bench, pumping

__all__ = ["bench"]  # a fixture
LOOP = SlowLoop

ONE, OTHER = 1, 2
HERE = TopicPartition("events", 0)


async def turn_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_turn_comes_with_the_brokers_next_answer() -> None:
    """Also if others have handed over a batch by then: who waited is not overtaken again."""
    turns = Turns()
    with turns.taken(ONE, HERE):
        with turns.taken(ONE, HERE):
            turn = turns.next(ONE)
            with turns.taken(OTHER, HERE):
                pass
            assert turn is not None
            assert not turn.done()
        assert turn.done()
        assert turns.next(ONE) is not None  # for who comes now, one is under way
    assert turns.next(ONE) is None


@pytest.mark.parametrize("by_now", [OTHER, -1, None])
async def test_nobody_waits_for_the_answer_to_what_has_lost_its_leader(by_now: int | None) -> None:
    """It stays in the client until it expires: a recreated topic stored nothing for 30 seconds, in any partition."""
    turns, there = Turns(), TopicPartition("events", 1)
    leaders: dict[TopicPartition, int | None] = {HERE: ONE, there: ONE}
    with turns.taken(ONE, HERE), turns.taken(ONE, there):
        turns.recount(leaders.get)
        turn = turns.next(ONE)
        assert turn is not None
        assert not turn.done()
        leaders[there] = by_now
        turns.recount(leaders.get)
        assert turn.done()
        assert turns.next(ONE) is not None, "the other is still under way"
        leaders[HERE] = by_now
        turns.recount(leaders.get)
        assert turns.next(ONE) is None


async def test_another_producer_has_nothing_under_way() -> None:
    turns = Turns()
    with turns.taken(ONE, HERE):
        turn = turns.next(ONE)
        turns.forget()
        assert turn is not None
        assert turn.done()
        assert turns.next(ONE) is None
        with turns.taken(ONE, HERE):
            assert turns.next(ONE) is not None
    assert turns.next(ONE) is None


async def test_what_comes_while_the_broker_is_busy_leaves_together(bench: Bench) -> None:
    with bench.source.turns.taken(ONE, HERE):
        for number in range(3):
            bench.submit(event(number))
            await turn_of_the_loop()
        before = bench.delivery.asked
    await bench.idle()
    assert bench.numbers() == [0, 1, 2]
    assert (before, bench.delivery.asked) == (0, 1)


async def test_a_full_batch_does_not_wait() -> None:
    async with pumping(batch_bytes=4096) as bench, asyncio.timeout(60):
        with bench.source.turns.taken(ONE, HERE):
            bench.submit(event(0, 2000))
            await turn_of_the_loop()
            assert not bench.delivery.asked
            bench.submit(event(1, 2000))
            await until(lambda: bench.delivery.asked)
        await bench.idle()
        assert bench.numbers() == [0, 1]


async def test_it_leaves_in_its_turn_though_more_waits_for_a_slice(bench: Bench) -> None:
    """Also if another batch is under way to its broker again."""
    scheduler = bench.pump._scheduler
    scheduler._at = lambda *_: None  # type: ignore[assignment] # the rest after the first frame's slice lasts
    with bench.source.turns.taken(ONE, HERE):
        bench.submit(event(0))
        await turn_of_the_loop()
        scheduler.resting, scheduler._rested, scheduler._rest_until = True, 100, 1e12
        bench.submit(event(1))
        await turn_of_the_loop()
        assert not bench.delivery.asked
        with bench.source.turns.taken(ONE, HERE):
            pass
        await until(lambda: bench.numbers() == [0])
        scheduler._rest_until = 0.0
        scheduler._turned()
    await bench.idle()
    assert bench.numbers() == [0, 1]


async def test_a_frame_that_is_abandoned_in_its_turns_wait_is_not_sent(bench: Bench) -> None:
    with bench.source.turns.taken(ONE, HERE):
        bench.submit(event(0), seconds=0.0)
        await until(lambda: bench.listener.heard)
        assert bench.listener.heard == [("abandoned", 0)]
        await bench.idle()
    await turn_of_the_loop()
    assert not bench.delivery.asked
    bench.submit(event(1))
    await bench.idle()
    assert bench.numbers() == [1]
