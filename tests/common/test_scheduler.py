"""Turns: how long anybody waits, in slices; in a time that passes only where work takes some."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from headrace_common.fairness.budget import Growth
from headrace_common.fairness.scheduler import (
    DEBT,
    MOST_REST,
    QUANTUM,
    REST,
    TIME_SLICE,
    Account,
    Lane,
    Scheduler,
    Steps,
    Worker,
)
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.delivery import Refusal
from headrace_common.publishing.pump import Pump
from headrace_common.session.inflate import SLICE
from headrace_common.session.interface import Ticket

from tests.common.kafkaless import MIB, FakeBroker, FakeFrame, FakeTopics, Made, event, producer_of, reject
from tests.common.slowly import SlowLoop, passes, slow_loop

LOOP = SlowLoop

KAFKA = 0.002
"""Seconds that Kafka takes to answer."""

HOPS = 3
"""Turns of the loop that a request takes to leave, and an answer to arrive."""

SMALL_COST = 50e-6
"""Seconds that a small frame takes."""

PART = 0.0005
"""Seconds that making one part of a costly frame takes."""


@dataclass(eq=False)
class Client:
    """A connection; `waits` says how long each of its frames waited."""

    loop: SlowLoop
    account: Account
    waits: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    sent: dict[Ticket, float] = field(default_factory=dict)
    whole: asyncio.Event = field(default_factory=asyncio.Event)

    async def served(self) -> None:
        """Waits for the next frame that is stored, without a turn of the loop."""
        self.whole.clear()
        await self.whole.wait()

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            self.whole.set()
            self.waits.append(self.loop.now - self.sent.pop(ticket))
            self.ends.append(self.loop.now)

    def abandoned(self, ticket: Ticket, error: object) -> None:
        raise AssertionError(error)


class Service:
    """Pumps that share their turns, in front of a Kafka that answers after `KAFKA` seconds."""

    def __init__(
        self, loop: SlowLoop, pumps: int, growth: int = 256 * MIB, cpu: Callable[[SlowLoop], float] = SlowLoop.time
    ) -> None:
        self.loop = loop
        self.scheduler = Scheduler(loop, lambda: cpu(loop))
        self.growth = Growth(growth, 64 * MIB)
        topics, producer = FakeTopics(), producer_of(FakeBroker())
        settings = KafkaSettings(events_topic="events", quarantine_topic="quarantine")
        self.pumps = [
            Pump(
                number, settings, topics, producer, self, self.scheduler, self.growth,  # type: ignore[arg-type]
                ReceiverMetrics(), structlog.get_logger(),
            )
            for number in range(pumps)
        ]  # fmt: skip
        for pump in self.pumps:
            pump._batch_bytes = 3 * MIB
            pump._ack_deadline = 1e9
        self.tasks = [asyncio.create_task(pump.run()) for pump in self.pumps]
        self.ticket = 0
        self.silent: set[int] = set()
        """Partitions in which Kafka stores nothing."""

    async def store(self, batch: Batch, deadline: float) -> list[Refusal]:
        for _ in range(HOPS):
            await asyncio.sleep(0)
        await passes(self.loop, KAFKA)
        while batch.partition in self.silent:
            await passes(self.loop, KAFKA)
        for _ in range(HOPS):
            await asyncio.sleep(0)
        return []

    def client(self) -> Client:
        return Client(self.loop, self.scheduler.new_account())

    def submit(self, client: Client, pump: int, *made: Made, small: bool = False) -> FakeFrame:
        self.ticket += 1
        frame = FakeFrame(made, self.ticket, small=small)
        client.sent[self.ticket] = self.loop.now
        self.pumps[pump].publish(frame, client)  # type: ignore[arg-type]
        return frame

    async def idle(self) -> None:
        for pump in self.pumps:
            await pump.idle.wait()

    async def end(self) -> None:
        for task in self.tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.wait(self.tasks)


def spend(scheduler: Scheduler, account: Account, seconds: float) -> None:
    """Long work of a connection outside of its frames."""
    scheduler._began = slow_loop().now
    slow_loop().work(seconds)
    scheduler.charge(account, done=True)


async def served_all(client: Client) -> None:
    while client.sent:  # noqa: ASYNC110  (nothing but turns of the loop passes)
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(pumps: int, **more: Any) -> AsyncIterator[Service]:
    service = Service(slow_loop(), pumps, **more)
    yield service
    await service.end()


EVENTS: list[Made] = [(PART, event(number)) for number in range(400)]
"""200 ms of tiny entries."""

INFLATING: list[Made] = [*((0.001, SLICE) for _ in range(60)), (PART, reject(1))]
"""60 ms of zeros, and all for a reject."""

REJECTS: list[Made] = [(PART, reject(number)) for number in range(400)]

BOUND = QUANTUM + 6 * (TIME_SLICE + 2 * PART) + KAFKA
"""What a neighbour may wait: the rest of a quantum that has begun, its own slice, and one for each way in, to Kafka and
back. Without turns it is 12 pumps by 200 ms."""


async def beside_bombs(service: Service, bombs: list[Made]) -> None:
    """Two dozen bombers, one bomb after the other each, and a neighbour in a partition that it shares with two of them."""
    stop = False

    async def bomber(number: int) -> None:
        client = service.client()
        while not stop:
            service.submit(client, number % len(service.pumps), *bombs)
            await served_all(client)

    bombers = [asyncio.create_task(bomber(number)) for number in range(2 * len(service.pumps))]
    good = service.client()
    for number in range(50):
        await passes(service.loop, 0.010)
        service.submit(good, 0, (0.0001, event(number)))
        await served_all(good)
    stop = True
    await asyncio.gather(*bombers)
    assert max(good.waits[2:]) <= BOUND, max(good.waits)  # the first comes with all the others' first


@pytest.mark.parametrize("bombs", [EVENTS, INFLATING, REJECTS], ids=["tiny entries", "inflating", "rejects"])
async def test_a_neighbour_waits_a_few_slices_beside(bombs: list[Made]) -> None:
    async with serving(12) as service:
        await beside_bombs(service, bombs)


CROWD = 100


async def beside_a_crowd(service: Service, members: int, again: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """A client that was served often before, with an event every 10 ms, beside a crowd whose members each do `again`, with their
    number, again and again.
    """
    stop = False
    good = service.client()
    for number in range(100):
        service.submit(good, 0, (0.0001, event(number)), small=True)
        await served_all(good)

    async def member(number: int) -> None:
        while not stop:
            await again(number)

    crowd = [asyncio.create_task(member(number)) for number in range(members)]
    for number in range(60):
        await passes(service.loop, 0.010)
        service.submit(good, 0, (0.0001, event(number)), small=True)
        await served_all(good)
    stop = True
    await asyncio.gather(*crowd)
    assert max(good.waits[100:]) <= BOUND, max(good.waits)


async def test_a_small_frame_waits_a_few_slices_beside_connections_that_come_anew_for_each_frame() -> None:
    """However many they are: by turns of each it would wait for two seconds."""
    async with serving(12) as service:

        async def again(number: int) -> None:
            client = service.client()
            service.submit(client, number % len(service.pumps), *EVENTS[:40])
            await client.served()

        await beside_a_crowd(service, CROWD, again)


@pytest.mark.parametrize("small", [True, False], ids=["small", "long"])
async def test_a_frame_waits_a_few_slices_beside_those_whom_kafka_has_kept_waiting(small: bool) -> None:
    """A partition was not stored in while another's connection used 800 ms: its own come back with no credit of 800 ms each."""
    async with serving(2) as service:
        service.silent = {1}
        kept = [service.client() for _ in range(4)]
        for client in kept:
            for _ in range(4):
                service.submit(client, 1, *EVENTS)
        busy, good = service.client(), service.client()
        for _ in range(4):
            service.submit(busy, 0, *EVENTS)
            await served_all(busy)
        service.silent.clear()
        for number in range(20):
            service.submit(good, 0, (0.0001, event(number)), small=small)
            await served_all(good)
            await passes(service.loop, 0.010)
        assert max(good.waits[1:]) <= BOUND, max(good.waits)
        for client in kept:
            await served_all(client)


