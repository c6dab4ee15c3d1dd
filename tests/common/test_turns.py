"""A cycle that could leave is filled on while a request to its broker is under way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from tests.common.kafkaless import until
from tests.common.slowly import SlowLoop, slow_loop
from tests.common.test_publishing import Send, Stage

LOOP = SlowLoop


async def turn_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@contextlib.contextmanager
def under_way(stage: Stage) -> Iterator[None]:
    """A request is under way to the broker of both pumps."""
    stage.producer._answered[1] = answered = asyncio.get_running_loop().create_future()
    yield
    stage.producer._answered.pop(1, None)
    if not answered.done():
        answered.set_result(None)


async def test_what_comes_while_the_broker_is_busy_leaves_together_and_without_what_was_abandoned() -> None:
    async with Stage(slow_loop()) as stage:
        with under_way(stage):
            stage.send(Send("e"))
            await until(lambda: stage.frames[0][0].fate)
            for _ in range(3):
                stage.send(Send("e"))
                await turn_of_the_loop()
            assert not stage.kafka.sent
        await stage.idle()
        assert [len(batch.values) for batch in stage.kafka.sent] == [3]
        assert [frame.fate for frame, _ in stage.frames] == ["abandoned", "stored", "stored", "stored"]


async def test_a_full_batch_does_not_wait() -> None:
    async with Stage(slow_loop()) as stage:
        with under_way(stage):
            stage.send(Send("E"))
            await turn_of_the_loop()
            assert not stage.kafka.sent
            stage.send(Send("EE"))
            await until(lambda: stage.kafka.sent)
        await stage.idle()


async def test_it_leaves_in_its_turn_though_more_waits_for_a_slice() -> None:
    """Also if another batch is under way to its broker again."""
    async with Stage(slow_loop()) as stage:
        stage.scheduler._at = lambda *_: None  # type: ignore[assignment] # the rest after the first frame's slice lasts
        with under_way(stage):
            stage.send(Send("e"))
            await turn_of_the_loop()
            stage.scheduler._rest_until = 1e12
            stage.send(Send("e"))
            await turn_of_the_loop()
            assert not stage.kafka.sent
            stage.producer._answered[1].set_result(None)
            stage.producer._answered[1] = asyncio.get_running_loop().create_future()
            await until(lambda: stage.frames[0][0].fate)
            stage.scheduler._rest_until = 0.0
            stage.scheduler._turned()
        await stage.idle()
