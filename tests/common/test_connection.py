"""A connection over a transport of the test's own, in a time that passes when a test says so: what it writes, reads, and when
it ends.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgpack
import pytest
from headrace_common.connection.deadlines import DRAIN_TIME, WRITE_TIME
from headrace_common.connection.driver import READ_AHEAD
from headrace_common.connection.tcp import DISCARD_REST, MUCH, TcpConnection
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import ARRIVAL_TIME, TIME_SLICE, TOLD, Scheduler
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import NO_BACKEND, Backend, ByteSession, Peer
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection

from tests.common.kafkaless import FakePublisher, receiver_state
from tests.common.slowly import SlowLoop, slow_loop
from tests.forward.driving import encode

LOOP = SlowLoop

SIZES: dict[str, float] = {
    "frame_bytes": 1 << 20,
    "inflated_bytes": 1 << 20,
    "connection_budget": 2 << 20,
    "process_budget": 4 << 20,
}


class Transport:
    """What a connection does to its socket. `deaf`: the peer reads nothing, so closing never ends by itself."""

    def __init__(self, protocol: TcpConnection) -> None:
        self.protocol = protocol
        self.writes: list[bytes] = []
        self.reading = True
        self.ended = self.closing = self.aborted = self.lost = self.deaf = False

    def write(self, data: bytes) -> None:
        assert not self.ended
        assert not self.closing
        self.writes.append(data)

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def write_eof(self) -> None:
        assert not self.ended
        self.ended = True

    def close(self) -> None:
        closing, self.closing = self.closing, True
        if not (closing or self.deaf):
            self._lose()

    def abort(self) -> None:
        self.closing = self.aborted = True
        self._lose()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Bench:
    """Connections of one service."""

    kind = ForwardSession

    def __init__(self, backend: Backend = NO_BACKEND, **limits: Any) -> None:
        self.loop = slow_loop()
        self.limits = LimitSettings(**{"connection_age": 0, **limits})
        self.budget = Budget(self.limits.process_budget, self.limits.connection_budget - self.limits.inflated_bytes)
        self.publisher = FakePublisher()
        scheduler = Scheduler(self.loop, lambda: 0.0)
        self.receiver = receiver_state(self.publisher, self.limits, scheduler, self.budget, backend)
        self.receiver.age = lambda: self.limits.connection_age  # type: ignore[method-assign]

    async def connect(self, session: ByteSession | None = None) -> tuple[TcpConnection, Transport]:
        peer = Peer("192.0.2.1", 1, "192.0.2.1")
        session = session or self.kind(peer, self.limits, ForwardSection())
        connection = TcpConnection(self.receiver, peer, session)
        transport = Transport(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        transport.reading = True  # as uvloop, which begins now, whatever it was told before
        await self.rest()
        return connection, transport

    async def rest(self) -> None:
        """Waits until nothing is to be called soon."""
        for _ in range(10_000):
            await asyncio.sleep(0)
            if not self.loop._ready:
                return
        raise AssertionError("it never rests")

    async def advance(self, seconds: float) -> None:
        """Lets time pass."""
        await asyncio.sleep(seconds)
        await self.rest()

    def store(self, index: int = 0) -> None:
        """The oldest frame but `index` is stored."""
        frame, listener = self.publisher.submitted.pop(index)
        listener.stored(frame.ticket, 1, True)

    async def stored(self) -> None:
        """All are stored, one after the other, and the loop runs until nothing is left to do."""
        await self.rest()
        while self.publisher.submitted:
            self.store()
            await self.rest()

    def closed(self, why: str) -> bool:
        registry = self.receiver.metrics.registry
        return registry.get_sample_value("headrace_connections_closed_total", {"why": why}) == 1

    def all_given_back(self) -> bool:
        return (self.budget.used, self.budget.paused, self.receiver.connections) == (0, 0, set())


async def one(**limits: Any) -> tuple[Bench, TcpConnection, Transport]:
    """A bench with one connection."""
    made = Bench(**limits)
    return (made, *await made.connect())


def data(chunk: str | None = "c", text: str = "hello") -> bytes:
    return encode("t", [(1, {"m": text})], chunk=chunk)


def acks(transport: Transport) -> list[str]:
    """The chunks acknowledged: each in a write of its own."""
    return [msgpack.unpackb(write)["ack"] for write in transport.writes]


HALF, REST = data("h")[:5], data("h")[5:]
LONG = data("l", "x" * 100_000)
MUCH_OF_IT = data("m", "x" * 2 * MUCH)
HUGE = data("h", "x" * 300_000)
EMPTY = b"\xc0"
"""A heartbeat."""
Step = bytes | float | str
CUT: list[Step] = [HALF, 9.9, "open", 0.7, "ended"]
TALKING: list[Step] = [0.9, data(None)] * 5
FRAME = {"frame_time": 10.0}

STORIES: dict[str, tuple[dict[str, float], list[Step]]] = {
    "half a frame, of an old connection": (FRAME, [100.0, *CUT]),
    "half a frame, before it is old": ({**FRAME, "connection_age": 3000.0}, [100.0, *CUT]),
    "bytes buy time": (FRAME, [LONG[:5], LONG[5 : 5 + 8192 * 5], 9.0, LONG[-2:-1], 5.9, "open", 0.7, "ended"]),
    "what is parsed later begins when it comes": (
        FRAME, [data(), "stored", 7200.0, MUCH_OF_IT[:-1], 5.0, "open", MUCH_OF_IT[-1:], "stored", "hears m", "open"],
    ),
    "no time passes while it is not read": (FRAME, [HALF, 5.0, "deaf", 40.0, "open", "reads", 4.9, "open", 0.7, "ended"]),
    # Behind its first heartbeat a client may send what it will never send again.
    "age waits until it is known who asks": (
        {"connection_age": 60}, [100.0, EMPTY, "open", data(None), "stored", 100.0, "open"],
    ),
    "age waits for what has come and was not parsed": (
        {"connection_age": 100, "frame_time": 50.0},
        [99.0, HALF, 10.0, REST + b"".join(data(f"b{n}") for n in range(500)), data("c"), "stored", "hears c", "ended"],
    ),
    "what waits for a slice when the peer ends is heard": ({}, [MUCH_OF_IT, "ends", "stored", "hears m", "lost"]),
    "at a stop who asks for nothing has a second of silence": (
        {}, [data(None), "stop", 0.9, data(None), 0.9, "read", 0.7, "not read", "stored", "ended"],
    ),
    "and five in all": ({}, [data(None), "stop", *TALKING, "read", 0.6, "not read", "stored", "ended"]),
    # The oldest unfinished frame is the one that may go on where the budget is crowded; an abandoned one never will.
    "what is abandoned takes no budget while its socket closes": (
        {}, ["stubborn", data("a") + data("b")[:9], "abandoned", "ended", "unheld", 2 * DRAIN_TIME, "lost"],
    ),
    # A few clients that stop inside huge frames, or do not read, must not shut the others out. Many bytes earn half a minute.
    "silence that holds others up is cut": (
        {**SIZES, **FRAME},
        [HUGE[:9], HUGE[9:-1], "open", "read", "B", HUGE[:9], HUGE[9:-1], "open", "not read", 9.0, 2.0, "read", "A", "ended"],
    ),
    # Above half of the arrivals' share only the oldest unfinished frame is read: its peer must not be able to stop it.
    "who has the oldest unfinished frame and does not read is cut": (
        SIZES, ["stubborn", 2 * HUGE[:-1], "deaf", "B", LONG[:-1], "not read", WRITE_TIME + 1, "read", "A", "lost"],
    ),
}  # fmt: skip
"""Limits, and what happens: bytes come, seconds pass, or as the word says."""


@pytest.mark.parametrize("name", STORIES)
async def test_when_it_ends(name: str) -> None:
    limits, story = STORIES[name]
    made, connection, transport = await one(**limits)
    clients = {"A": (connection, transport)}
    for step in story:
        if isinstance(step, bytes):
            connection.data_received(step)
        elif isinstance(step, float):
            await made.advance(step)
        elif step in ("A", "B"):
            connection, transport = clients[step] = clients.get(step) or await made.connect()
        elif step in ("read", "not read"):
            assert transport.reading is (step == "read")
        elif step == "stubborn":  # its peer lets no closing end
            transport.deaf = True
        elif step == "deaf":
            connection.pause_writing()
        elif step == "reads":
            connection.resume_writing()
        elif step == "stop":
            connection.stop()
        elif step == "ends":
            connection.eof_received()
        elif step == "stored":
            await made.stored()
        elif step == "abandoned":
            frame, listener = made.publisher.submitted.pop()
            listener.abandoned(frame.ticket, DeliveryError("late", DeliveryPolicy.RETRY))
        elif step == "unheld":
            assert made.budget.used == 0
        elif step.startswith("hears"):
            assert acks(transport)[-1] == step.split()[1]
        else:
            await made.rest()
            assert transport.lost is (step == "lost")
            assert transport.lost or transport.ended is (step == "ended")


async def test_each_acknowledgement_has_a_turn_of_the_loop() -> None:
    made, connection, transport = await one()
    connection.data_received(data("a") + data("b") + data("c"))
    for _ in range(3):
        made.store()
    written = [len(transport.writes)]
    for _ in range(4):
        await asyncio.sleep(0)
        written.append(len(transport.writes))
    assert written == [1, 2, 3, 3, 3]
    assert acks(transport) == ["a", "b", "c"]


async def test_a_closed_connections_rest_is_read_once_a_rest() -> None:
    made, connection, transport = await one()
    connection.data_received(b"\x01")
    await made.rest()
    for _ in range(20):  # its socket is always readable: the loop would read it again and again in one turn
        assert transport.reading
        connection.data_received(bytes(256_000))
        assert not transport.reading
        await made.advance(DISCARD_REST)
    connection.data_received(bytes(256_000))
    connection.eof_received()  # and the rest that was begun does not hold on to it
    await made.advance(DISCARD_REST)
    assert transport.lost
    assert made.all_given_back()


# Much that arrives at once is looked through in turns, and not read on meanwhile

TINY = b"\x93\xa1t\x01\x80"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is over after one piece of work."""
    serve = Scheduler._serve
    monkeypatch.setattr(Scheduler, "_serve", lambda scheduler, _: serve(scheduler, 0.0))


