"""Who is connected, who is disconnected, and what ZeroMQ may hold of them: as a decision, and with real sockets and no Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import zmq
import zmq.asyncio
from headrace_common.operations.settings import KIB, MIB, LimitSettings
from headrace_common.session.interface import Message
from headrace_logjam import peers
from headrace_logjam.access import DOMAIN, Access, Context, CurvePair
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers import AMPLIFIED, CLIENT, Doors, Peer, excess
from headrace_logjam.reading import ALIVE, SILENCE_MS, ReadSocket
from typing_extensions import override

from tests.common.kafkaless import FakePublisher, receiver_state
from tests.contract.logjam import COMMAND, GREETING, MORE, READY, message, zmtp
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE, until
from tests.driving import with_constants
from tests.simulation.loop import replaced

BUDGET = "LIMITS__PROCESS_BUDGET"
SUB = zmtp(COMMAND, b"\5READY\x0bSocket-Type\0\0\0\3SUB")
PUSH = zmtp(COMMAND, b"\5READY\x0bSocket-Type\0\0\0\4PUSH")


class Counted(Peer):
    """One of which so much has come, and the kernel still has so much."""

    def __init__(self, received: int, unread: int = 0) -> None:
        super().__init__(1 << 30)
        self.now = received, unread
        self.look()

    @override
    def counts(self) -> tuple[int, int]:
        return self.now


def test_what_was_delivered_and_what_the_kernel_has_is_not_held() -> None:
    one = Counted(20_000, 2000)
    assert one.held == 18_000
    one.delivered = 50_000  # an upper bound of what it was on the wire
    one.look()
    assert one.held == 0
    one.now = 21_000, 0
    one.look()
    assert one.held == 1000  # no credit was kept


BYTES = 16 * MIB
MOST = BYTES + 3 * CLIENT
FEW = BYTES // AMPLIFIED + 1
"""Empty frames: two bytes each on the wire, 64 in memory."""


@pytest.mark.parametrize(
    ("held", "memory", "leaves"),
    [
        (MOST, 0, False),
        (MOST + 1, 0, True),
        (FEW, 2 * MOST, False),
        (FEW - 1, 2 * MOST + 1, False),
        (FEW, 2 * MOST + 1, True),
    ],
)
def test_the_largest_leave_until_half_is_left(held: int, memory: int, leaves: bool) -> None:
    there = [Counted(held // 4), Counted(held - held // 4 * 2), Counted(held // 4)]
    assert excess(there, BYTES, memory) == there[1:2] * leaves


class House:
    """A receiver's sockets and doors without its sessions: what is read is written down."""

    def __init__(self, **limits: Any) -> None:
        self.context: Context = zmq.Context()
        settings = with_constants(LimitSettings, limits)(**{"frame_bytes": KIB, "event_bytes": KIB, **limits})
        self.receiver = receiver_state(FakePublisher(), settings)
        self.metrics = self.receiver.metrics
        self.own = LogjamMetrics(self.metrics)
        self.doors = Doors(self.context, self.receiver, self.own)
        self.access = Access(self.context, (), {})
        self.access.start()
        self.read = ReadSocket(routed=False, most=settings.frame_bytes)
        self.got: list[Message] = []
        self.sockets: list[zmq.Socket[bytes]] = []
        self._watching = asyncio.create_task(self.doors.watch())

    def received(self, messages: Sequence[Message]) -> None:
        self.got += messages

    def listen(self, kind: int, *, curve: CurvePair | None = None) -> tuple[int, dict[int, Peer]]:
        made: zmq.Socket[bytes] = self.context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVHWM, 16)
        made.setsockopt(zmq.MAXMSGSIZE, self.receiver.limits.frame_bytes)
        made.setsockopt(zmq.HANDSHAKE_IVL, int(self.receiver.limits.handshake_time * 1000))
        made.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())
        if curve is not None:
            curve.serve(made)
        heard = self.doors.guard(made, f"door{len(self.sockets)}")
        port = made.bind_to_random_port(f"tcp://{HOST}")
        if kind == zmq.PULL:
            self.read.open(made, self)  # type: ignore[arg-type]
            self.read.heard = heard
        self.sockets.append(made)
        return port, self.doors.doors[-1].peers

    def hits(self, limit: str) -> float:
        return self.metrics.limit_hits.labels(limit)._value.get()

    @property
    def refused(self) -> float:
        return self.own.refused._value.get()

    async def end(self) -> None:
        self._watching.cancel()
        self.read.end()
        for each in self.sockets:
            each.close()
        self.doors.close()
        self.access.stop()
        await asyncio.to_thread(self.context.term)


@contextlib.asynccontextmanager
async def house(**limits: Any) -> AsyncIterator[House]:
    made = House(**limits)
    with replaced((peers, "memory_used", lambda: 0)):  # the process is that of all tests before
        try:
            yield made
        finally:
            await made.end()


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

    async def flood(self, some: Callable[[], bytes]) -> None:
        """Says more and more until the receiver has ended it."""

        async def say() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    await self.say(some())

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


SMALL = {"frame_bytes": 64 * KIB, "inflated_bytes": 64 * KIB, "connection_budget": 512 * KIB, "process_budget": MIB}


