"""Many that say nothing take little memory, and keep nobody out. `tests/system/test_bad_input.py` has those that mean harm."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Iterator

import msgpack
import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.processes import file_limit
from tests.contract.receiver import Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE
from tests.forward.speaking import send
from tests.system.memory import Memory

pytestmark = pytest.mark.kafka


@contextlib.contextmanager
def connected(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """So many connections that say nothing."""
    with file_limit(count + 1000), contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(count)]


@pytest.mark.long
async def test_10_000_idle_connections(start: Receivers, store: KafkaSettings) -> None:
    count = 10_000
    receiver = await start(limits={"connections": count + 10})
    with Memory(receiver.pid) as memory, connected(receiver.address, count) as peers:
        await receiver.shows(count, "connections")
        for peer in peers[::10]:  # a tenth has sent something, once
            peer.send(msgpack.packb(["t", 1, {"m": 1}, {"chunk": "c"}]))
        for peer in peers[::10]:
            assert peer.recv(100) == msgpack.packb({"ack": "c"})
        mark = uuid.uuid4().hex
        send(receiver.address, mark)
        assert len(await events(store, mark)) == 1
    assert memory.most < 300e6, f"{memory.most / 1e6:.0f} MB resident"
