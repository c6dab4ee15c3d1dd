"""TLS towards clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.certificates import Authority
from tests.contract.dialect import ContractClient, Dialect, Values, values
from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import apart, events, now
from tests.contract.waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.shared, pytest.mark.connection]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def secured(
    dialect: Dialect, stored_in: KafkaSettings, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Receiver]:
    """A receiver that asks its clients for certificates."""
    cert, key = authority.issue("server", "server")
    own, tls = apart(stored_in, dialect.segments), {"cert": cert, "key": key, "client_ca": authority.file}
    with Receiver.of(dialect, own, tmp_path_factory.mktemp("secured"), {"tls": tls}) as running:
        running.spawn()
        now(running.listens())
        yield running


async def test_the_certificate_names_the_client(dialect: Dialect, secured: Receiver, authority: Authority) -> None:
    named = authority.issue("client", "web 1/ö")
    unnamed = authority.issue("unnamed", None, dns="pod.example")
    for files, source in ((named, "web%201%2F%C3%B6"), (unnamed, "pod.example")):
        frame = values(2)
        async with await ContractClient.connect(dialect, secured.address, authority.context(files)) as client:
            await client.receives(await client.send(frame))
            await client.receives(await client.send_faulty(values(2)))
        records = await events(secured.kafka, frame[0]["mark"])
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
    dialect: Dialect, secured: Receiver, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path).issue("client", "stranger")
    good = authority.issue("client", "client")
    frame = values(2)
    for files in (None, stranger):
        assert await _turned_away(dialect, secured.address, authority.context(files), frame)
    async with await ContractClient.connect(dialect, secured.address, authority.context(good)) as client:
        await client.receives(await client.send(values(2)))
    assert await events(secured.kafka, frame[0]["mark"]) == []
    assert secured.lines("handshake failed")


async def test_a_handshake_has_its_time(start: Receivers, authority: Authority) -> None:
    cert, key = authority.issue("other", "server")
    receiver = await start(tls={"cert": cert, "key": key}, limits={"handshake_time": 1})
    reader, writer = await asyncio.open_connection(*receiver.address)
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""  # it says nothing, and it is closed
    writer.close()
