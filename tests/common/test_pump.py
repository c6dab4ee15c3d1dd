"""The pump: what is reported when, and what becomes of frames that are empty, large, late, bad or broken."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import TopicPartition
from headrace_common.fairness.budget import Growth
from headrace_common.fairness.scheduler import TOLD, Account, Lane, Scheduler, Worker
from headrace_common.kafka.client import Topic
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import MIB, KafkaSettings
from headrace_common.publishing import pump
from headrace_common.publishing.batch import LONG_BATCH, Batch, Cycle
from headrace_common.publishing.delivery import Refusal
from headrace_common.publishing.in_flight import AT_ONCE, NO_DEADLINE, InFlightFrame
from headrace_common.publishing.pump import Pump
from headrace_common.publishing.rejects import MOST_ATTRIBUTES
from headrace_common.record.contract import QUARANTINE_HEADERS
from headrace_common.record.encoding import decode
from headrace_common.record.event import Part, event_id
from headrace_common.session.inflate import SLICE
from headrace_common.session.interface import KeepUntil

from tests.common.kafkaless import (
    NOW_MS,
    FakeBroker,
    FakeFrame,
    FakeListener,
    FakeTopics,
    Made,
    event,
    producer_of,
    reject,
    until,
)
from tests.common.slowly import SlowLoop, slow_loop
from tests.contract.waiting import before
from tests.native import CORES, using

LOOP = SlowLoop

Script = Callable[[Batch], Awaitable[list[Refusal]]]


class FakeDelivery:
    """Stores lots; `script` may wait, refuse records or raise first."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int, list[bytes]]] = []
        self.asked = 0
        self.script: Script | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def store(self, batch: Batch, deadline: float) -> list[Refusal]:
        self.asked += 1
        self.deadline = deadline
        await self.open.wait()
        refused = await self.script(batch) if self.script else []
        bad = [record for record, _ in refused]
        self.stored.append((batch.topic, batch.partition, [record for record in batch.records if record not in bad]))
        return refused

    def on(self, topic: str) -> list[bytes]:
        return [record for name, _, records in self.stored for record in records if name == topic]


class Bench:
    """A pump that runs, with all that it touches."""

    def __init__(self, *, batch_bytes: int = MIB, pool: int = 100 * MIB) -> None:
        self.delivery = FakeDelivery()
        self.topics = FakeTopics()
        self.producer = producer_of(FakeBroker())
        self.pool = Growth(pool, 10 * MIB)
        self.listener = FakeListener()
        self.clock = asyncio.get_running_loop().time
        self.scheduler = Scheduler(cpu=self.clock)
        self.pump = Pump(
            1,
            KafkaSettings(events_topic="events", quarantine_topic="quarantine"),
            self.topics,  # type: ignore[arg-type]
            self.producer,
            self.delivery,  # type: ignore[arg-type]
            self.scheduler,
            self.pool,
            ReceiverMetrics(),
            structlog.get_logger(),
        )
        self.pump._batch_bytes = batch_bytes
        self.ticket = 0

    def submit(self, *parts: Made, seconds: float = 100.0, kept: KeepUntil = KeepUntil.DEADLINE) -> InFlightFrame:
        frame = FakeFrame(parts, ticket=self.ticket)
        frame.kept = kept
        self.ticket += 1
        now = self.clock()
        made = InFlightFrame(frame, self.listener, now, now + seconds)
        self.pump.submit(made)
        return made

    async def idle(self) -> None:
        await asyncio.wait_for(self.pump.idle.wait(), 60)

    async def under_way(self, *parts: Made, **more: Any) -> None:
        """A frame is submitted, and its answer is awaited until the test says `answered`."""
        self.delivery.open.clear()
        self.submit(*parts, **more)
        await until(lambda: self.delivery.asked)

    async def answered(self) -> None:
        self.delivery.open.set()
        await self.idle()

    def numbers(self) -> list[int]:
        """The events stored, in order."""
        return [int(decode(record)[0].strip(b'"')) for record in self.delivery.on("events")]

    def quarantined(self) -> list[tuple[bytes, dict[str, bytes]]]:
        found = [decode(record) for record in self.delivery.on("quarantine")]
        assert all(tuple(name for name, _ in headers) == QUARANTINE_HEADERS for _, headers in found)
        return [(value, dict(headers)) for value, headers in found]


