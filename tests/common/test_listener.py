"""What a stream listener asks of the kernel for its clients."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from headrace_common.listening.listener import KEEP_ALIVE, Listener
from headrace_common.operations import sockets
from headrace_common.operations.errors import ConfigError

from tests.common.test_making_way import Door, ended
from tests.contract.certificates import Authority
from tests.contract.waiting import PATIENCE, until


async def test_a_client_that_has_gone_is_noticed_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted: asyncio.Queue[socket.socket] = asyncio.Queue()

    async def welcome(self: Listener, arrival: Any) -> None:
        accepted.put_nowait(arrival.socket.dup())

    monkeypatch.setattr(Listener, "_welcome", welcome)
    async with Door().open() as connect:
        await connect()
        client = await asyncio.wait_for(accepted.get(), PATIENCE)
        assert {option: client.getsockopt(socket.IPPROTO_TCP, option) for option in KEEP_ALIVE} == KEEP_ALIVE
        assert sum(KEEP_ALIVE.values()) < 120
        client.close()


@pytest.mark.parametrize("host", ["localhost:24224", "a b", "a" * 64])
def test_a_host_that_is_none_is_a_wrong_setting(host: str) -> None:
    with pytest.raises(ConfigError, match=f"^LISTEN {host}:0: "):
        sockets.bound_socket(host, 0, "LISTEN")


async def test_a_certificate_that_cannot_be_read_is_refused_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A name in it is no ASCII. Its welcome ended by an error that nobody expected, with a stack in the log."""
    authority = Authority(tmp_path)
    shown = authority.context(authority.issue("client", "c", encoded_names=bytes.fromhex("3003 8201 ff")))
    door = Door(authority.server(asks=True))
    with structlog.testing.capture_logs() as lines:
        async with door.open() as connect:
            assert await ended(await connect(ssl=shown, server_hostname="localhost"))
            await door.admits(0)
        gc.collect()
    door.gave_everything_back()
    assert [line["event"] for line in lines] == ["tls handshake failed"]
    assert "never retrieved" not in caplog.text


async def test_where_the_budget_is_full_one_comes_while_kafka_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who are here may use up all room for ever; where nothing is stored a client waits in the backlog."""
    door = Door()
    budget = door.receiver.budget
    crowd = SimpleNamespace(partial_bytes=0, pending=0, has_stored=True, pace=lambda: None)
    budget.charge(crowd, door.receiver.limits.process_budget)
    welcomes, looked = budget.welcomes, 0

    def looking() -> bool:
        nonlocal looked
        looked += 1
        return welcomes()

    async def looks_on() -> None:
        seen = looked
        await until(lambda: looked >= seen + 3, "it has looked for room")

    monkeypatch.setattr(budget, "welcomes", looking)
    async with door.open() as connect:
        await connect()
        await looks_on()
        assert door.receiver.admitted == 0
        budget.charge(crowd, 1)
        budget.release(crowd, 1)
        await until(lambda: door.receiver.admitted == 1, "one comes")
        await connect()
        await looks_on()
        assert door.receiver.admitted == 1
        assert not welcomes()
        budget.release(crowd, crowd.pending)
        await until(lambda: door.receiver.admitted == 2, "the other comes")


async def test_who_cannot_be_welcomed_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket fails when its connection is made already."""
    door = Door()

    async def fails(make: Callable[[], asyncio.Protocol], client: socket.socket) -> None:
        make()
        raise OSError

    monkeypatch.setattr(asyncio.get_running_loop(), "connect_accepted_socket", fails)
    async with door.open() as connect:
        assert await ended(await connect())
        await door.admits(0)
    door.gave_everything_back()