async def test_a_long_frame_does_not_wait_beside_small_ones_that_come_faster_than_they_are_served() -> None:
    async with serving(2) as service:
        stop, good = False, service.client()

        async def member() -> None:
            client = service.client()
            while not stop:
                while len(client.sent) < 16:
                    service.submit(client, 0, (2 * SMALL_COST, event(1)), small=True)
                await client.served()

        crowd = [asyncio.create_task(member()) for _ in range(10)]
        await passes(service.loop, 0.050)
        service.submit(good, 0, *EVENTS[:10])
        await good.served()
        stop = True
        await asyncio.gather(*crowd)
        assert good.waits[0] <= 2 * BOUND, good.waits


@dataclass
class NoisyClock:
    """Charges now and then much more than was used: a cold path, a collector's pause."""

    noise: float
    random: random.Random = field(default_factory=lambda: random.Random(1))
    charged: float = 0.0

    def __call__(self, loop: SlowLoop) -> float:
        if self.random.random() < 0.01:
            self.charged += self.noise
        return loop.now + self.charged


async def in_step(service: Service, clients: int, seconds: float, frames: int, *, small: bool) -> float:
    """Clients that each send frame after frame, as soon as the one before is acknowledged. How long one waits at most."""

    async def client(number: int) -> Client:
        made = service.client()
        for _ in range(frames):
            service.submit(made, number % len(service.pumps), (seconds, event(number)), small=small)
            await made.served()
        return made

    done = await asyncio.gather(*(client(number) for number in range(clients)))
    return max(wait for each in done for wait in each.waits)