class Waiting(Worker):
    """Somebody else who wants a slice."""

    had = False
    lane = Lane.SMALL

    def work(self, until: float) -> None:
        self.had = True


@asynccontextmanager
async def pumping(**arguments: Any) -> Any:
    """A bench whose pump runs, and must still run in the end."""
    bench = Bench(**arguments)
    task = asyncio.create_task(bench.pump.run())
    try:
        yield bench
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with pumping() as bench:
        yield bench


class TestReports:
    async def test_each_conversation_hears_of_its_own_frames(self) -> None:
        async with pumping() as bench:
            other = FakeListener()
            bench.delivery.open.clear()
            bench.submit(event(1))
            bench.pump.submit(InFlightFrame(FakeFrame([event(2), event(3)], ticket=7), other, 0.0, NO_DEADLINE))
            await bench.answered()
            assert bench.listener.heard == [("stored", 0, 1, True)]
            assert other.heard == [("stored", 7, 2, True)]

    async def test_the_prefix_of_a_frame_that_needs_several_batches(self) -> None:
        async with pumping(batch_bytes=4000) as bench:
            bench.submit(*(event(number, 1000) for number in range(7)))
            bench.submit(event(7))
            await bench.idle()
            told = bench.listener.of(0)
            assert [stored for _, _, stored, _ in told] == sorted({stored for _, _, stored, _ in told})
            assert [whole for *_, whole in told] == [False] * (len(told) - 1) + [True]
            assert len(told) > 2
            assert told[-1][2] == 7
            assert bench.numbers() == list(range(8))
            assert bench.listener.of(1) == [("stored", 1, 1, True)]

    async def test_a_large_frame_that_waits_for_kafka_holds_nothing_that_its_parts_were_made_of(
        self, bench: Bench
    ) -> None:
        bench.delivery.open.clear()
        frame = FakeFrame([event(1), event(2)])
        held = weakref.ref(frame)
        bench.pump.submit(InFlightFrame(frame, bench.listener, 0.0, NO_DEADLINE))
        del frame
        await until(lambda: bench.delivery.asked)
        gc.collect()
        assert held() is None
        await bench.answered()
        assert bench.listener.heard == [("stored", 0, 2, True)]

    async def test_an_empty_frame_is_whole_at_once(self, bench: Bench) -> None:
        bench.submit()
        bench.submit(0, 0)
        await bench.idle()
        assert bench.listener.heard == [("stored", 0, 0, True), ("stored", 1, 0, True)]
        assert bench.delivery.stored == []

    async def test_a_frame_that_ends_exactly_with_a_full_batch(self) -> None:
        """Its end is only known when it is asked for more."""
        size = len(event(0, 500)) + 20
        async with pumping(batch_bytes=3 * size) as bench:
            bench.submit(*(event(number, 500) for number in range(3)))
            await bench.idle()
            assert bench.listener.heard[-1] == ("stored", 0, 3, True)
            assert bench.numbers() == [0, 1, 2]

    async def test_a_long_frame_leaves_in_rounds_that_hold_others_up_for_little(self, monkeypatch: Any) -> None:
        """Beyond its quantum: whoever comes meanwhile waits until Kafka has answered for one of them."""
        monkeypatch.setattr("headrace_common.fairness.scheduler.TIME_SLICE", 0.0)  # a few parts to each slice
        monkeypatch.setattr("headrace_common.fairness.scheduler.MOST_REST", 0.0)
        async with pumping(batch_bytes=4 * MIB) as bench:
            bench.submit(*(event(number, 1000) for number in range(3000)))
            await bench.idle()
            sizes = [sum(map(len, records)) for _, _, records in bench.delivery.stored]
            assert sum(sizes) > 3 * MIB
            assert max(sizes) < LONG_BATCH + 100_000
            assert len(sizes) > 2
            assert bench.numbers() == list(range(3000))

    async def test_an_event_larger_than_a_batch_travels_alone(self) -> None:
        async with pumping(batch_bytes=MIB // 4) as bench:
            bench.submit(event(0), event(1, 3 * MIB), event(2))
            await bench.idle()
            assert [len(records) for _, _, records in bench.delivery.stored] == [1, 1, 1]
            assert [len(record) > MIB for record in bench.delivery.on("events")] == [False, True, False]
            assert bench.listener.heard[-1] == ("stored", 0, 3, True)


@pytest.mark.parametrize("core", CORES)
class TestRuns:
    """Parts that are made at once."""

    @pytest.fixture(autouse=True)
    def _core(self, core: str) -> Iterator[None]:
        with using(core):
            yield

    async def test_a_run_is_cut_where_the_batch_is_full(self) -> None:
        async with pumping(batch_bytes=4000) as bench:
            bench.submit(0, [event(number, 500) for number in range(20)], 0, event(20), [event(21), event(22, 4200)])
            bench.submit([event(23)])
            await bench.idle()
            assert bench.numbers() == list(range(24))
            sizes = [(len(records), sum(map(len, records))) for _, _, records in bench.delivery.stored]
            assert all(size <= 4000 for count, size in sizes if count > 1)
            told = [stored for _, _, stored, _ in bench.listener.of(0)]
            assert told == sorted(set(told))
            assert bench.listener.of(0)[-1] == ("stored", 0, 23, True)
            assert bench.listener.of(1) == [("stored", 1, 1, True)]

    async def test_rejects_among_a_run_keep_their_places(self, bench: Bench) -> None:
        run: list[Part] = [
            *(event(number) for number in range(5)),
            reject(5),
            event(6),
            reject(7),
            *map(event, range(8, 14)),
        ]
        bench.submit(run, reject(14))
        await bench.idle()
        assert bench.numbers() == [0, 1, 2, 3, 4, 6, *range(8, 14)]
        assert len(bench.quarantined()) == 3
        assert bench.listener.heard[-1] == ("stored", 0, 15, True)

    async def test_what_is_dropped_from_a_run_is_its_own(self, bench: Bench) -> None:
        """The batch is unpacked and built again without the frame that was abandoned."""
        await bench.under_way([*map(event, range(3))])
        gone = bench.submit([*map(event, range(3, 9))], seconds=0.0)
        bench.submit([*map(event, range(9, 15))])
        await until(lambda: gone.abandoned)
        await bench.answered()
        assert bench.numbers() == [0, 1, 2, *range(9, 15)]


class TestRejects:
    async def test_nothing_is_told_before_both_topics_have_it(self) -> None:
        async with pumping() as bench:
            seen: list[str] = []

            async def script(batch: Batch) -> list[Refusal]:
                assert bench.listener.heard == []
                seen.append(batch.topic)
                return []

            bench.delivery.script = script
            bench.submit(event(0), reject(1))
            await bench.idle()
            assert seen == ["events", "quarantine"]
            assert bench.listener.heard == [("stored", 0, 2, True)]

    async def test_go_to_a_partition_that_is_there(self, bench: Bench) -> None:
        bench.pump.where = TopicPartition("events", 7)
        for number in range(2):
            bench.submit(event(number), reject(1))
            await bench.idle()
        assert [stored[:2] for stored in bench.delivery.stored[2:]] == [("events", 7), ("quarantine", 1)]

    @pytest.mark.parametrize("size", [0, 1, 10_000, 15_000, 50_000])
    async def test_a_large_one_is_cut_into_numbered_parts(self, size: int) -> None:
        raw = hashlib.shake_256(b"raw").digest(size)
        async with pumping(batch_bytes=16 * 1024) as bench:
            bench.submit(reject(1, raw))
            await bench.idle()
            found = bench.quarantined()
            assert b"".join(value for value, _ in found) == raw
            count = len(found)
            assert (count > 1) is (size > 12_000)
            assert [headers["part"] for _, headers in found] == [
                b"%d/%d" % (part, count) for part in range(1, count + 1)
            ]
            assert {headers["sha256"] for _, headers in found} == {hashlib.sha256(raw).hexdigest().encode()}
            assert len({headers["id"] for _, headers in found}) == 1
            assert bench.listener.heard == [("stored", 0, 1, True)]

    @pytest.mark.parametrize("most", [0, 3])
    async def test_a_topic_that_takes_nothing_is_no_bug_of_ours(self, most: int, bench: Bench) -> None:
        """Kafka takes 0 as `max.message.bytes`. The pump divided by it and ended, and the receiver with it."""
        bench.topics.quarantine = Topic("quarantine", 3, most)
        bench.submit(reject(1, b"xxxxx"))
        await bench.idle()
        assert b"".join(value for value, _ in bench.quarantined()) == b"xxxxx"

    async def test_many_with_large_attributes_are_not_held_at_once(self) -> None:
        """A hundred thousand bad entries of a byte each, with a message's option of 16 KiB each, are a gigabyte."""
        count = 2000

        alive: set[int] = set()
        async with pumping(batch_bytes=MIB) as bench:
            bench.most = 0

            def parts() -> Any:
                for number in range(count):
                    bench.most = max(bench.most, len(alive))
                    made = reject(number, b"x")
                    made.attributes = b'{"option":"' + b"y" * 16_000 + b'"}'
                    alive.add(number)
                    yield made

            frame = FakeFrame([])
            frame.runs = parts  # type: ignore[method-assign]

            async def script(batch: Batch) -> list[Refusal]:
                alive.clear()
                return []

            bench.delivery.script = script
            now = bench.clock()
            bench.pump.submit(InFlightFrame(frame, bench.listener, now, now + 100))
            await bench.idle()
            assert bench.listener.heard[-1] == ("stored", 0, count, True)
            assert bench.most < 200


class TestRefusedRecords:
    async def test_go_to_quarantine_with_all_they_were(self, bench: Bench) -> None:
        async def script(batch: Batch) -> list[Refusal]:
            if batch.topic == "quarantine":
                return []
            return [
                (record, owner)
                for record, owner in zip(batch.records, batch.owners, strict=True)
                if b'"0000000002"' in record
            ]

        bench.delivery.script = script
        bench.submit(event(1), event(2, attributes=b'{"chunk":"c"}'))
        bench.submit(event(3))
        await bench.idle()
        assert bench.numbers() == [1, 3]
        ((value, headers),) = bench.quarantined()
        assert value == b'"0000000002"'
        assert headers["reason"] == b"refused"
        assert headers["id"] == event_id(event(2))
        assert (headers["protocol"], headers["ce_source"], headers["ce_subject"]) == (
            b"forward",
            b"/forward/test",
            b"t",
        )
        assert headers["attributes"] == b'{"chunk":"c"}'
        assert sorted(bench.listener.heard) == [("stored", 0, 2, True), ("stored", 1, 1, True)]

    @pytest.mark.parametrize(("size", "whole"), [(MOST_ATTRIBUTES, False), (MOST_ATTRIBUTES + 1, True)])
    async def test_go_there_whole_if_their_attributes_are_long(self, size: int, whole: bool, bench: Bench) -> None:
        """They may be as long as an event: no quarantine record could hold them, and the client sent it for ever."""
        refused = event(2, attributes=b'{"chunk":"%b"}' % (b"c" * (size - len('{"chunk":""}'))))

        async def script(batch: Batch) -> list[Refusal]:
            return [] if batch.topic == "quarantine" else list(zip(batch.records, batch.owners, strict=True))

        bench.delivery.script = script
        bench.submit(refused)
        await bench.idle()
        ((value, headers),) = bench.quarantined()
        assert value == (refused if whole else b'"0000000002"')
        assert headers["id"] == event_id(refused)
        assert len(headers["attributes"]) <= MOST_ATTRIBUTES
        assert (headers["attributes"] == b'{"record":true}') is whole


class TestGivenUp:
    async def test_refused_for_good_is_the_whole_round(self) -> None:
        async with pumping() as bench:
            bench.delivery.script = Refusing(DeliveryPolicy.REFUSED, tries=100)
            await bench.under_way(event(0))
            bench.submit(event(1))
            bench.submit(event(2), reject(3))
            await bench.answered()
            assert bench.listener.heard == [("abandoned", 0), ("abandoned", 1), ("abandoned", 2)]
            bench.delivery.script = None
            bench.submit(event(9))
            await bench.idle()
            assert bench.numbers() == [9]

    async def test_our_clock_is_noted_until_something_is_stored(self, bench: Bench) -> None:
        bench.delivery.script = Refusing(DeliveryPolicy.CLOCK, tries=100)
        assert bench.pump.refused is None
        bench.submit(event(0))
        await bench.idle()
        assert bench.pump.refused is not None
        bench.delivery.script = None
        bench.submit(event(1))
        await bench.idle()
        assert bench.pump.refused is None

    async def test_a_client_hears_at_its_deadline_while_the_answer_is_awaited(self, bench: Bench) -> None:
        """Also those who wait in line hear it then, not when their turn comes, and behind one that has no deadline."""
        await bench.under_way(event(0), seconds=0.02)
        bench.submit(event(1), seconds=float("inf"))
        bench.submit(event(2), seconds=0.04)
        await until(lambda: len(bench.listener.heard) == 2)
        assert bench.listener.heard == [("abandoned", 0), ("abandoned", 2)]
        assert str(bench.listener.errors[0]) == "KAFKA__ACK_DEADLINE has passed"
        assert (bench.delivery.asked, bench.pump.waiting()) == (1, 1)
        await bench.answered()
        assert bench.listener.heard[2:] == [("stored", 1, 1, True)]
        assert bench.numbers() == [0, 1]  # the first answer came, and is awaited by nobody

    async def test_an_answer_that_came_while_the_process_stood_still_is_heard_before_a_deadline(
        self, bench: Bench
    ) -> None:
        async def arrives(batch: Batch) -> list[Refusal]:
            for _ in range(5):
                await asyncio.sleep(0)
            return []

        bench.delivery.script = arrives
        await bench.under_way(event(0), seconds=5)
        slow_loop().work(60)
        await bench.answered()
        assert bench.listener.heard == [("stored", 0, 1, True)]
        await bench.under_way(event(1), seconds=5)
        slow_loop().work(60)
        await until(lambda: bench.listener.of(1))
        assert bench.listener.of(1) == [("abandoned", 1)]
        await bench.answered()

    @pytest.mark.parametrize("stood_still", [False, True])
    async def test_thousands_that_pass_their_deadline_together_hear_in_parts(
        self, stood_still: bool, bench: Bench
    ) -> None:
        """6,500 long frames held the loop for more than a second, since each was searched for among the others."""
        await bench.under_way(event(0), seconds=float("inf"))
        for number in range(3 * AT_ONCE):
            bench.submit(event(number), seconds=0.05)
        assert bench.pump._queue
        slow_loop().work(60 if stood_still else 0.05)
        heard = [0]
        for _ in range(300):
            slow_loop().work(0.01)
            await asyncio.sleep(0)
            heard.append(len(bench.listener.heard))
        steps = [after - before for before, after in itertools.pairwise(heard) if after > before]
        assert steps == [AT_ONCE] * 3
        await bench.answered()
        assert not bench.pump._queue
        assert not bench.pump._queue._behind

    @pytest.mark.parametrize("lost", [False, True])
    async def test_many_of_one_cycle_hear_in_parts(self, lost: bool, bench: Bench) -> None:
        """Ten thousand clients' acknowledgements held the loop until all were told; so did ten thousand that were cut off."""
        loop = slow_loop()
        told = bench.listener.abandoned if lost else bench.listener.stored
        setattr(bench.listener, told.__name__, before(lambda *_: loop.work(0.001), told))
        if lost:
            bench.delivery.script = Refusing(DeliveryPolicy.REFUSED, tries=100)
        await bench.under_way(event(0))
        for number in range(1, 100):
            bench.submit(event(number))
        bench.delivery.open.set()
        heard = [0]
        while len(bench.listener.heard) < 100:
            await asyncio.sleep(0)
            heard.append(len(bench.listener.heard))
        most = max(after - before for before, after in itertools.pairwise(heard))
        assert most <= TOLD + 1  # the one of the cycle before
        await bench.idle()

    async def test_what_is_cut_off_between_two_parts_hears_once(self, bench: Bench) -> None:
        loop = slow_loop()
        told = bench.listener.stored
        bench.listener.stored = before(lambda *_: loop.work(0.001), told)  # type: ignore[method-assign]
        await bench.under_way(event(0))
        for number in range(1, 100):
            bench.submit(event(number), seconds=0.03)
        await bench.answered()
        assert len({line[1] for line in bench.listener.heard}) == len(bench.listener.heard) == 100
        assert {line[0] for line in bench.listener.heard} == {"stored", "abandoned"}

    async def test_it_waits_for_kafka_also_when_no_frame_is_left(self, bench: Bench) -> None:
        assert bench.pump.waiting_since() is None
        bench.delivery.open.clear()
        bench.submit(event(0), seconds=0.02)
        await until(lambda: bench.listener.heard)
        await bench.idle()
        assert bench.pump.oldest() is None
        assert bench.pump.waiting_since() is not None
        bench.delivery.open.set()
        await until(lambda: bench.pump.waiting_since() is None)

    async def test_a_frame_that_waits_for_memory_at_its_deadline(self) -> None:
        """It leaves its place in its connection's queue, and takes none of the memory that comes."""
        async with pumping(pool=80 * MIB) as bench:
            bench.pool._free[1] -= 70 * MIB
            bench.submit(9 * MIB, event(0), seconds=0.02)
            bench.submit(event(1))
            await until(lambda: bench.listener.of(0))
            await bench.idle()
            assert bench.listener.of(0) == [("abandoned", 0)]
            assert bench.numbers() == [1]
            bench.pool._free[1] += 70 * MIB
            bench.submit(SLICE, event(2))
            await bench.idle()
            assert bench.numbers() == [1, 2]
            assert bench.pool.used == 0

    async def test_the_last_that_waits_for_a_slice_at_its_deadline(self, bench: Bench) -> None:
        """The pump has nothing to do when its slice comes: neither it nor those who wait behind it may stumble over that."""
        scheduler: Scheduler = bench.scheduler
        waits = Waiting()
        scheduler._rest_until = bench.clock() + 3600  # after somebody's huge event
        bench.submit(event(0), seconds=0.02)
        scheduler.ask(waits)
        await until(lambda: bench.listener.heard)
        assert not waits.had
        scheduler._rest_until = 0.0
        scheduler._turned()
        await until(lambda: waits.had)
        bench.submit(event(1))
        await until(lambda: bench.listener.of(1))
        assert bench.listener.heard == [("abandoned", 0), ("stored", 1, 1, True)]
        assert bench.numbers() == [1]

    async def test_a_failing_quarantine_does_not_send_the_events_again(self, bench: Bench) -> None:
        bench.delivery.script = Refusing(DeliveryPolicy.RETRY, topic="quarantine", tries=2)
        bench.submit(event(0), reject(1))
        await bench.idle()
        assert bench.numbers() == [0]
        assert len(bench.quarantined()) == 1
        assert bench.listener.heard == [("stored", 0, 2, True)]

    async def test_rejects_that_may_be_stored_are_marked_when_they_are_built_again(self) -> None:
        """The first of two quarantine batches is stored, the second fails: both are sent again."""
        async with pumping(batch_bytes=2500) as bench:
            failures = 1

            async def script(batch: Batch) -> list[Refusal]:
                nonlocal failures
                if bench.delivery.on("quarantine") and failures:
                    failures -= 1
                    raise DeliveryError("wait", DeliveryPolicy.RETRY)
                return []

            bench.delivery.script = script
            bench.submit(*(reject(number, b"%d" % number + b"x" * 990) for number in range(2)))
            await bench.idle()
            found = bench.quarantined()
            values = [value for value, _ in found]
            assert len(values) > len(set(values))
            for index, (value, headers) in enumerate(found):
                assert b"republished" in headers["attributes"] or value not in values[:index]
            assert bench.listener.heard == [("stored", 0, 2, True)]


class Refusing:
    """Kafka, which refuses what goes to one topic until `tries` are over."""

    def __init__(self, policy: DeliveryPolicy, topic: str = "events", tries: int = 3) -> None:
        self._policy = policy
        self._topic = topic
        self.left = tries
        self.stamps: list[list[int]] = []
        """Of each batch of the topic: the times of its records."""
        self.at: list[float] = []

    async def __call__(self, batch: Batch) -> list[Refusal]:
        if batch.topic == self._topic:
            self.at.append(slow_loop().now)
            self.stamps.append([record.timestamp for record in DefaultRecordBatch(batch.sealed().stamped(0, 0, 0))])
            if self.left:
                self.left -= 1
                batch.doubt()
                raise DeliveryError("no", self._policy)
        return []


class TestKept:
    async def test_with_the_present_time_where_kafka_refused_its_own(
        self, monkeypatch: pytest.MonkeyPatch, bench: Bench
    ) -> None:
        clock = itertools.count(NOW_MS + 1)
        monkeypatch.setattr(pump, "time", SimpleNamespace(time_ns=lambda: next(clock) * 1_000_000))
        bench.delivery.script = refusing = Refusing(DeliveryPolicy.CLOCK, tries=2)
        bench.submit(event(0), reject(1), event(2), kept=KeepUntil.STORED)
        await bench.idle()
        assert refusing.stamps == [[NOW_MS + more] * 2 for more in range(3)]
        assert bench.listener.heard == [("stored", 0, 3, True)]
        assert len(bench.quarantined()) == 1

    async def test_with_its_own_time_where_kafka_refused_our_rights(self, bench: Bench) -> None:
        bench.delivery.script = refusing = Refusing(DeliveryPolicy.REFUSED, tries=2)
        bench.submit(event(0), kept=KeepUntil.STORED)
        await bench.idle()
        assert refusing.stamps == [[NOW_MS]] * 3
        assert refusing.at == [at * pump.AGAIN for at in range(3)]

    @pytest.mark.parametrize(
        ("policy", "heard"),
        [
            (DeliveryPolicy.REFUSED, [("abandoned", 0), ("stored", 1, 1, True)]),
            (DeliveryPolicy.CLOCK, [("stored", 0, 2, True), ("stored", 1, 1, True)]),
        ],
    )
    async def test_not_where_quarantine_refuses_us(
        self, policy: DeliveryPolicy, heard: list[tuple[Any, ...]], bench: Bench
    ) -> None:
        """Others would wait for it though their events could be stored. Where it refuses our clock, they could not."""
        bench.delivery.script = Refusing(policy, topic="quarantine", tries=1)
        bench.submit(event(0), reject(1), kept=KeepUntil.STORED)
        await until(lambda: bench.delivery.asked > 1)
        bench.submit(event(2))
        await bench.idle()
        assert bench.listener.heard == heard
        assert bench.numbers() == [0, 2]


class TestBroken:
    @pytest.mark.parametrize(
        "error", [RuntimeError("bug"), RecursionError(), MemoryError(), KeyError(), AssertionError()]
    )
    async def test_a_frame_whose_parts_raise_goes_to_quarantine_whole(self, error: Exception, bench: Bench) -> None:
        bench.submit(event(0))
        bench.submit(event(1), error, event(2))
        bench.submit(event(3))
        await bench.idle()
        assert bench.numbers() == [0, 1, 3]
        ((value, headers),) = bench.quarantined()
        assert (value, headers["reason"]) == (b"all of it", b"internal")
        assert type(error).__name__.encode() in headers["detail"]
        assert sorted(line[1:] for line in bench.listener.heard if line[-1]) == [
            (0, 1, True),
            (1, 2, True),
            (2, 1, True),
        ]

    async def test_a_bug_behind_the_pump_ends_it_and_abandons_its_frames(self) -> None:
        bench = Bench()

        async def script(batch: Batch) -> list[Refusal]:
            raise ZeroDivisionError

        bench.delivery.script = script
        task = asyncio.create_task(bench.pump.run())
        bench.submit(event(0))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(task, 5)
        assert bench.listener.heard == [("abandoned", 0)]

    @pytest.mark.parametrize("small", [False, True])
    async def test_a_bug_in_a_slice_of_the_pump_ends_it_as_well(
        self, small: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Slices run outside of its task: their frames waited for their deadlines, and the next ones after them."""

        def add_some(cycle: Cycle, owner: InFlightFrame) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(Cycle, "add_some", add_some)
        bench = Bench()
        task = asyncio.create_task(bench.pump.run())
        frame = FakeFrame([event(0)], small=small)
        bench.pump.submit(InFlightFrame(frame, bench.listener, bench.clock(), bench.clock() + 100))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(task, 5)
        assert bench.listener.heard == [("abandoned", 0)]


class TestGrowth:
    async def test_beyond_a_slice_all_is_reserved_then_shrunk_then_given_back(self, bench: Bench) -> None:
        used: list[int] = []

        async def script(batch: Batch) -> list[Refusal]:
            used.append(bench.pool.used)
            return []

        bench.delivery.script = script
        bench.submit(SLICE, SLICE, 0, SLICE, event(0))
        await bench.idle()
        assert used == [3 * SLICE]
        assert bench.pool.used == 0

    async def test_what_grows_by_a_slice_does_not_wait_for_bombs(self) -> None:
        """Of which there are always more, of other connections, on the same partition."""
        async with pumping(pool=16 * MIB) as bench:  # 2 + 14
            other = SimpleNamespace(account=Account(), abandoned=False, grown=2 * SLICE, reserved=0)
            assert bench.pool.reserve(other, pytest.fail)
            bombs = [FakeListener() for _ in range(20)]
            for bomb in bombs:
                frame = FakeFrame([*([SLICE] * 10), event(1)])
                bench.pump.submit(InFlightFrame(frame, bomb, bench.clock(), bench.clock() + 100))
            bench.submit(SLICE // 3, event(0))
            await until(lambda: bench.listener.heard)
            assert bench.numbers() == [0]
            assert not any(bomb.heard for bomb in bombs)
            bench.pool.shrink(other, 0)
            await bench.idle()
            assert bench.numbers() == [0, *[1] * 20]
            assert bench.pool.used == 0
