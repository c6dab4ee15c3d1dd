"""Turns: how long anybody waits, in slices; in a time that passes only where work takes some."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from headrace_common.fairness.scheduler import MOST_REST, REST, TIME_SLICE, Lane, Scheduler, Worker
from headrace_common.operations.settings import MIB
from headrace_common.publishing.in_flight import LOOK_PARTS, DeliveryListener, Growth
from headrace_common.publishing.pump import Pump
from headrace_common.session.inflate import SLICE
from headrace_common.session.interface import Ticket

from tests.common.kafkaless import FakeFrame, Kafka, Made, Stage, event, reject
from tests.common.slowly import SlowLoop, slow_loop

LOOP = SlowLoop

KAFKA = 0.002
"""Seconds that Kafka takes to answer."""

PART = 0.0005
"""Seconds that making one part of a costly frame takes."""


class Client(DeliveryListener):
    """A connection that sends one frame after the other. `waits`: how long each waited."""

    def __init__(self, pump: Pump) -> None:
        self.pump = pump
        self.waits: list[float] = []
        self.whole = asyncio.Event()

    async def sends(self, *made: Made, small: bool = False) -> None:
        began = slow_loop().now
        self.whole.clear()
        self.pump.publish(FakeFrame(made, small=small), self)
        await self.whole.wait()
        self.waits.append(slow_loop().now - began)

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            self.whole.set()

    def abandoned(self, ticket: Ticket, error: object) -> None:
        raise AssertionError(error)


BOMBS: dict[str, list[Made]] = {
    "200 ms of tiny entries": [(PART, event(number)) for number in range(400)],
    "60 ms of zeros, and all for a reject": [*((0.001, SLICE) for _ in range(60)), (PART, reject(1))],
    "rejects": [(PART, reject(number)) for number in range(400)],
}

SLICES = {True: 6, False: 3 * 12 + 6}
"""Slices that a neighbour may wait, by whether its frame is small: a few for its own, and the ways in, to Kafka and back; and
else one of each that has long work. Without turns it is 24 bombs of 200 ms."""


@pytest.mark.parametrize("small", SLICES)
@pytest.mark.parametrize("bombs", BOMBS)
async def test_a_neighbour_waits_a_slice_of_each_at_most_beside(bombs: str, small: bool) -> None:
    """Two dozen bombers, one bomb after the other each, and a neighbour in a partition that it shares with two of them."""
    kafka, stop = Kafka(), False
    kafka.partitions, kafka.weather.delay = 12, (KAFKA / 2, KAFKA / 2)
    async with Stage(kafka, 1e6, Growth(256 * MIB, 64 * MIB)) as stage:

        async def bomber(pump: Pump) -> None:
            client = Client(pump)
            while not stop:
                await client.sends(*BOMBS[bombs])

        bombers = [asyncio.create_task(bomber(pump)) for pump in stage.pumps * 2]
        good = Client(stage.pumps[0])
        for number in range(50):
            await asyncio.sleep(0.010)
            await good.sends((0.0001, event(number)), small=small)
        stop = True
        await asyncio.gather(*bombers)
    assert not stage.ends
    bound = SLICES[small] * (TIME_SLICE + LOOK_PARTS * PART) + KAFKA
    assert max(good.waits[2:]) <= bound, max(good.waits)  # the first comes with all the others' first


@pytest.fixture
async def scheduler() -> Scheduler:
    return Scheduler(slow_loop(), slow_loop().time)


class Busy(Worker):
    """Work of `seconds` a slice, `again` and again or once. `times`: when its slices began."""

    def __init__(self, scheduler: Scheduler, seconds: float, *, again: bool, lane: Lane = Lane.LONG) -> None:
        self.loop, self.scheduler, self.seconds = slow_loop(), scheduler, seconds
        self.again, self.lane = again, lane
        self.times: list[float] = []

    def work(self, until: float) -> None:
        self.times.append(self.loop.now)
        self.loop.work(self.seconds)
        if self.again:
            self.scheduler.enqueue(self)


async def slices(scheduler: Scheduler, *asking: Busy) -> list[int]:
    """How many of their slices were in each of the next turns of the loop."""
    for each in asking:
        scheduler.enqueue(each)
    found = []
    for _ in range(100):
        before = sum(len(each.times) for each in asking)
        await asyncio.sleep(0)
        found.append(sum(len(each.times) for each in asking) - before)
    return found


@pytest.mark.parametrize(("workers", "slice_of_each"), [(3, 1), (8, 4)])
async def test_between_two_slices_the_loop_turns(workers: int, slice_of_each: int, scheduler: Scheduler) -> None:
    """However many wait: an answer that takes some turns to become an acknowledgement does not wait a slice for each."""
    found = await slices(scheduler, *(Busy(scheduler, TIME_SLICE / slice_of_each, again=True) for _ in range(workers)))
    turns = [turn for turn, count in enumerate(found) if count]
    assert len(turns) > 10
    assert {found[turn] for turn in turns} == {slice_of_each}
    assert {later - earlier for earlier, later in itertools.pairwise(turns)} == {REST + 1}


async def test_pieces_of_several_turns_fill_a_slice_together(scheduler: Scheduler) -> None:
    """Else the loop would have no rest from what comes piece by piece."""
    small, served = Busy(scheduler, TIME_SLICE / 2, again=False, lane=Lane.SMALL), list[int]()
    for turn in range(100):
        scheduler.enqueue(small)
        await asyncio.sleep(0)
        if len(small.times) > len(served):
            served.append(turn)
    assert {later - earlier for earlier, later in itertools.pairwise(served)} == {1, REST + 1}


async def test_lanes_have_slices_in_turn_however_many_wait_in_one(scheduler: Scheduler) -> None:
    crowds = {
        Lane.SMALL: [Busy(scheduler, TIME_SLICE / 4, again=True, lane=Lane.SMALL) for _ in range(500)],
        Lane.SECURED: [Busy(scheduler, TIME_SLICE / 2, again=True, lane=Lane.SECURED) for _ in range(50)],
        Lane.LONG: [Busy(scheduler, TIME_SLICE, again=True)],
    }
    await slices(scheduler, *(each for crowd in crowds.values() for each in crowd))
    served = {lane: sum(len(each.times) for each in crowd) * crowd[0].seconds for lane, crowd in crowds.items()}
    assert max(served.values()) - min(served.values()) <= TIME_SLICE + 1e-9


async def test_behind_a_slice_that_was_too_long_others_get_time(scheduler: Scheduler) -> None:
    """Kafka's answers take milliseconds, not turns of the loop: others must not wait for one such slice after another."""
    huge = Busy(scheduler, 0.1, again=True)
    scheduler.enqueue(huge)
    while len(huge.times) < 5:
        await asyncio.sleep(0)
        slow_loop().work(0.0005)  # others'
    pauses = [later - earlier - 0.1 for earlier, later in itertools.pairwise(huge.times)]
    assert all(pause >= MOST_REST for pause in pauses), pauses
