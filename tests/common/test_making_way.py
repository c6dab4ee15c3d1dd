"""Where all places are taken, the connection idle for longest that is owed nothing makes way, whatever it has sent before."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from headrace_common.connection.places import MOST_LOOKED_AT, Place, Places
from headrace_common.listening.listener import KEEP_ALIVE, Listener
from headrace_common.operations import sockets
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import LimitSettings, ListenSettings
from headrace_common.operations.tasks import Tasks
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection
from structlog.testing import capture_logs

from tests.common.kafkaless import FakePublisher, receiver_state
from tests.common.test_connection import data
from tests.common.test_proxy import HEADERS
from tests.contract.certificates import Authority
from tests.contract.waiting import PATIENCE, until
from tests.driving import with_constants

LOOP = uvloop.new_event_loop  # as receivers run in
PLACES = 3
Conversation = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Door:
    """A listener with `PLACES` places, in this process."""

    def __init__(self, tls: ssl.SSLContext | None = None, proxies: str = "", /, **limits: Any) -> None:
        limits = {"handshake_time": PATIENCE, **limits}
        settings = with_constants(LimitSettings, limits)(**limits)
        self.publisher = FakePublisher()
        self.receiver = receiver_state(self.publisher, settings)
        self.tasks = Tasks()
        listening = ListenSettings(host="127.0.0.1", trusted_proxies=proxies)
        self.listener = Listener(
            self.receiver, self.tasks, lambda peer: ForwardSession(peer, settings, ForwardSection()), listening, 0, tls
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Callable[..., Awaitable[Conversation]]]:
        host, port = (await self.listener.bind()).split(":")
        self.listener.start()
        there: list[Conversation] = []

        async def connect(head: bytes = b"", **more: Any) -> Conversation:
            there.append(await asyncio.open_connection(host, int(port), **more))
            there[-1][1].write(head)
            return there[-1]

        try:
            yield connect
        finally:
            for _, writer in there:
                writer.transport.abort()
            await self.listener.close()
            await self.tasks.stop()

    async def blocking(self, authority: Authority) -> socket.socket:
        """A client's socket, over TLS."""
        assert self.listener._socket is not None
        address, context = self.listener._socket.getsockname(), authority.context()

        def connected() -> socket.socket:
            return context.wrap_socket(socket.create_connection(address, PATIENCE), server_hostname="localhost")

        return await asyncio.to_thread(connected)

    async def proves(self, client: Conversation) -> None:
        """A frame of the client is taken."""
        before = len(self.publisher.submitted)
        client[1].write(data())
        await until(lambda: len(self.publisher.submitted) > before, "its frame is taken")

    def there(self) -> float:
        """How many clients have come and not left yet."""
        metrics = self.receiver.metrics
        (metric,) = metrics.connections_closed.collect()
        closed = sum(each.value for each in metric.samples if each.name.endswith("_total"))
        return metrics.connections_opened._value.get() - closed

    async def admits(self, number: int) -> None:
        """So many are there once all who made way are gone."""
        await until(lambda: self.there() == number, f"{number} are there")

    def gave_everything_back(self) -> None:
        assert (len(self.receiver.connections), len(self.receiver.places), self.there()) == (0, 0, 0)


async def ended(client: Conversation) -> bool:
    """Whether the door has closed it."""
    try:
        return await asyncio.wait_for(client[0].read(100), PATIENCE) == b""
    except ConnectionError:
        return True


HELLO = bytes.fromhex("1603010200010001fc0303")
"""How a ClientHello begins."""


HEADER = b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 24224\r\n"
FRAME = data()
SENT = {
    "nothing": [b""],
    "half a frame": [FRAME[:-1]],
    "drops": [b"%c" % byte for byte in FRAME[:4]],
    "a frame": [FRAME],
}
CROWDS = [
    *((doors, sent) for doors in ("plain", "tls") for sent in SENT),
    *(("handshakes", sent) for sent in (b"", HELLO)),
    *(("proxied", sent) for sent in (b"", HEADER[:9], HEADER)),
]


@pytest.mark.parametrize(("doors", "sent"), CROWDS)
async def test_no_crowd_shuts_out_a_newcomer(doors: str, sent: str | bytes, tmp_path: Path) -> None:
    """10,050 connections that sent an event each, and then kept silent, had all places for as long as they stayed."""
    authority, secured, proxied = Authority(tmp_path), doors in ("tls", "handshakes"), doors == "proxied"
    door = Door(authority.server() if secured else None, "127.0.0.0/8" if proxied else "", connections=2 * PLACES)
    tls: dict[str, Any] = {"ssl": authority.context(), "server_hostname": "localhost"} if secured else {}
    publish = door.publisher.publish

    def stored(frame: Any, listener: Any) -> None:
        publish(frame, listener)
        asyncio.get_running_loop().call_soon(listener.stored, frame.ticket, 1, True)

    door.publisher.publish = stored  # type: ignore[method-assign]
    async with door.open() as connect:
        for _ in range(5 * PLACES):
            if isinstance(sent, bytes):
                await connect(sent)
                continue
            hostile = await connect(**tls)
            for piece in SENT[sent]:
                hostile[1].write(piece)
                await asyncio.sleep(0.001)
            if sent == "a frame":
                await hostile[0].readexactly(1)
        for _ in range(3 * PLACES):
            newcomer = await connect(HEADER * proxied, **tls)
            newcomer[1].write(FRAME)
            assert await asyncio.wait_for(newcomer[0].readexactly(1), PATIENCE)
        await door.admits(2 * PLACES)
        assert door.receiver.metrics.limit_hits.labels("LIMITS__CONNECTIONS")._value.get() == 6 * PLACES


