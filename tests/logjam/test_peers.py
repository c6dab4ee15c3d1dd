"""Who is connected, who makes way, and what ZeroMQ may hold of them: as a decision, and with real sockets and no Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest
import zmq
from headrace_common.connection.places import Place
from headrace_common.operations.settings import KIB, MIB, LimitSettings
from headrace_common.session.interface import Message
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers import doors
from headrace_logjam.peers.access import AccessControl, Admission, Context, CurvePair
from headrace_logjam.peers.doors import Door, Doors
from headrace_logjam.peers.holding import AMPLIFIED, CONNECTION, OTHER, HeldConnection, HoldingLimits
from headrace_logjam.peers.memory import used
from headrace_logjam.reading import ReadSocket

from tests.common.kafkaless import FakePublisher, receiver_state
from tests.contract.logjam import COMMAND, GREETING, MORE, READY, message, zmtp
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE
from tests.driving import with_constants

LIMITS = HoldingLimits.of(LimitSettings(frame_bytes=4 * MIB, event_bytes=MIB), 16)
MESSAGE = 4 * MIB + OTHER
SUB = zmtp(COMMAND, b"\5READY\x0bSocket-Type\0\0\0\3SUB")
PUSH = zmtp(COMMAND, b"\5READY\x0bSocket-Type\0\0\0\4PUSH")


def peer(held: int) -> HeldConnection:
    made = HeldConnection(place=Place(lambda: None, ""), descriptor=cast("Any", None), since=0.0)
    made.seen(held, 0)
    return made


@pytest.mark.parametrize(
    ("held", "empty", "excessive"),
    [
        (MESSAGE, True, False),
        (MESSAGE + 1, True, True),  # all that is whole was read, and this is not whole
        (MESSAGE + 1, False, False),
        (18 * MESSAGE, False, False),  # sixteen messages, and what is on its way
        (18 * MESSAGE + 1, False, True),
    ],
)
def test_a_peer_may_hold_a_message_or_what_zeromq_reads_ahead(held: int, empty: bool, excessive: bool) -> None:
    assert LIMITS.excessive(peer(held), empty=empty) is excessive


def test_what_was_delivered_and_what_the_kernel_has_is_not_held() -> None:
    one = peer(0)
    one.delivered = 3000
    one.seen(10_000, 2000)
    assert one.held == 5000
    one.delivered += 50_000  # an upper bound of what it was on the wire
    one.seen(20_000, 0)
    assert one.held == 0
    one.seen(21_000, 0)
    assert one.held == 1000  # no credit was kept


def test_all_together_may_hold_the_budget_and_a_share_of_each() -> None:
    most = LIMITS.total + 3 * LIMITS.each
    peers = [peer(most // 4), peer(most // 2), peer(most - most // 2 - most // 4)]
    assert LIMITS.leaving(peers, lambda: 0) == []
    peers[1].held += 1
    assert LIMITS.leaving(peers, lambda: 0) == peers[1:2]  # the largest, until half is left


def test_what_is_small_on_the_wire_may_not_become_large_in_memory() -> None:
    """Empty frames: two bytes each on the wire, 64 in memory."""
    few, many = [peer(LIMITS.total // AMPLIFIED)], [peer(LIMITS.total // AMPLIFIED + 1)]
    most = 2 * LIMITS.total + LIMITS.each + CONNECTION
    assert LIMITS.leaving(many, lambda: most) == []
    assert LIMITS.leaving(many, lambda: most + 1) == many
    assert LIMITS.leaving(few, lambda: most + 1) == []  # harmless: the memory is another's


def test_memory_that_is_freed_is_not_used() -> None:
    before = used()
    taken = bytes(64 * MIB)
    assert used() >= before + len(taken)
    del taken
    assert used() < before + 32 * MIB


@pytest.fixture(autouse=True)
def _the_memory_is_another_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is that of all tests before, too."""
    monkeypatch.setattr(doors, "used", lambda: 0)