async def test_no_small_frame_waits_while_another_connection_is_served_twice() -> None:
    """Whatever clocks say: what is small is charged by its size."""
    async with serving(12, cpu=NoisyClock(0.050)) as service:
        waited = await in_step(service, 256, 0.0001, 30, small=True)
        assert waited <= 2 * 256 * 0.0001 + KAFKA + QUANTUM


async def test_no_frame_waits_long_because_its_connection_was_once_charged_too_much() -> None:
    async with serving(12, cpu=NoisyClock(0.050)) as service:
        waited = await in_step(service, 64, 0.001, 30, small=False)
        assert waited <= (2 + DEBT / 0.001) * 64 * 0.001 + KAFKA + QUANTUM


async def test_small_and_large_frames_have_slices_in_turn() -> None:
    """Neither waits until all of the others are done."""
    async with serving(4) as service:
        stop = False
        short = (SMALL_COST, event(1))

        async def chatty(number: int) -> None:
            client = service.client()
            while not stop:
                service.submit(client, number % 4, short, small=True)
                await client.served()

        others = [asyncio.create_task(chatty(number)) for number in range(16)]
        long, small = service.client(), service.client()
        service.submit(long, 1, *EVENTS)
        while long.sent:
            service.submit(small, 1, short, small=True)
            await small.served()
        stop = True
        await asyncio.gather(*others)
        assert long.waits[0] <= 0.2 * 2 * 1.5
        assert max(small.waits) <= BOUND
        assert len(small.waits) > 10


async def test_a_small_frame_with_too_much_in_it_goes_the_long_way() -> None:
    async with serving(1) as service:
        client = service.client()
        service.submit(client, 0, 0, *EVENTS, small=True)
        service.submit(client, 0, (PART, event(1)), small=True)
        other = service.client()
        service.submit(other, 0, (PART, event(2)), small=True)
        await service.idle()
        assert other.waits[0] <= BOUND
        assert [round(wait, 1) for wait in client.waits] == [0.2, 0.2]


async def test_frames_of_one_age_are_finished_one_after_the_other() -> None:
    """Each is six milliseconds of work; in turns all would be done when the last is."""
    async with serving(4) as service:
        clients = [service.client() for _ in range(4)]
        for number, client in enumerate(clients):
            service.submit(client, number, *((0.0001, event(n)) for n in range(60)))
        await service.idle()
        ends = sorted(client.ends[0] for client in clients)
        for number, end in enumerate(ends, 1):
            assert end <= number * 0.006 + KAFKA + 3 * (TIME_SLICE + 0.001), ends


async def test_a_frame_all_of_which_is_stored_is_said_to_be_whole_at_once() -> None:
    """Not first that all its parts are stored, and later that there are no more: Courier would acknowledge it twice."""
    async with serving(1) as service:
        client = service.client()
        heard: list[tuple[Ticket, int, bool]] = []
        client.stored = lambda *said: heard.append(said)  # type: ignore[method-assign]
        for length in range(1, 12):  # among them some that end with their slice
            service.submit(client, 0, *EVENTS[:length])
        await service.idle()
        whole = {ticket: stored for ticket, stored, end in heard if end}
        assert len(whole) == 11
        assert [said for said in heard if not said[2] and said[1] == whole[said[0]]] == []


