"""An answer behind the barrier is given after the reader has passed the end that was there when it was asked for."""

from __future__ import annotations

import asyncio

import pytest
from headrace_segment.replica.barrier import EndBarrier

from tests.common.kafkaless import until
from tests.common.slowly import SlowLoop

LOOP = SlowLoop


class Log:
    """A partition that grows, and how often it was asked for its end. While `gate` is closed no answer comes."""

    def __init__(self) -> None:
        self.end = 0
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def end_offset(self) -> int:
        self.asked += 1
        seen = self.end
        await self.gate.wait()
        return seen


async def test_it_waits_for_the_reader() -> None:
    log = Log()
    log.end = 10
    barrier = EndBarrier(log.end_offset)
    barrier.advance(4)
    waiting = asyncio.create_task(barrier.passed())
    await until(lambda: log.asked)
    for position in (5, 9):
        barrier.advance(position)
        await asyncio.sleep(0)
        assert not waiting.done()
    barrier.advance(10)
    assert await waiting == 10


async def test_the_end_is_seen_after_the_request_came() -> None:
    """Who comes while Kafka is being asked must not take that answer: the end may have moved since."""
    log = Log()
    barrier = EndBarrier(log.end_offset)
    log.gate.clear()
    first = asyncio.create_task(barrier.passed())
    await until(lambda: log.asked == 1)
    log.end = 3
    later = [asyncio.create_task(barrier.passed()) for _ in range(5)]
    await asyncio.sleep(0)
    log.gate.set()
    assert await first == 0
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in later)
    barrier.advance(3)
    assert await asyncio.gather(*later) == [3] * 5
    assert log.asked == 2, "those who wait share a question"


async def test_what_kafka_refuses_is_raised_and_the_next_asks_again() -> None:
    answers: list[int | OSError] = [OSError("away"), 0]

    async def end_offset() -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    barrier = EndBarrier(end_offset)
    with pytest.raises(OSError, match="away"):
        await barrier.passed()
    assert await barrier.passed() == 0


async def test_one_who_gives_up_does_not_disturb_the_others() -> None:
    log = Log()
    log.end = 1
    barrier = EndBarrier(log.end_offset)
    impatient, patient = asyncio.create_task(barrier.passed()), asyncio.create_task(barrier.passed())
    await until(lambda: log.asked)
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait({impatient})
    barrier.advance(1)
    assert await patient == 1
