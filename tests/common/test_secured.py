"""TLS of our own: memory and time, halves and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
import ssl
import tracemalloc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from headrace_common.connection.tcp import TcpConnection
from headrace_common.fairness.scheduler import Scheduler
from headrace_common.listening import listener, secured
from headrace_common.listening.secured import SLICE, SecuredTransport
from headrace_common.listening.tls import client_tls
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import TlsSettings

from tests.common.test_connection import data
from tests.common.test_making_way import Door
from tests.contract.certificates import Authority
from tests.contract.waiting import PATIENCE, until
from tests.driving import traced
from tests.forward.driving import ack

LOOP = uvloop.new_event_loop  # as receivers run in
RECORD_OF_A_BYTE = 23


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
        with traced():
            there = [await door.blocking(authority) for _ in range(clients)]
            await door.admits(1 + clients)
            assert tracemalloc.get_traced_memory()[0] < clients * (64 << 10)
        for each in (first, *there):
            each.close()
        await door.admits(0)
    door.gave_everything_back()


async def test_many_small_records_are_decrypted_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte to a record: 12 ms for 256 KiB, which were read up to 32 times in one turn of the loop."""
    now, taken, looks, count = 0.0, list[int](), [0], 1000

    def monotonic() -> float:
        nonlocal now
        now += SLICE / 4
        return now

    loop, authority = asyncio.get_running_loop(), Authority(tmp_path)
    clock: Any = SimpleNamespace(time=lambda: now, call_soon=loop.call_soon, call_at=loop.call_at)
    door = Door(authority.server(tickets=0))
    door.receiver.scheduler = Scheduler(clock, lambda: now)
    async with door.open():
        client = await door.blocking(authority)
        await until(lambda: door.receiver.connections, "it is there")
        monkeypatch.setattr(secured, "PIECE", 20 * RECORD_OF_A_BYTE)
        monkeypatch.setattr(secured, "time", SimpleNamespace(monotonic=monotonic))
        monkeypatch.setattr(TcpConnection, "data_received", lambda _, data: taken.append(len(data)))
        for _ in range(count):  # while the loop does not turn
            client.send(b"x")
        while sum(taken) < count:
            await asyncio.sleep(0)
            now += SLICE / 100
            looks.append(len(taken))
            assert len(looks) < 100 * count, "bytes were dropped"
        assert max(taken) <= 5 * 20
        assert max(after - before for before, after in itertools.pairwise(looks)) <= 4  # bytes that arrive, and a slice
        client.close()
        await door.admits(0)


async def test_who_ends_while_it_is_not_read_loses_nothing(tmp_path: Path) -> None:
    """While the budget was used up, uvloop took what came by TLS into a buffer, and threw that away at the client's end. Session
    tickets, which this client never reads, would turn its close into a reset.
    """
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    tls = client_tls(TlsSettings(cert=cert, key=key), ReceiverMetrics()).current()
    sizes = {"frame_bytes": 8 << 10, "inflated_bytes": 8 << 10, "connection_budget": 64 << 10}
    door = Door(tls, **sizes, process_budget=128 << 10)
    taken, sent = door.publisher.submitted, 0
    async with door.open():
        client = await door.blocking(authority)
        await until(lambda: door.receiver.connections, "it is there")
        (connection,) = door.receiver.connections
        while connection.reading:  # type: ignore[attr-defined]
            client.sendall(data(None, "x" * 4000))
            sent += 1
            await until(lambda: len(taken) == sent, "it is taken")  # noqa: B023  (called at once)
        for _ in range(5):
            client.sendall(data(None, "x" * 4000))
        client.close()
        await asyncio.sleep(0.1)  # all of it comes, and its end
        assert len(taken) == sent
        for stored in range(sent + 5):
            await until(lambda: len(taken) > stored, "the next one is taken")  # noqa: B023
            published, listener = taken[stored]
            listener.stored(published.ticket, 1, True)
        await until(lambda: not door.receiver.connections, "it has left")
    door.gave_everything_back()


def heard(client: socket.socket) -> bytes:
    """All that is said until the end."""
    found = b""
    with contextlib.suppress(ssl.SSLZeroReturnError):
        while part := client.recv(100):
            found += part
    return found


@pytest.mark.parametrize("says", [True, False], ids=["close_notify", "FIN"])
async def test_who_has_finished_sending_hears_of_it_and_the_end(tmp_path: Path, says: bool) -> None:
    """Whether it ends TLS before its side of the connection, or that alone."""
    authority = Authority(tmp_path)
    door = Door(authority.server(tickets=0))
    async with door.open():
        client = await door.blocking(authority)
        client.sendall(data("c") + data("d"))
        if says:
            client.setblocking(False)
            with contextlib.suppress(ssl.SSLError):  # it would wait for ours
                client.unwrap()  # type: ignore[attr-defined]
            client.settimeout(PATIENCE)
        socket.socket.shutdown(client, socket.SHUT_WR)
        await until(lambda: len(door.publisher.submitted) == 2, "it is taken")
        for published, connection in door.publisher.submitted:
            connection.stored(published.ticket, 1, True)
        assert await asyncio.to_thread(heard, client) == ack("c") + ack("d")
        await door.admits(0)
    door.gave_everything_back()