class House:
    """A receiver's sockets and doors without its sessions: what is read is written down."""

    def __init__(self, **limits: Any) -> None:
        self.context: Context = zmq.Context()
        settings = with_constants(LimitSettings, limits)(**{"frame_bytes": KIB, "event_bytes": KIB, **limits})
        self.receiver = receiver_state(FakePublisher(), settings)
        self.metrics = self.receiver.metrics
        self.own = LogjamMetrics(self.metrics)
        self.doors = Doors(self.context, self.receiver, self.own, 16)
        self.access = AccessControl(self.context, Admission((), {}), self.own, self.receiver.limited)
        self.access.open()
        self.read = ReadSocket(routed=False)
        self.got: list[Message] = []
        self.sockets: list[zmq.Socket[bytes]] = []
        self._watching = asyncio.create_task(self.doors.watch())

    def received(self, messages: Sequence[Message]) -> None:
        self.got += messages

    def listen(self, kind: int, *, curve: CurvePair | None = None) -> tuple[int, Door]:
        made: zmq.Socket[bytes] = self.context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVHWM, 16)
        made.setsockopt(zmq.MAXMSGSIZE, self.receiver.limits.frame_bytes)
        made.setsockopt(zmq.HANDSHAKE_IVL, int(self.receiver.limits.handshake_time * 1000))
        made.setsockopt(zmq.ZAP_DOMAIN, b"headrace")
        if curve is not None:
            curve.serve(made)
        door = self.doors.guard(made, f"door{len(self.sockets)}", 2, self.read.empty if kind == zmq.PULL else None)
        port = made.bind_to_random_port(f"tcp://{HOST}")
        if kind == zmq.PULL:
            self.read.open(made, self)  # type: ignore[arg-type]
            self.read.heard = door.heard
        self.sockets.append(made)
        return port, door

    def hits(self, limit: str) -> float:
        return self.metrics.limit_hits.labels(limit)._value.get()

    def refused(self, why: str) -> float:
        return self.own.refused.labels(why)._value.get()

    async def end(self) -> None:
        self._watching.cancel()
        self.read.end()
        for each in self.sockets:
            each.close()
        self.doors.close()
        self.access.close()
        await asyncio.to_thread(self.context.term)


@contextlib.asynccontextmanager
async def house(**limits: Any) -> AsyncIterator[House]:
    made = House(**limits)
    try:
        yield made
    finally:
        await made.end()


