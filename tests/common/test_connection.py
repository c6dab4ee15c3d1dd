"""A connection over a transport and a clock of the test's own: what it writes, when it reads, when it ends."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from headrace_common.connection.deadlines import DRAIN_TIME, LINGER_SILENCE, WRITE_TIME
from headrace_common.connection.driver import READ_AHEAD, Driver, End
from headrace_common.connection.lifetime import RECHECK
from headrace_common.connection.tcp import DISCARD_REST, MUCH, TcpConnection
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Peer
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection
from msgspec.structs import replace

from tests.common.kafkaless import FakePublisher, receiver_state
from tests.forward.driving import encode

SIZES = {"frame_bytes": 1 << 20, "inflated_bytes": 1 << 20, "connection_budget": 2 << 20, "process_budget": 4 << 20}


class Handle:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """An event loop's timers and its `call_soon`, in a time that moves when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Handle]] = []
        self._soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self._soon.append(lambda: call(*arguments))

    def call_at(self, at: float, call: Callable[[], None]) -> Handle:
        handle = Handle(at, call)
        heapq.heappush(self._timers, (at, next(self._order), handle))
        return handle

    def call_later(self, delay: float, call: Callable[[], None]) -> Handle:
        return self.call_at(self.now + delay, call)

    def turn(self) -> None:
        """One turn of the loop."""
        soon, self._soon = self._soon, []
        for call in soon:
            call()

    def rest(self) -> None:
        """Until nothing is to be called soon."""
        for _ in range(10_000):
            if not self._soon:
                return
            self.turn()
        raise AssertionError("it never rests")

    def advance(self, seconds: float) -> None:
        """Time passes; timers fire in their order."""
        until = self.now + seconds
        fired = 0
        self.rest()
        while self._timers and self._timers[0][0] <= until:
            at, _, handle = heapq.heappop(self._timers)
            self.now = max(self.now, at)
            if not handle.cancelled:
                fired += 1
                assert fired < 10_000, "a timer that fires for ever"
                handle.call()
            self.rest()
        self.now = until

    @property
    def timers(self) -> int:
        return sum(not handle.cancelled for *_, handle in self._timers)


class Transport:
    """What a connection does to its socket. `deaf`: the peer reads nothing, so closing never ends by itself."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.protocol: TcpConnection | None = None
        self.writes: list[bytes] = []
        self.reading = True
        self.ended = self.closing = self.aborted = self.lost = False
        self.deaf = False

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
        if not self.closing:
            self.closing = True
            if not self.deaf:
                self._lose()

    def abort(self) -> None:
        self.closing = self.aborted = True
        self._lose()

    def _lose(self) -> None:
        assert self.protocol is not None
        if not self.lost:
            self.lost = True
            self.clock.call_soon(self.protocol.connection_lost, None)


class Bench:
    """Connections of one service."""

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.limits = LimitSettings(**{"connection_age": 0, **limits})
        self.budget = Budget(self.limits.process_budget, self.limits.connection_budget - self.limits.inflated_bytes)
        self.publisher = FakePublisher()
        scheduler = Scheduler(self.clock, lambda: 0.0)  # type: ignore[arg-type]
        self.receiver = receiver_state(self.publisher, self.limits, scheduler, self.budget)
        self.metrics = self.receiver.metrics
        self.receiver.age = lambda: self.limits.connection_age  # type: ignore[method-assign]

    def connect(self, session: ByteSession | None = None) -> tuple[TcpConnection, Transport]:
        peer = Peer("192.0.2.1", 1, "192.0.2.1")
        session = session or ForwardSession(peer, self.limits, ForwardSection())
        connection = TcpConnection(self.receiver, peer, session)
        transport = Transport(self.clock)
        transport.protocol = connection
        self.receiver.admitted += 1
        connection.connection_made(transport)  # type: ignore[arg-type]
        transport.reading = True  # as uvloop, which begins now, whatever it was told before
        self.clock.rest()
        return connection, transport

    def store(self, index: int = 0) -> None:
        """The oldest frame but `index` is stored."""
        frame, listener = self.publisher.submitted.pop(index)
        listener.stored(frame.ticket, 1, True)

    def stored(self, count: int = 1) -> None:
        """The `count` oldest are stored, and the loop runs until nothing is left to do."""
        for _ in range(count):
            self.store()
        self.clock.rest()

    def abandon(self, index: int = 0) -> None:
        frame, listener = self.publisher.submitted.pop(index)
        listener.abandoned(frame.ticket, DeliveryError("late", DeliveryPolicy.RETRY))

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"headrace_{name}_total", labels) or 0.0

    def closed(self, why: str) -> bool:
        return self.count("connections_closed", why=why) == 1

    def all_given_back(self) -> bool:
        return (self.budget.used, self.budget.paused, self.publisher.inside, self.receiver.admitted) == (0, 0, 0, 0)


class Make:
    """Makes benches, each with the event loop's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, **limits: Any) -> Bench:
        made = Bench(**limits)
        self._monkeypatch.setattr(asyncio, "get_running_loop", lambda: made.clock)
        return made

    def one(self, **limits: Any) -> tuple[Bench, TcpConnection, Transport]:
        """With one connection."""
        made = self(**limits)
        return (made, *made.connect())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Make:
    return Make(monkeypatch)


