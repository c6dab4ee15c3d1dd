"""Several processes of one receiver on one port, which all TCP receivers share, tested with Forward."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receiver
from tests.contract.topic import events
from tests.forward.speaking import send

pytestmark = pytest.mark.kafka

BOTH = 500
"""Connections until both processes have one: the kernel deals them out by a hash of the client's port. That all go to one is
as likely as 500 heads in a row."""


@pytest.fixture
async def pair(store: KafkaSettings, tmp_path: Path) -> AsyncIterator[list[Receiver]]:
    started: list[Receiver] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        started.append(Receiver("forward", store, tmp_path / name, {"listen": {"reuse_port": True}}))
        started[-1].port = started[0].port
        await started[-1].start()
    yield started
    for receiver in started:
        receiver.stop()


async def opened(receiver: Receiver) -> float:
    return await receiver.metric("connections_opened_total")


@pytest.mark.long
async def test_both_get_connections_and_what_they_acknowledge_is_stored(
    pair: list[Receiver], store: KafkaSettings
) -> None:
    one, two = pair
    assert one.port == two.port
    assert one.ops != two.ops
    mark, sent = uuid.uuid4().hex, 0
    while not (await opened(one) and await opened(two)):
        assert sent < BOTH, "one of them gets no connection"
        send(one.address, mark)
        sent += 1
    assert await opened(one) + await opened(two) == sent
    two.stop()
    for _ in range(10):  # who is left serves all
        send(one.address, mark)
    assert len(await events(store, mark)) == sent + 10


@pytest.mark.long
async def test_heartbeats_are_answered_too(pair: list[Receiver]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        client.sendto(b"\0", pair[0].address)
        assert client.recv(10)