async def test_a_message_that_never_ends_is_ended_and_a_large_one_is_read_without_what_is_too_much() -> None:
    async with house(**SMALL) as receiver:
        port, _ = receiver.listen(zmq.PULL)
        honest, endless = [await (await Client.come(port)).met() for _ in range(2)]
        frame = zmtp(MORE, bytes(64 * KIB))
        await honest.say(frame * 18 + zmtp(0, b""))
        await until(lambda: receiver.got, "the large message")
        assert [len(part) for part in receiver.got[0].parts] == [64 * KIB] * 16 + [0] * 3
        await endless.flood(lambda: frame)
        assert receiver.hits(BUDGET) == 1
        await honest.say(message([b"x"]))
        await until(lambda: len(receiver.got) == 2, "the next")
        assert not honest.gone


async def test_of_a_crowd_that_holds_too_much_half_is_ended_and_who_holds_little_stays() -> None:
    limits = {"frame_bytes": MIB, "inflated_bytes": MIB, "connection_budget": 8 * MIB, "process_budget": 16 * MIB}
    async with house(**limits) as receiver:
        port, there = receiver.listen(zmq.PULL)
        receiver.read.read(False)
        honest = await (await Client.come(port)).met()
        await honest.say(message([b"first"]))
        crowd: list[Client] = []  # held in memory, else they leave

        def held() -> int:
            return sum(each.held for each in there.values() if not each.left)

        for count, most in ((16, 0), (64, 1)):  # each with half a MiB of a message that does not end
            for _ in range(count):
                crowd.append(await (await Client.come(port)).met())
                await crowd[-1].say(zmtp(MORE, bytes(MIB // 2)))
            await until(lambda most=most: receiver.hits(BUDGET) >= most and held() > 7 * MIB, "a crowd")
            assert bool(receiver.hits(BUDGET)) is bool(most)
        receiver.read.read(True)
        await until(lambda: receiver.got, "the first message")
        assert not honest.gone


async def test_a_client_too_many_is_refused_and_others_stay() -> None:
    async with house(connections=2) as receiver:
        (port, there), (other, subscribers) = receiver.listen(zmq.PULL), receiver.listen(zmq.PUB)
        first, second = [await (await Client.come(port)).met() for _ in range(2)]
        await (await Client.come(other, GREETING + SUB)).ended()
        assert receiver.hits("LIMITS__CONNECTIONS") == 1
        first.writer.close()
        await until(lambda: len(there) == 1, "one left")
        await (await Client.come(other, GREETING + SUB)).met()
        assert subscribers
        assert not second.gone
        assert receiver.own.clients._value.get() == 2


async def test_who_subscribes_may_not_subscribe_without_end() -> None:
    async with house(**SMALL) as receiver:
        port, _ = receiver.listen(zmq.PUB)

        async def publish() -> None:
            while True:  # libzmq reads subscriptions when it is used
                receiver.sockets[0].send(bytes(50))
                await asyncio.sleep(0)

        publishing = asyncio.create_task(publish())
        subscriber = await (await Client.come(port, GREETING + SUB)).met()
        await subscriber.flood(lambda: zmtp(0, b"\1" + bytes(KIB - 1)) * 256)
        assert receiver.hits(BUDGET) == 1
        publishing.cancel()


async def test_a_handshake_has_its_mechanism_and_its_time_and_who_just_leaves_is_nothing() -> None:
    """libzmq ends who does not speak its mechanism before it asks whether they may connect."""
    async with house(handshake_time=0.5) as receiver:
        (port, there), (with_keys, _) = receiver.listen(zmq.PULL), receiver.listen(zmq.PUB, curve=CurvePair.of(""))
        visitor = await Client.come(port, GREETING)
        await until(lambda: there, "the visitor")
        visitor.writer.close()
        await until(lambda: not there, "its end")
        await (await Client.come(port, GREETING)).ended()  # too slow
        assert not receiver.refused
        for count, said in enumerate((GREETING, GREETING.replace(b"NULL", b"CURV")), 1):
            await (await Client.come(with_keys, said + READY)).ended()
            await until(lambda count=count: receiver.refused == count, "its count")


async def test_a_peer_that_is_not_read_is_not_taken_for_dead(context: zmq.asyncio.Context) -> None:
    """Questions ten times as fast as ours, and a receiver that stands still for several of them."""
    server, client = map(context.socket, (zmq.PULL, zmq.PUSH))
    for option, value in ALIVE.items():
        server.setsockopt(option, max(value // 10, 1))
    server.setsockopt(zmq.RCVHWM, 4)
    client.setsockopt(zmq.SNDHWM, 0)
    client.connect(f"tcp://{HOST}:{server.bind_to_random_port(f'tcp://{HOST}')}")
    for number in range(3_000):  # more than the kernel holds
        await client.send(b"%d " % number + bytes(2_000))
    await asyncio.sleep(1.5 * SILENCE_MS / 10 / 1000)
    for number in range(3_000):
        assert int((await asyncio.wait_for(server.recv(), PATIENCE)).split()[0]) == number