def data(chunk: str | None = "c", text: str = "hello") -> bytes:
    return encode("t", [(1, {"m": text})], chunk=chunk)


def acks(transport: Transport) -> list[str]:
    """The chunks acknowledged: each in a write of its own."""
    return [msgpack.unpackb(write)["ack"] for write in transport.writes]


class TestAcknowledges:
    def test_one_write_for_each_turn_of_the_loop(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        connection.data_received(data("a") + data("b") + data("c"))
        for _ in range(3):
            made.store()
        written = [len(transport.writes)]
        for _ in range(4):
            made.clock.turn()
            written.append(len(transport.writes))
        assert written == [1, 2, 3, 3, 3]
        assert acks(transport) == ["a", "b", "c"]

    def test_a_peer_that_does_not_read_is_not_written_to(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        connection.data_received(data("a"))
        connection.pause_writing()
        assert not transport.reading
        made.stored()
        assert transport.writes == []
        connection.resume_writing()
        assert transport.reading
        made.clock.rest()
        assert acks(transport) == ["a"]


class Alone(ForwardSession):
    """Says that nothing but a frame is new, wherever it may: what the native core's short way says."""

    short = 0

    def receive(self, data: bytes, now_ms: int) -> bool | None:
        before = replace(self.status(), idle=False)
        super().receive(data, now_ms)
        alone = len(self._ready) == 1 and not before.partial_bytes and replace(self.status(), idle=False) == before
        Alone.short += alone
        return alone


class TestFrameAlone:
    """A frame that comes alone goes a short way, in which all is as in the long one."""

    def test_both_ways_do_the_same(self, bench: Make) -> None:
        short = Alone.short
        for seed in range(60):
            lives = []
            for kind in (ForwardSession, Alone):
                made = bench(idle_time=20.0, connection_age=30 if seed % 3 == 0 else 0)
                if seed % 2:
                    made.budget = made.receiver.budget = Budget(16 << 10, 4 << 10)
                lives.append(list(self.lived(made, random.Random(seed), kind)))
            assert lives[0] == lives[1], seed
        assert Alone.short > short + 1000

    def lived(self, made: Bench, random: random.Random, kind: type[ForwardSession]) -> Iterator[tuple[object, ...]]:
        peer = Peer("192.0.2.1", 1, "192.0.2.1")
        both = [made.connect(kind(peer, made.limits, ForwardSection())) for _ in range(3)]
        for number in range(120):
            connection, transport = random.choice(both)
            action, rest = random.choice("aaaaabchkpsssstTjx"), random.randrange(1, 40)
            message = data(str(number), "x" * random.choice((1, 1, 600)))
            if action == "j":  # time passes in which the process was busy
                made.clock.now += 1.5
            elif action in "abchk" and transport.reading and not transport.lost:
                if action == "k":  # it waits for a slice
                    made.receiver.scheduler._turn_ends = made.clock.now
                pieces = {"b": message + message, "c": data(None), "h": message[:rest]}
                connection.data_received(pieces.get(action, message))
                made.receiver.scheduler._turn_ends = 0.0
                if action == "h" and transport.reading and not transport.lost:
                    connection.data_received(message[rest:])
            elif action == "p" and not transport.ended and not transport.closing:
                connection.pause_writing()
                made.clock.turn()
                if not transport.lost:
                    connection.resume_writing()
            elif action == "s" and made.publisher.submitted:
                made.store(random.randrange(len(made.publisher.submitted)))
            elif action == "x" and number > 100 and not transport.lost:
                connection.eof_received()
            elif action in "tT":
                made.clock.advance((0.1, 3.0)[action == "T"])
            made.clock.rest()
            yield made.clock.timers, made.budget.used, made.budget.paused, len(made.publisher.submitted)
            for connection, transport in both:
                driver = connection.driver
                yield transport.reading, transport.ended, transport.lost, *transport.writes
                yield driver.pending, driver.partial_bytes, repr(driver.clocks), driver.frames, driver.session.status()


class TestProtocolError:
    def test_reads_what_still_comes_once_a_rest(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        connection.data_received(b"\x01")
        made.clock.rest()
        assert transport.ended
        for _ in range(20):  # its socket is always readable: the loop would read it again and again in one turn
            assert transport.reading
            connection.data_received(bytes(256_000))
            assert not transport.reading
            made.clock.advance(DISCARD_REST)
        connection.data_received(bytes(256_000))
        connection.eof_received()  # and the rest that was begun does not hold on to it
        made.clock.advance(DISCARD_REST)
        assert transport.lost
        assert made.all_given_back()

    def test_what_is_abandoned_takes_no_budget_while_its_socket_closes(self, bench: Make) -> None:
        """The oldest unfinished frame is the one that may go on where the budget is crowded; this one never will."""
        made, connection, transport = bench.one()
        transport.deaf = True
        connection.data_received(data("a") + data("b")[:9])
        assert made.budget.partial_bytes
        made.abandon()
        assert not transport.lost
        assert made.budget.used == 0
        made.clock.advance(2 * DRAIN_TIME)
        assert transport.lost
        assert made.all_given_back()


class TestFrameTime:
    def closed_after(self, made: Bench, transport: Transport, seconds: float) -> None:
        made.clock.advance(seconds - 0.01)
        assert not transport.ended
        made.clock.advance(0.6)
        assert transport.ended
        assert made.count("limit_hits", limit="LIMITS__FRAME_TIME") == 1

    @pytest.mark.parametrize("other", [{}, {"idle_time": 500.0}, {"connection_age": 3000.0}])
    def test_from_the_first_byte_also_while_a_later_timer_runs(self, bench: Make, other: dict[str, float]) -> None:
        made, connection, transport = bench.one(frame_time=10.0, **other)
        made.clock.advance(100)
        connection.data_received(data()[:5])
        self.closed_after(made, transport, 10)

    def test_bytes_buy_time(self, bench: Make) -> None:
        made, connection, transport = bench.one(frame_time=10.0)
        body = data(text="x" * 100_000)
        connection.data_received(body[:5])
        connection.data_received(body[5 : 5 + 8192 * 5])
        self.closed_after(made, transport, 15)

    def test_of_a_large_piece_begins_when_it_arrives(self, bench: Make) -> None:
        """It is looked at later, in a turn; the connection is hours old."""
        made, connection, transport = bench.one(frame_time=10)
        connection.data_received(data())
        made.store()
        made.clock.advance(7200)
        connection.data_received(data(text="x" * 2 * MUCH)[:-1])
        made.clock.advance(5)
        assert transport.reading
        connection.data_received(data()[-1:])
        made.stored()
        assert not transport.ended

    def test_stands_still_while_we_do_not_read(self, bench: Make) -> None:
        made, connection, transport = bench.one(frame_time=10.0)
        connection.data_received(data()[:5])
        made.clock.advance(5)
        connection.pause_writing()
        made.clock.advance(40)
        assert not transport.ended
        connection.resume_writing()
        self.closed_after(made, transport, 5)

    def test_a_frame_may_go_on_once_the_process_runs_again_that_stood_still(self, bench: Make) -> None:
        """The system's buffers hold only a part of what its client wanted to send meanwhile."""
        made, connection, transport = bench.one(frame_time=10.0)
        connection.data_received(data()[:5])
        made.clock.now += 60
        connection.data_received(data()[5:9])  # what has arrived is read before the timers' turn
        made.clock.advance(0)
        assert not transport.ended
        connection.data_received(data()[9:])
        made.stored()
        assert len(transport.writes) == 1
        connection.data_received(data()[:5])
        made.clock.now += 60
        made.clock.advance(RECHECK)
        assert made.count("limit_hits", limit="LIMITS__FRAME_TIME") == 1

    @pytest.mark.parametrize("limit", ["idle", "lingered", "unread"])
    def test_what_came_while_the_process_stood_still_is_heard_before_a_limit(self, bench: Make, limit: str) -> None:
        made, connection, transport = bench.one(idle_time=60.0)
        connection.data_received(data(None) if limit == "lingered" else data("a"))
        made.stored()
        if limit == "lingered":
            connection.stop()
        elif limit == "unread":
            connection.pause_writing()
        made.clock.now += 2 * WRITE_TIME
        made.clock.advance(0)  # the timers' turn comes before what has arrived
        assert not transport.ended
        assert not transport.lost
        if limit == "unread":
            connection.resume_writing()
        connection.data_received(data("b"))
        made.clock.advance(RECHECK)
        made.stored()
        assert not transport.lost
        assert acks(transport)[-1] == "b"


class TestIdleAndAge:
    def test_silence_while_nothing_is_pending(self, bench: Make) -> None:
        made, connection, transport = bench.one(idle_time=60.0)
        made.clock.advance(59)
        connection.data_received(b"\xc0")
        made.clock.advance(59)
        assert not transport.ended
        connection.data_received(data("a"))
        made.clock.advance(200)
        connection.data_received(data("b"))  # it is still read
        made.stored(2)
        assert acks(transport) == ["a", "b"]
        made.clock.advance(61)
        assert transport.ended
        connection.eof_received()
        made.clock.rest()
        assert made.closed("idle")

    def test_age_waits_until_it_is_known_who_asks(self, bench: Make) -> None:
        """Behind its first heartbeat a client may send what it will never send again."""
        made, connection, transport = bench.one(connection_age=60.0)
        made.clock.advance(100)
        connection.data_received(b"\xc0")
        made.clock.rest()
        assert not transport.ended
        connection.data_received(data(None))
        made.store()
        made.clock.advance(100)
        assert made.count("events_unacknowledgeable") == 1
        assert not transport.ended

    def test_age_waits_for_what_has_arrived_and_was_not_looked_at(self, bench: Make) -> None:
        made, connection, transport = bench.one(connection_age=100.0, frame_time=50.0)
        made.clock.advance(99)
        connection.data_received(data("a")[:5])
        made.clock.advance(10)
        connection.data_received(data("a")[5:] + b"".join(data(f"b{n}") for n in range(500)))
        assert connection.is_behind()
        connection.data_received(data("c"))
        made.clock.rest()
        for _ in range(502):
            made.stored()
        assert acks(transport)[-1] == "c"
        assert transport.ended
        connection.eof_received()
        made.clock.rest()
        assert made.closed("age")


class TestCrowded:
    def test_who_does_not_read_holds_up_nobody_who_waits_to_be_looked_through(self, bench: Make) -> None:
        sizes = {"frame_bytes": 80_000, "inflated_bytes": 1024, "event_bytes": 80_000}
        made = bench(connection_budget=100_000, process_budget=256 << 10, **sizes)
        (deaf, _), (other, transport) = made.connect(), made.connect()
        deaf.data_received(data("a", "x" * 70_000))
        deaf.pause_writing()
        other.data_received(data("b", "x" * 70_000))
        assert made.budget.crowded
        made.clock.rest()
        assert [listener for _, listener in made.publisher.submitted] == [other.driver]
        made.store()
        deaf.resume_writing()
        made.clock.rest()
        assert acks(transport) == ["b"]
        assert [listener for _, listener in made.publisher.submitted] == [deaf.driver]


class TestStop:
    def test_who_asks_for_no_acknowledgement_is_read_until_a_second_of_silence(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        connection.data_received(data(None))
        connection.stop()
        made.clock.advance(LINGER_SILENCE - 0.1)
        connection.data_received(data(None))
        assert len(made.publisher.submitted) == 2
        made.clock.advance(LINGER_SILENCE - 0.1)
        assert transport.reading
        made.clock.advance(0.7)
        made.stored(2)
        assert transport.ended


class TestCrowd:
    """A few clients that stop inside huge frames must not shut the others out."""

    def test_silence_that_holds_others_up_is_cut_after_frame_time(self, bench: Make) -> None:
        made = bench(**SIZES, frame_time=10)
        (_, first), (_, second), (_, third) = clients = [made.connect() for _ in range(3)]
        for connection, _ in clients:
            connection.data_received(data(text="x" * 300_000)[:-1])
            made.clock.rest()
        assert (first.reading, second.reading, third.reading) == (True, False, False)
        made.clock.advance(9)
        assert not first.lost
        made.clock.advance(2)
        assert (first.ended or first.lost, second.reading or third.reading) == (True, True)


class TestDeafPeer:
    """One who does not read what we write must not hold us: not a slot, and not everybody's budget."""

    def test_is_cut_at_once_if_the_service_says_so(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        transport.deaf = True
        connection.data_received(data("a"))
        connection.pause_writing()
        connection.close("deaf", End.AT_ONCE)
        made.stored()
        assert transport.aborted
        assert made.closed("deaf")
        assert made.all_given_back()

    def test_with_the_oldest_unfinished_frame_holds_nobody_for_ever(self, bench: Make) -> None:
        """Above half of the arrivals' share only the oldest unfinished frame is read: its peer must not be able to stop it."""
        made, hostile, theirs = bench.one(**SIZES)
        theirs.deaf = True
        hostile.data_received(data(text="x" * 600_000)[:-1])
        made.clock.rest()
        hostile.pause_writing()
        other, ours = made.connect()
        other.data_received(data(text="y" * 40_000)[:-1])
        assert not ours.reading
        made.clock.advance(WRITE_TIME + 1)
        assert theirs.aborted
        assert ours.reading

    def test_that_is_closing_can_be_cut(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        transport.deaf = True
        connection.data_received(b"\x01")
        made.clock.advance(DRAIN_TIME + 0.1)
        connection.cut()
        made.clock.rest()
        assert made.all_given_back()


class TestBudget:
    def test_who_comes_while_it_is_full_is_not_read(self, bench: Make) -> None:
        made = bench(**SIZES)
        for size in (600_000, 950_000):
            hog, _ = made.connect()
            hog.data_received(data(text="x" * size)[:-1])
            made.clock.rest()
        _, transport = made.connect()
        assert not transport.reading
        hog.data_received(data()[-1:])
        made.clock.rest()
        made.stored()
        assert transport.reading


class TestTurns:
    """Much that arrives at once is looked through in turns, and not read on meanwhile."""

    TINY = b"\x93\xa1t\x01\x80"

    @pytest.fixture
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A slice is over after one piece of work."""
        work = Driver.work

        def works(driver: Driver[Any], until: float) -> None:
            work(driver, until)
            driver._receiver.scheduler.until = 0.0

        monkeypatch.setattr(Driver, "work", works)

    def test_much_that_arrives_at_once_waits_for_its_turn(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        connection.data_received(data("a", "x" * (MUCH - 100)))  # less
        assert len(made.publisher.submitted) == 1
        connection.data_received(data("b", "x" * MUCH))
        assert len(made.publisher.submitted) == 1
        assert made.budget.partial_bytes > MUCH
        made.clock.turn()
        assert len(made.publisher.submitted) == 2
        assert made.budget.partial_bytes == 0
        made.stored(2)
        assert acks(transport) == ["a", "b"]

    def test_who_speaks_another_protocol_goes_before_it_holds_anything(self, bench: Make) -> None:
        """Its bytes waited for a turn, and a crowd of such connections filled the budget."""
        made, connection, transport = bench.one()
        connection.data_received(b"null " * MUCH)
        assert made.budget.partial_bytes == 0
        assert transport.ended
        connection.data_received(b"null " * MUCH)
        assert made.budget.partial_bytes == 0

    def test_who_looks_on_reads_ahead_only_where_there_is_room(self, bench: Make) -> None:
        made = bench(**SIZES)
        for _ in range(2):
            hog, _ = made.connect()
            hog.data_received(data(text="x" * 500_000)[:-1])
            made.clock.rest()
        connection, transport = made.connect()
        connection.data_received(self.TINY * 8_000)
        assert connection.is_behind()
        connection.data_received(self.TINY * 8_000)
        assert not transport.reading  # it holds more than a little

    @pytest.mark.usefixtures("short")
    def test_a_connection_looks_on_when_it_is_its_turn(self, bench: Make) -> None:
        made, connection, transport = bench.one()
        connection.data_received(self.TINY * 1000)
        first = len(made.publisher.submitted)
        assert 0 < first < 1000
        assert transport.reading
        connection.data_received(self.TINY * 1000)
        assert len(made.publisher.submitted) == first  # it waits for its turn
        assert transport.reading
        connection.data_received(self.TINY * (READ_AHEAD // 5))
        assert not transport.reading
        made.clock.turn()
        assert first < len(made.publisher.submitted) < 1000
        made.clock.rest()
        assert len(made.publisher.submitted) == 2000 + READ_AHEAD // 5
        assert transport.reading

    @pytest.mark.usefixtures("short")
    @pytest.mark.parametrize("how", ["abort", "close"])
    def test_what_has_arrived_is_looked_at_though_its_connection_is_gone(self, bench: Make, how: str) -> None:
        """Nobody would send it again: it asks for no acknowledgement."""
        made, connection, transport = bench.one()
        connection.data_received(self.TINY * 1000)
        if how == "close":
            connection.eof_received()
        getattr(transport, how)()
        for _ in range(3):
            made.clock.turn()
        assert len(made.publisher.submitted) < 1000
        assert made.publisher.inside == 1  # a service that stops waits for it
        made.clock.rest()
        assert len(made.publisher.submitted) == 1000
        made.stored(1000)
        assert made.all_given_back()

    @pytest.mark.parametrize(("fails_in", "gone"), [("receive", False), ("receive", True), ("frames", True)])
    def test_a_session_that_fails_ends_its_connection_alone(
        self, bench: Make, monkeypatch: pytest.MonkeyPatch, fails_in: str, gone: bool
    ) -> None:
        """A mistake of ours: nobody waits for its turns, and all that it held is given back, also once its socket is gone."""
        made, connection, transport = bench.one()
        other, _ = made.connect()
        connection.data_received(self.TINY * 1000)
        first = len(made.publisher.submitted)
        other.data_received(self.TINY * 1000)
        if gone:
            transport.abort()

        def fails(*arguments: object) -> None:
            raise RuntimeError(arguments)

        monkeypatch.setattr(connection.driver.session, fails_in, fails)
        made.clock.rest()
        assert transport.aborted
        assert made.closed("internal")
        assert len(made.publisher.submitted) == first + 1000  # the other's, all
        other.eof_received()
        made.stored(first + 1000)
        assert made.all_given_back()

    @pytest.mark.usefixtures("short")
    def test_who_closes_while_in_line_leaves_once(self, bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """It has asked for a turn, the service stops, and its peer does not read the last acknowledgement."""
        made, connection, transport = bench.one()
        transport.deaf = True
        connection.data_received(self.TINY * 1000)
        session, status = connection.driver.session, connection.driver.session.status
        monkeypatch.setattr(session, "status", lambda: replace(status(), unacknowledgeable=False))
        made.clock.turn()
        assert connection.is_behind()
        connection.stop()
        while made.publisher.submitted:
            made.stored()
        assert transport.ended
        assert made.publisher.submitted == []  # what was not looked at is not stored: it comes again
        assert made.publisher.inside == 1
        transport.abort()
        made.clock.rest()
        assert made.closed("drain")
        assert made.all_given_back()

    def test_what_will_not_be_looked_at_is_not_held(self, bench: Make) -> None:
        made, connection, _ = bench.one()
        connection.data_received(data() * 1000)
        connection.data_received(data() * 1000)
        assert len(connection.unseen) > 0
        connection.stop()
        assert len(connection.unseen) == 0
        assert made.budget.partial_bytes == 0

    def test_what_is_kept_until_the_last_word_counts(self, bench: Make) -> None:
        """Kafka stands still, and the session may have to say how much of what it holds is stored."""
        made, connection, transport = bench.one()
        connection.data_received(data("a") + data(text="x" * 100_000)[:-1])
        made.clock.rest()
        connection.stop()
        assert made.budget.pending >= connection.driver.session.status().partial_bytes > 100_000
        made.stored()
        assert acks(transport) == ["a"]
        assert connection.driver.session.status().partial_bytes == made.budget.used == 0