async def test_who_waits_for_kafka_makes_no_way() -> None:
    door = Door(connections=PLACES)
    async with door.open() as connect:
        owed = [await connect() for _ in range(PLACES)]
        for client in owed:
            await door.proves(client)
        assert await ended(await connect())
        for published, listener in door.publisher.submitted[:1]:
            listener.stored(published.ticket, 1, True)
        newcomer = await connect()
        await door.proves(newcomer)
        assert await asyncio.wait_for(owed[0][0].read(), PATIENCE)  # its acknowledgement, and the end
        assert not any(client[0].at_eof() for client in owed[1:])


def test_the_longest_idle_that_is_owed_nothing_leaves_first() -> None:
    found, made = Places(5), [Place(lambda: None, name) for name in ("first", "second", "third", "fourth", "fifth")]
    for each in made:
        found.take(each)
    first, second, third, fourth, _ = made
    found.heard(first)
    found.give_back(second)
    found.give_back(second)
    third.is_owed = fourth.is_owed = lambda: True

    def leaves() -> list[str]:
        return [place.peer for place in iter(found.make_way, None)]

    assert leaves() == ["fifth", "first"]
    found.heard(first)  # it has left
    fourth.is_owed = lambda: False
    assert leaves() == ["fourth"]
    assert len(found) == 1


def test_a_newcomer_costs_the_same_however_many_are_owed_something() -> None:
    looks, found = itertools.count(), Places(10_000)
    for _ in range(10_000):
        found.take(Place(lambda: None, "", lambda: next(looks) >= 0))
    assert found.make_way() is None
    assert next(looks) == MOST_LOOKED_AT


# What a listener asks of the kernel, and whom it welcomes


LOOPBACK, ELSEWHERE = "127.0.0.0/8", "192.0.2.0/24"
V1, V2, UNKNOWN = (HEADERS[name][0] for name in ("v1, IPv4", "v2, IPv4", "v1, unknown"))


@pytest.mark.parametrize(
    ("trusted", "data", "outcome"),
    [
        *((LOOPBACK, head + FRAME, "192.0.2.1") for head in (V1, V2)),  # not a byte too many is taken
        (LOOPBACK, UNKNOWN + FRAME, "127.0.0.1"),
        (ELSEWHERE, FRAME, "127.0.0.1"),
        (ELSEWHERE, V1, "protocol error"),  # nobody else may claim an address
        (LOOPBACK, FRAME, "handshake failed"),
        (LOOPBACK, V1[:14], "handshake failed"),
    ],
)
async def test_who_comes_through_a_proxy_tells_its_address(trusted: str, data: bytes, outcome: str) -> None:
    """A balancer's health check does not, and is nothing special."""
    late = data == V1[:14]
    door = Door(None, trusted, handshake_time=1 if late else PATIENCE)
    with capture_logs() as lines:
        async with door.open() as connect:
            (await connect())[1].close()
            client = await connect(data)
            if outcome[0].isdigit():
                await until(lambda: door.publisher.submitted, "its frame is taken")
                assert door.publisher.submitted[0][1].peer.identity == outcome  # type: ignore[attr-defined]
            else:
                assert await ended(client)
    told = [line["event"] for line in lines if line["log_level"] != "debug"]
    assert told == ([] if door.publisher.submitted else [outcome])
    assert door.receiver.metrics.limit_hits.labels("LIMITS__HANDSHAKE_TIME")._value.get() == late


async def test_a_client_that_has_gone_is_noticed_within_minutes() -> None:
    door = Door()
    async with door.open() as connect:
        await connect()
        await until(lambda: door.receiver.connections, "it is there")
        (connection,) = door.receiver.connections
        client = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert {option: client.getsockopt(socket.IPPROTO_TCP, option) for option in KEEP_ALIVE} == KEEP_ALIVE
        assert sum(KEEP_ALIVE.values()) < 120


@pytest.mark.parametrize("host", ["localhost:24224", "a b", "a" * 64])
def test_a_host_that_is_none_is_a_wrong_setting(host: str) -> None:
    with pytest.raises(ConfigError, match=f"^LISTEN {host}:0: "):
        sockets.bound_socket(host, 0, "LISTEN")


async def test_where_the_budget_is_full_one_comes_while_kafka_stores() -> None:
    """Those who are here may use up all room for ever; where nothing is stored a client waits in the backlog."""
    door = Door()
    budget = door.receiver.budget
    crowd = SimpleNamespace(partial_bytes=0, pending=0, has_stored=True, pace=lambda: None)
    budget.charge(crowd, door.receiver.limits.process_budget)
    async with door.open() as connect:
        for number in range(2):
            await connect()
            await asyncio.sleep(0.2)
            assert len(door.receiver.places) == number
            budget.charge(crowd, 1)
            budget.release(crowd, 1)
            await until(lambda: len(door.receiver.places) == number + 1, "one comes")  # noqa: B023  (called at once)


@pytest.mark.parametrize("secured", [False, True])
async def test_who_has_left_leaves_nothing_to_be_collected(tmp_path: Path, secured: bool) -> None:
    """The collector comes rarely: it looks through all that are there."""
    authority = Authority(tmp_path)
    door = Door(authority.server() if secured else None)
    gc.disable()
    try:
        async with door.open() as connect:
            client = await connect(**({"ssl": authority.context(), "server_hostname": "localhost"} if secured else {}))
            await door.proves(client)
            frame, listener = door.publisher.submitted.pop()
            listener.stored(frame.ticket, 1, True)
            del listener
            left = [weakref.ref(each) for each in door.receiver.connections]
            client[1].transport.abort()
            await until(lambda: len(left) == 1 and left[0]() is None, "it is freed", 10)
    finally:
        gc.enable()
