"""Crowds that send at once: one turn of the loop parses for a bounded time, and nobody waits for ever, whoever is cut."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from headrace_common.connection.receiver_state import ReceiverState, Stoppable
from headrace_common.fairness.scheduler import ARRIVAL_TIME, TIME_SLICE, TOLD, Scheduler
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Peer
from headrace_forward.session import ForwardSession
from msgspec.structs import replace

from tests.common.kafkaless import FakePublisher, receiver_state
from tests.common.slowly import SlowLoop, slow_loop
from tests.common.test_connection import Bench, acks, data

LOOP = SlowLoop

COST = 0.0005
"""Seconds that parsing takes."""


@pytest.fixture
async def crowd(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    bench.receiver.scheduler = Scheduler(bench.loop, bench.loop.time)
    receive = ForwardSession.receive

    def slowed(session: ForwardSession, received: bytes, now_ms: int) -> None:
        bench.loop.work(COST)
        receive(session, received, now_ms)

    monkeypatch.setattr(ForwardSession, "receive", slowed)
    return bench


async def turns(bench: Bench) -> list[float]:
    """How long each turn of the loop takes until all is parsed."""
    lengths = []
    while bench.budget.partial_bytes:
        before = bench.loop.now
        await asyncio.sleep(0)
        lengths.append(bench.loop.now - before)
        assert len(lengths) < 100_000, "it never rests"
        if bench.loop.now == before:
            bench.loop.work(0.001)
    return lengths


async def test_one_turn_parses_for_a_bounded_time(crowd: Bench) -> None:
    """300 sockets are ready at once. Without the bound the loop would not turn for 150 ms."""
    clients = [await crowd.connect() for _ in range(300)]
    before = crowd.loop.now
    for number, (connection, _) in enumerate(clients):
        connection.data_received(data(str(number)))
    assert crowd.loop.now - before <= ARRIVAL_TIME + COST
    assert 0 < len(crowd.publisher.submitted) < 20
    assert max(await turns(crowd)) <= TIME_SLICE + 2 * COST
    assert len(crowd.publisher.submitted) == 300
    await crowd.stored()
    assert [acks(transport) for _, transport in clients] == [[str(number)] for number in range(300)]


async def test_few_bytes_are_parsed_before_much_of_many(crowd: Bench) -> None:
    """300 clients have sent 100 KB each, and the turn has no time left: an established one's frame does not wait for theirs."""
    honest, _ = await crowd.connect()
    for number in range(100):  # it has used something
        honest.data_received(data(str(number)))
        await crowd.stored()
    for connection, _ in [await crowd.connect() for _ in range(300)]:
        connection.data_received(data("crowd", "x" * 100_000))
    while crowd.receiver.scheduler.arrives(crowd.loop.now):
        crowd.loop.work(COST)
    honest.data_received(data("honest"))
    assert not crowd.publisher.submitted
    await turns(crowd)
    served = [listener for _, listener in crowd.publisher.submitted]
    assert len(served) == 301
    assert served.index(honest) <= TIME_SLICE / COST + 1


async def test_a_first_frame_that_waits_is_parsed_though_the_service_stops(
    crowd: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a protocol whose clients always ask for an acknowledgement."""
    status = ForwardSession.status
    monkeypatch.setattr(ForwardSession, "status", lambda session: replace(status(session), unacknowledgeable=False))
    clients = [await crowd.connect() for _ in range(300)]
    for connection, _ in clients:
        connection.data_received(data("c"))
    assert len(crowd.publisher.submitted) < 300
    for connection, _ in clients:
        connection.stop()
    await crowd.stored()
    assert [acks(transport) for _, transport in clients] == [["c"]] * 300


class Stopping(Stoppable):
    """A connection that takes a millisecond to stop, and closes at once."""

    def __init__(self, receiver: ReceiverState, loop: SlowLoop) -> None:
        self._receiver = receiver
        self._loop = loop
        receiver.connections.add(self)

    def stop(self) -> None:
        self._loop.work(0.001)
        self._receiver.left(self, Peer("127.0.0.1", 1, "127.0.0.1"), "drain")

    def cut(self) -> int:
        raise AssertionError("all have closed")


async def test_a_service_that_stops_tells_its_clients_in_several_turns() -> None:
    """10,000 clients held the loop until each was told."""
    receiver = receiver_state(FakePublisher(), LimitSettings())
    for _ in range(100):
        Stopping(receiver, slow_loop())
    draining, left = asyncio.create_task(receiver.drain(60)), [100]
    while not draining.done():
        await asyncio.sleep(0)
        left.append(len(receiver.connections))
    await draining
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) == TOLD
