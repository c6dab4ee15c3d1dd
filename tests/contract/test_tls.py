"""TLS towards clients."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.contract.certificates import Authority
from tests.contract.dialect import ContractClient, Dialect, Values, values
from tests.contract.receiver import Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.shared, pytest.mark.connection]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "pki"
    folder.mkdir()
    return Authority(folder)


async def test_the_certificate_names_the_client(dialect: Dialect, start: Receivers, authority: Authority) -> None:
    cert, key = authority.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key, "client_ca": authority.file})
    named = authority.issue("client", "web 1/ö")
    unnamed = authority.issue("unnamed", None, dns="pod.example")
    for files, source in ((named, "web%201%2F%C3%B6"), (unnamed, "pod.example")):
        frame = values(2)
        async with await ContractClient.connect(dialect, receiver.address, authority.context(files)) as client:
            await client.receives(await client.send(frame))
            await client.receives(await client.send_faulty(values(2)))
        records = await events(receiver.kafka, frame[0]["mark"])
        assert {record["ce_source"] for record in records} == {f"/{dialect.name}/{source}"}


async def _turned_away(dialect: Dialect, address: tuple[str, int], context: ssl.SSLContext, frame: Values) -> bool:
    """With TLS 1.3 a client learns only behind its own handshake that the server does not want it."""
    try:
        async with await ContractClient.connect(dialect, address, context) as client:
            await client.send(frame)
            await client.sees_end()
            return not client.acknowledged
    except (ssl.SSLError, ConnectionError):
        return True


async def test_who_cannot_show_a_certificate_is_not_served(
    dialect: Dialect, start: Receivers, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key, "client_ca": authority.file})
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").issue("client", "stranger")
    good = authority.issue("client", "client")
    frame = values(2)
    for files in (None, stranger):
        assert await _turned_away(dialect, receiver.address, authority.context(files), frame)
    async with await ContractClient.connect(dialect, receiver.address, authority.context(good)) as client:
        await client.receives(await client.send(values(2)))
    assert await events(receiver.kafka, frame[0]["mark"]) == []
    assert receiver.lines("tls handshake failed")


async def test_a_handshake_has_its_time(start: Receivers, authority: Authority) -> None:
    cert, key = authority.issue("server", "server")
    receiver = await start(tls={"cert": cert, "key": key}, limits={"handshake_time": 1})
    reader, writer = await asyncio.open_connection(*receiver.address)
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""  # it says nothing, and it is closed
    writer.close()