async def test_frames_that_wait_for_memory_hold_nothing_and_stop_nobody() -> None:
    """Room for one that grows beyond a slice: the others begin again when it is theirs; what grows little goes on."""
    async with serving(1, growth=80 * MIB) as service:
        large = [service.client() for _ in range(3)]
        frames = [service.submit(client, 0, *INFLATING) for client in large]
        await passes(service.loop, 0.010)
        small = service.client()
        service.submit(small, 0, (PART, SLICE // 2), (PART, event(1)))
        await served_all(small)
        assert small.waits[0] <= BOUND
        assert sum(len(client.waits) for client in large) < 3
        await service.idle()
        assert [len(client.waits) for client in large] == [1, 1, 1]
        assert max(frame.begun for frame in frames) == 2
        assert service.growth.used == 0


@pytest.fixture
async def scheduler() -> Scheduler:
    return Scheduler(slow_loop(), slow_loop().time)


class Busy(Worker):
    """Work of `seconds` a slice, `again` and again or once. `times`: when its slices began."""

    def __init__(self, scheduler: Scheduler, seconds: float, *, again: bool, lane: Lane = Lane.LONG) -> None:
        self.loop, self.scheduler, self.seconds = slow_loop(), scheduler, seconds
        self.again, self.lane = again, lane
        self.account = scheduler.new_account()
        self.times: list[float] = []

    def work(self, until: float) -> None:
        self.times.append(self.loop.now)
        self.loop.work(self.seconds)
        if self.lane is Lane.LONG:
            self.scheduler.charge(self.account, done=False)
        if self.again:
            self.scheduler.ask(self)


async def slices(scheduler: Scheduler, *asking: Busy) -> list[int]:
    """How many of their slices were in each of the next turns of the loop."""
    for each in asking:
        scheduler.ask(each)
    found = []
    for _ in range(100):
        before = sum(len(each.times) for each in asking)
        await asyncio.sleep(0)
        found.append(sum(len(each.times) for each in asking) - before)
    return found


async def test_between_two_slices_the_loop_turns(scheduler: Scheduler) -> None:
    """An answer that takes some turns of the loop to become an acknowledgement does not wait a slice for each."""
    found = await slices(scheduler, *(Busy(scheduler, TIME_SLICE, again=True) for _ in range(3)))
    turns = [turn for turn, count in enumerate(found) if count]
    assert sum(found) == len(turns) > 10
    assert {later - earlier for earlier, later in itertools.pairwise(turns)} == {REST + 1}


async def test_short_work_of_several_shares_a_slice_whatever_their_lanes(scheduler: Scheduler) -> None:
    """A rest after each of many short frames would cost more than they do."""
    asking = [Busy(scheduler, TIME_SLICE / 20, again=False, lane=Lane(number % 3)) for number in range(10)]
    found = await slices(scheduler, *asking)
    assert sum(found) == found[0] == 10


async def test_those_who_work_at_once_end_with_the_slice(scheduler: Scheduler) -> None:
    """However many wait: after a slice the loop runs, and answers are read."""
    found = await slices(scheduler, *(Busy(scheduler, TIME_SLICE / 4, again=True) for _ in range(8)))
    turns = [turn for turn, count in enumerate(found) if count]
    assert {found[turn] for turn in turns} == {4}
    assert {later - earlier for earlier, later in itertools.pairwise(turns)} == {REST + 1}


async def test_lanes_have_slices_in_turn_however_many_wait_in_one(scheduler: Scheduler) -> None:
    crowds = {
        Lane.SMALL: [Busy(scheduler, TIME_SLICE / 4, again=True, lane=Lane.SMALL) for _ in range(500)],
        Lane.SECURED: [Busy(scheduler, TIME_SLICE / 2, again=True, lane=Lane.SECURED) for _ in range(50)],
        Lane.LONG: [Busy(scheduler, TIME_SLICE, again=True)],
    }
    await slices(scheduler, *(each for crowd in crowds.values() for each in crowd))
    served = {lane: sum(len(each.times) for each in crowd) * crowd[0].seconds for lane, crowd in crowds.items()}
    assert max(served.values()) - min(served.values()) <= TIME_SLICE + 1e-9


class Once(Worker):
    """Works once: by `do`."""

    lane = Lane.SMALL

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do

    def work(self, until: float) -> None:
        self.do()


async def test_who_withdraws_gets_no_turn(scheduler: Scheduler) -> None:
    gone = Once(pytest.fail)
    scheduler.ask(gone)
    scheduler.withdraw(gone)
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_fails_in_its_turn_takes_no_turn_from_others(scheduler: Scheduler) -> None:
    worked: list[str] = []
    told: list[object] = []
    slow_loop().set_exception_handler(lambda _, context: told.append(type(context["exception"])))
    scheduler.ask(Once(lambda: worked.remove("bad")))
    scheduler.ask(Once(lambda: worked.append("good")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (worked, told) == (["good"], [ValueError])


async def test_who_waits_and_comes_sooner_now_changes_its_place(scheduler: Scheduler) -> None:
    """A partition waits with a costly frame, and one of a connection that has rested comes; or many bytes were few."""
    order: list[str] = []

    def worker(name: str, used: float) -> Once:
        made = Once(lambda: order.append(name))
        made.lane, made.account = Lane.LONG, Account(used)
        scheduler.ask(made)
        return made

    late, _, grown = worker("late", 0.005), worker("other", 0.004), worker("few", 0.006)
    late.account = Account(0.003)
    scheduler.ask(late)
    grown.lane = Lane.SMALL
    scheduler.ask(grown)
    for _ in range(10):
        await asyncio.sleep(0)
    assert order == ["few", "late", "other"]


@pytest.mark.parametrize("seed", range(5))
async def test_the_least_use_is_next_whoever_has_left(seed: int, scheduler: Scheduler) -> None:
    chance, order = random.Random(seed), list[float]()
    waiting: list[Once] = []
    for _ in range(300):
        account = Account(chance.uniform(0, DEBT))
        made = Once(lambda account=account: order.append(account.used))  # type: ignore[misc]
        made.lane, made.account = Lane.LONG, account
        scheduler.ask(made)
        waiting.append(made)
    for gone in chance.sample(waiting, 250):
        scheduler.withdraw(gone)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == sorted(order)
    assert len(order) == 50


async def test_nobody_saves_up_turns(scheduler: Scheduler) -> None:
    rested, busy = scheduler.new_account(), scheduler.new_account()
    scheduler.enter(busy)
    for _ in range(100):
        spend(scheduler, busy, TIME_SLICE)
    scheduler.enter(rested)
    assert busy.used - rested.used <= QUANTUM + 2 * TIME_SLICE
    assert scheduler.new_account().used >= busy.used - 2 * TIME_SLICE  # a new one begins where the others stand


async def test_behind_a_slice_that_was_too_long_others_get_time(scheduler: Scheduler) -> None:
    """Kafka's answers take milliseconds, not turns of the loop: others must not wait for one such slice after another."""
    huge = Busy(scheduler, 0.1, again=True)
    scheduler.ask(huge)
    while len(huge.times) < 5:
        await asyncio.sleep(0)
        slow_loop().work(0.0005)  # others'
    pauses = [later - earlier - 0.1 for earlier, later in itertools.pairwise(huge.times)]
    assert all(pause >= MOST_REST for pause in pauses), pauses


class TestSteps:
    async def test_makes_one_thing_after_the_other_in_slices(self, scheduler: Scheduler) -> None:
        def steps() -> Iterator[str | None]:
            for name in ("one", "two"):
                for _ in range(5):
                    slow_loop().work(TIME_SLICE / 2)
                    yield None
                yield name
            raise ZeroDivisionError

        made = Steps(scheduler, steps())
        assert [await made.next(), await made.next()] == ["one", "two"]
        with pytest.raises(ZeroDivisionError):
            await made.next()

    async def test_a_task_that_was_cancelled_wants_nothing(self, scheduler: Scheduler) -> None:
        made = Steps(scheduler, iter(["one"]))
        task = asyncio.create_task(made.next())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        for _ in range(10):
            await asyncio.sleep(0)
        assert await made.next() is None
