"""TLS of our own: halves, ends, memory and time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import tracemalloc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgpack
import pytest
import uvloop
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.listening import listener, secured
from headrace_common.listening.secured import PIECE, SLICE, SecuredTransport

from tests.common.test_connection import data
from tests.common.test_making_way import Door
from tests.contract.certificates import Authority
from tests.contract.waiting import PATIENCE, until

LOOP = uvloop.new_event_loop  # as receivers run in


class Speaker:
    """A client whose bytes on the wire are the test's: `take` hears the receiver, `give` gets what is to be sent."""

    def __init__(self, authority: Authority) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = authority.context().wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shakes(self) -> bool:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            return True
        return False

    def records(self, text: bytes, size: int = 1 << 14) -> bytes:
        for at in range(0, len(text), size):
            self.tls.write(text[at : at + size])
        return self.outgoing.read()

    def ends(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def hears(self, data: bytes) -> bytes:
        self.incoming.write(data)
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while piece := self.tls.read(1 << 16):
                found += piece
        return found


class Wire(NamedTuple):
    """A speaker's connection to a door."""

    speaker: Speaker
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def hears(self) -> bytes:
        """All until the receiver's end."""
        async with asyncio.timeout(PATIENCE):
            return self.speaker.hears(await self.reader.read())


@asynccontextmanager
async def conversation(tmp_path: Path) -> AsyncIterator[tuple[Door, Wire]]:
    authority = Authority(tmp_path)
    door = Door(authority.server(tickets=0))
    async with door.open() as connect:
        speaker = Speaker(authority)
        reader, writer = await connect()
        while not speaker.shakes():
            writer.write(speaker.outgoing.read())
            speaker.incoming.write(await reader.read(1 << 16))
        writer.write(speaker.outgoing.read())
        yield door, Wire(speaker, reader, writer)
        await door.admits(0)
    door.gave_everything_back()


@pytest.mark.parametrize("says", [True, False], ids=["close_notify", "silent"])
@pytest.mark.parametrize("half", [True, False], ids=["fin", "open"])
async def test_who_has_finished_sending_still_hears(tmp_path: Path, says: bool, half: bool) -> None:
    """The event loop's TLS ended such a connection at once, without the acknowledgement."""
    async with conversation(tmp_path) as (door, wire):
        wire.writer.write(wire.speaker.records(data("a") + data("b")) + (wire.speaker.ends() if says else b""))
        if half:
            wire.writer.write_eof()
        taken = door.publisher.submitted
        await until(lambda: len(taken) == 2, "its frames are taken")
        await asyncio.sleep(0.05)
        assert len(door.receiver.connections) == 1
        for published, listener in taken:
            listener.stored(published.ticket, 1, True)
        if not (says or half):
            await asyncio.sleep(0.05)
            wire.writer.write_eof()
        unpacker = msgpack.Unpacker()
        unpacker.feed(await wire.hears())
        assert [each["ack"] for each in unpacker] == ["a", "b"]


async def test_who_sends_on_while_its_connection_is_closed_hears_all(tmp_path: Path) -> None:
    """At a stop, or for its age. What it sent then met a closed socket, whose reset may overtake the acknowledgement."""
    async with conversation(tmp_path) as (door, wire):
        taken = door.publisher.submitted
        for number, chunk in enumerate("ab", 1):
            wire.writer.write(wire.speaker.records(data(chunk)))
            await until(lambda number=number: len(taken) == number, "its frame is taken")
            if chunk == "b":
                (connection,) = door.receiver.connections
                connection.stop()
            published, listener = taken[-1]
            listener.stored(published.ticket, 1, True)
        for _ in range(20):
            wire.writer.write(wire.speaker.records(data("late", "x" * 10_000)))
            await asyncio.sleep(0.005)
        unpacker = msgpack.Unpacker()
        unpacker.feed(await wire.hears())
        assert [each["ack"] for each in unpacker] == ["a", "b"]
        assert len(taken) == 2
        wire.writer.write_eof()


@pytest.mark.parametrize("leaves", [True, False], ids=["nothing", "bytes"])
async def test_a_failed_handshake_leaves_no_memory_to_be_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """2,000 of them held 110 MB until the next collection."""
    made = weakref.WeakSet[SecuredTransport]()

    def make(*given: Any) -> SecuredTransport:
        made.add(found := SecuredTransport(*given))
        return found

    monkeypatch.setattr(listener, "SecuredTransport", make)
    door = Door(Authority(tmp_path).server())
    gc.collect()
    gc.disable()
    try:
        async with door.open() as connect:
            _, writer = await connect(b"" if leaves else b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: made, "its handshake begins")
            if leaves:
                writer.close()
            await door.admits(0)
            await until(lambda: not made, "nothing of it is left")
    finally:
        gc.enable()


async def test_a_connection_takes_little_memory(tmp_path: Path) -> None:
    """The event loop's TLS has 256 KiB for each, and touches them once so much comes at once: 2.5 GB for 10,000 clients."""
    authority, clients = Authority(tmp_path), 16
    door = Door(authority.server(tickets=0))
    async with door.open():
        first = await door.blocking(authority)
        tracemalloc.start()
        try:
            there = [await door.blocking(authority) for _ in range(clients)]
            await door.admits(1 + clients)
            assert tracemalloc.get_traced_memory()[0] < clients * (64 << 10)
        finally:
            tracemalloc.stop()
        for each in (first, *there):
            each.close()
        await door.admits(0)
    door.gave_everything_back()


class Socket(asyncio.Transport):
    """What the transport of a socket is asked."""

    def __init__(self) -> None:
        self.written, self.reading, self.closing = b"", True, False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closing = True


class Taker(asyncio.Protocol):
    def __init__(self) -> None:
        self.taken: list[int] = []

    def data_received(self, data: bytes) -> None:
        self.taken.append(len(data))


async def test_many_small_records_are_decrypted_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte to a record: 12 ms for 256 KiB, which were read up to 32 times in one turn of the loop. Each in its turn."""
    authority, now = Authority(tmp_path), 0.0

    def monotonic() -> float:
        nonlocal now
        now += SLICE / 4
        return now

    monkeypatch.setattr(secured, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr("headrace_common.fairness.scheduler.ARRIVAL_TIME", PATIENCE)
    loop = asyncio.get_running_loop()
    clock: Any = SimpleNamespace(time=lambda: now, call_soon=loop.call_soon, call_at=loop.call_at)
    speaker, own, taker = Speaker(authority), Socket(), Taker()
    transport = SecuredTransport(authority.server(tickets=0), Scheduler(clock, lambda: now))
    transport.connection_made(own)
    while not speaker.shakes():
        transport.data_received(speaker.outgoing.read())
        await asyncio.sleep(0)
        speaker.incoming.write(own.written)
        own.written = b""
    transport.data_received(speaker.outgoing.read())
    await transport.handshake(PATIENCE)
    transport.begin(taker)
    while transport.entry is not None:  # noqa: ASYNC110  (it looks for bytes behind the handshake)
        await asyncio.sleep(0)
    records = speaker.records(bytes(10_000), 1)
    transport.data_received(records)
    assert 0 < sum(taker.taken) < 5 * PIECE / len(records) * 10_000
    assert not own.reading
    looks = 0
    while sum(taker.taken) < 10_000:
        before, looks = len(taker.taken), looks + 1
        await asyncio.sleep(0)
        now += SLICE / 100
        assert len(taker.taken) - before <= 2
    assert looks > 4
    assert own.reading
