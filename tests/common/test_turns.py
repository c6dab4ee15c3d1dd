"""A cycle that could leave is filled on while a request to its broker is under way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from tests.common.kafkaless import event, until
from tests.common.slowly import SlowLoop
from tests.common.test_pump import Bench, bench, pumping

__all__ = ("bench",)

LOOP = SlowLoop


async def turn_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@contextlib.contextmanager
def under_way(bench: Bench) -> Iterator[None]:
    """A request is under way to the broker of the bench's pump."""
    bench.producer._answered[1] = asyncio.get_running_loop().create_future()
    yield
    bench.producer._answered.pop(1).set_result(None)


async def test_what_comes_while_the_broker_is_busy_leaves_together(bench: Bench) -> None:
    with under_way(bench):
        for number in range(3):
            bench.submit(event(number))
            await turn_of_the_loop()
        before = bench.delivery.asked
    await bench.idle()
    assert bench.numbers() == [0, 1, 2]
    assert (before, bench.delivery.asked) == (0, 1)


async def test_a_full_batch_does_not_wait() -> None:
    async with pumping(batch_bytes=4096) as bench, asyncio.timeout(60):
        with under_way(bench):
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
    with under_way(bench):
        bench.submit(event(0))
        await turn_of_the_loop()
        scheduler._rest_until = 1e12
        bench.submit(event(1))
        await turn_of_the_loop()
        assert not bench.delivery.asked
        bench.producer._answered[1].set_result(None)
        bench.producer._answered[1] = asyncio.get_running_loop().create_future()
        await until(lambda: bench.numbers() == [0])
        scheduler._rest_until = 0.0
        scheduler._turned()
    await bench.idle()
    assert bench.numbers() == [0, 1]


async def test_a_frame_that_is_abandoned_in_its_turns_wait_is_not_sent(bench: Bench) -> None:
    with under_way(bench):
        bench.submit(event(0), seconds=0.0)
        await until(lambda: bench.listener.heard)
        assert bench.listener.heard == [("abandoned", 0)]
        await bench.idle()
    await turn_of_the_loop()
    assert not bench.delivery.asked
    bench.submit(event(1))
    await bench.idle()
    assert bench.numbers() == [1]