async def seen(condition: Callable[..., object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (ZeroMQ's thread sets no events)
            await asyncio.sleep(0.005)


class Client:
    """A peer that speaks ZMTP by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def come(cls, port: int, said: bytes = GREETING + PUSH, **more: Any) -> Client:
        made = cls(*await asyncio.open_connection(HOST, port, **more))
        made.writer.write(said)
        return made

    async def met(self) -> Client:
        """Waits for the end of the handshake: nothing may be said before."""
        async with asyncio.timeout(PATIENCE):
            *_, length = await self.reader.readexactly(len(GREETING) + 2)
            await self.reader.readexactly(length)
        return self

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)  # the receiver's loop is this one

    async def flood(self, data: bytes) -> None:
        """Says it again and again until the receiver has ended it."""

        async def say() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    await self.say(data)

        saying = asyncio.create_task(say())
        await self.ended()
        saying.cancel()

    async def ended(self) -> None:
        """Waits until the receiver has ended it."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass

    @property
    def gone(self) -> bool:
        return self.reader.at_eof() or self.reader.exception() is not None


async def test_a_message_that_never_ends_is_ended_and_one_at_the_limit_is_read() -> None:
    async with house() as receiver:
        port, _ = receiver.listen(zmq.PULL)
        honest, endless = [await (await Client.come(port)).met() for _ in range(2)]
        frame = zmtp(MORE, bytes(KIB))
        await honest.say(frame * (OTHER // len(frame) - 1) + zmtp(0, b""))
        await seen(lambda: receiver.got)
        await endless.flood(zmtp(MORE, b"") * 4096)
        assert receiver.hits("LIMITS__FRAME_BYTES") == 1
        await honest.say(message([b"x"]))
        await seen(lambda: len(receiver.got) == 2)
        assert not honest.gone


async def test_a_silent_crowd_makes_way_and_clients_that_have_spoken_stay() -> None:
    async with house(connections=4) as receiver:
        port, door = receiver.listen(zmq.PULL)
        honest = await (await Client.come(port)).met()
        await honest.say(message([b"first"]))
        await seen(lambda: receiver.got)
        silent, spoken = [], [honest]
        for number in range(1, 4):
            silent.append(await Client.come(port))
            await seen(lambda number=number: len(door.guests) == 1 + number)
        leaving = [asyncio.create_task(each.ended()) for each in silent]
        for number in range(3):  # one for each newcomer
            spoken.append(await (await Client.come(port)).met())
            await spoken[-1].say(message([b"new"]))
            await seen(lambda number=number: len(receiver.got) == 2 + number)
            await seen(lambda number=number: sum(task.done() for task in leaving) == 1 + number)
        assert receiver.hits("LIMITS__CONNECTIONS") == 3
        late = await Client.come(port)  # everybody has spoken
        await late.ended()
        assert receiver.refused("connections") == 1
        await honest.say(message([b"last"]))
        await seen(lambda: receiver.got[-1].parts == [b"last"])
        assert receiver.own.clients._value.get() == 4


async def test_who_was_read_and_has_left_takes_no_place_though_zeromq_has_not_noticed() -> None:
    """It stops at 16 messages of a client. Clients that left before theirs were read took the places of newcomers."""
    async with house(connections=1) as receiver:
        port, door = receiver.listen(zmq.PULL)
        first = await (await Client.come(port)).met()
        await first.say(message([b"first"]))
        await seen(lambda: receiver.got)
        receiver.read.read(False)
        await first.say(message([b"x" * KIB]) * 100)
        await seen(lambda: next(iter(door.guests.values())).received > 100 * KIB)
        first.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        first.writer.transport.abort()
        await seen(lambda: receiver.metrics.connections_closed.labels("peer")._value.get())
        assert len(door.guests) == 1
        newcomer = await (await Client.come(port)).met()
        await newcomer.say(message([b"new"]))
        receiver.read.read(True)
        await seen(lambda: [b"new"] in [each.parts for each in receiver.got])
        assert receiver.refused("connections") == 0


async def test_who_has_subscribed_stays_and_may_not_subscribe_without_end() -> None:
    async with house(connections=2) as receiver:
        port, door = receiver.listen(zmq.PUB)
        publishing = asyncio.create_task(publish(receiver.sockets[0]))
        subscriber = await (await Client.come(port, GREETING + SUB)).met()
        await subscriber.say(zmtp(0, b"\1"))
        await seen(lambda: door.guests and not len(receiver.receiver.places))
        silent = await Client.come(port, GREETING + SUB)
        await seen(lambda: len(door.guests) == 2)
        newcomer = await (await Client.come(port, GREETING + SUB)).met()
        await silent.ended()
        assert not subscriber.gone
        await newcomer.flood(zmtp(0, b"\1" + bytes(KIB - 1)) * 256)
        assert receiver.hits("LIMITS__FRAME_BYTES") == 1
        publishing.cancel()


async def publish(pub: zmq.Socket[bytes]) -> None:
    while True:
        pub.send(bytes(50))
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("said", "why"),
    [(GREETING + READY, "mechanism"), (GREETING.replace(b"NULL", b"CURV") + READY, "mechanism")],
    ids=["without", "unknown"],
)
async def test_who_does_not_speak_our_mechanism_is_counted(said: bytes, why: str) -> None:
    """libzmq ends it before it asks whether it may connect."""
    async with house() as receiver:
        port, _ = receiver.listen(zmq.PULL, curve=CurvePair.of(""))
        client = await Client.come(port, said)
        await client.ended()
        await seen(lambda: receiver.refused(why) == 1)


async def test_a_handshake_has_its_time() -> None:
    async with house(handshake_time=0.1) as receiver:
        port, _ = receiver.listen(zmq.PULL)
        silent = await Client.come(port, GREETING)
        await silent.ended()
        await seen(lambda: receiver.hits("LIMITS__HANDSHAKE_TIME"))
        assert not any(map(receiver.refused, ("mechanism", "key", "handshake", "connections")))


async def test_who_just_leaves_is_nothing() -> None:
    async with house(handshake_time=PATIENCE) as receiver:
        port, door = receiver.listen(zmq.PULL)
        visitor = await Client.come(port, GREETING)
        await seen(lambda: door.guests)
        visitor.writer.close()
        await seen(lambda: not door.guests)
        assert not receiver.hits("LIMITS__HANDSHAKE_TIME")
        assert not any(map(receiver.refused, ("mechanism", "key", "handshake", "connections")))