@pytest.mark.usefixtures("short")
async def test_a_connection_looks_on_when_it_is_its_turn() -> None:
    made, connection, transport = await one()
    connection.data_received(TINY * 1000)
    first = len(made.publisher.submitted)
    assert 0 < first < 1000
    connection.data_received(TINY * 1000)
    assert len(made.publisher.submitted) == first  # it waits for its turn
    assert transport.reading
    connection.data_received(TINY * (READ_AHEAD // 5))
    assert not transport.reading
    await asyncio.sleep(0)
    assert first < len(made.publisher.submitted) < 1000
    await made.rest()
    assert len(made.publisher.submitted) == 2000 + READ_AHEAD // 5
    assert transport.reading


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("how", ["abort", "close"])
async def test_what_has_arrived_is_read_though_its_connection_is_gone(how: str) -> None:
    """Nobody would send it again: it asks for no acknowledgement."""
    made, connection, transport = await one()
    connection.data_received(TINY * 1000)
    if how == "close":
        connection.eof_received()
    getattr(transport, how)()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(made.publisher.submitted) < 1000
    assert len(made.receiver.connections) == 1  # a service that stops waits for it
    await made.rest()
    assert len(made.publisher.submitted) == 1000
    await made.stored()
    assert made.all_given_back()


# Crowds that send at once: one turn of the loop parses for a bounded time, and nobody waits for ever

COST = 0.0005
"""Seconds that parsing takes."""


@pytest.mark.parametrize("text", ["", "x" * 100_000], ids=["little", "much"])
async def test_one_turn_parses_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """300 sockets are ready at once. Without the bound the loop would not turn for 150 ms. Nor does an established client's frame
    wait for those who have sent much.
    """
    crowd, receive, lengths = Bench(), ForwardSession.receive, []
    crowd.receiver.scheduler = Scheduler(crowd.loop, crowd.loop.time)

    def slowed(session: ForwardSession, received: bytes, now_ms: int) -> None:
        crowd.loop.work(COST)
        receive(session, received, now_ms)

    monkeypatch.setattr(ForwardSession, "receive", slowed)
    honest, _ = await crowd.connect()
    for _ in range(100):  # it has used something
        honest.data_received(data())
        await crowd.stored()
    clients = [await crowd.connect() for _ in range(300)]
    before = crowd.loop.now
    for number, (connection, _) in enumerate(clients):
        connection.data_received(data(str(number), text))
    while crowd.receiver.scheduler.arrives(crowd.loop.now):
        crowd.loop.work(COST)
    honest.data_received(data())
    assert crowd.loop.now - before <= ARRIVAL_TIME + 2 * COST
    assert len(crowd.publisher.submitted) < 20
    while crowd.budget.partial_bytes:
        before = crowd.loop.now
        await asyncio.sleep(0)
        lengths.append(crowd.loop.now - before)
        crowd.loop.work(0.001 * (crowd.loop.now == before))
    assert max(lengths) <= TIME_SLICE + 2 * COST
    served = [listener for _, listener in crowd.publisher.submitted]
    assert len(served) == 301
    assert not text or served.index(honest) <= TIME_SLICE / COST + 1
    await crowd.stored()
    assert [acks(transport) for _, transport in clients] == [[str(number)] for number in range(300)]


async def test_a_service_that_stops_tells_its_clients_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 clients held the loop until each was told."""
    made, told, stopped = Bench(), [0], list[float]()

    def slowed(connection: TcpConnection) -> None:
        made.loop.work(0.001)
        stopped.append(made.loop.now)

    monkeypatch.setattr(TcpConnection, "stop", slowed)
    for _ in range(100):
        await made.connect()
    draining = asyncio.create_task(made.receiver.drain(60))
    while told[-1] < 100:
        await asyncio.sleep(0)
        told.append(len(stopped))
    draining.cancel()
    assert max(after - before for before, after in itertools.pairwise(told)) == TOLD
