"""Peers that mean harm, and many that mean nothing: memory stays within the limits, and each is counted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Callable, Iterator

import msgpack
import pytest
from backports import zstd
from headrace_common.operations.settings import MIB, KafkaSettings, LimitSettings

from tests.contract.processes import file_limit
from tests.contract.receiver import Receivers
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE
from tests.forward.speaking import send
from tests.system.memory import Memory

pytestmark = pytest.mark.kafka

ALLOWED = LimitSettings().process_budget + 32 * MIB
"""By how much a receiver may grow, whatever is done to it."""


def packed(payload: bytes) -> bytes:
    return msgpack.packb(["bomb", payload, {"chunk": "bomb"}])


def in_record(head: bytes) -> bytes:
    """A message whose record begins like this and goes on for ever."""
    return b"\x94\xa4bomb\x01\x81\xa1k" + head


FRAME, DEPTH = "LIMITS__FRAME_BYTES", "LIMITS__DEPTH"
PAD = bytes(17 * MIB)
QUARANTINED: dict[str, Callable[[], bytes]] = {
    "zstd of ratio 30,000": lambda: packed(zstd.compress(bytes(256 * MIB))),
    "zstd frames": lambda: packed(zstd.compress(bytes(64 << 10)) * 4096),
}
CLOSED = {
    "array32 in a record": (in_record(b"\xdd\xff\xff\xff\xff") + PAD, FRAME),
    "bin32 of entries": (b"\x93\xa4bomb\xc6\xff\xff\xff\xff" + PAD, FRAME),
    "nesting of 10,000": (in_record(b"\x91" * 10_000) + b"\xc0", DEPTH),
    "JSON that never ends": (b'["bomb", [' + b"[1, {}]," * (3 * MIB), FRAME),
    "JSON nesting of 10,000": (b'["bomb", 1, ' + b"[" * 10_000 + b"]" * 10_001, DEPTH),
}


async def bomb(address: tuple[str, int], data: bytes) -> bytes:
    """What the server says before it ends, or its first reply."""
    reader, writer = await asyncio.open_connection(*address)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read(100)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.long
async def test_bombs(start: Receivers) -> None:
    receiver = await start()
    with Memory(receiver.pid) as memory:
        for name, made in QUARANTINED.items():
            data = made()
            before = await receiver.metric("events_quarantined_total", reason="inflated_limit")
            replies = await asyncio.gather(*(bomb(receiver.address, data) for _ in range(4)))
            assert replies == [msgpack.packb({"ack": "bomb"})] * 4, name
            after = await receiver.metric("events_quarantined_total", reason="inflated_limit")
            assert after == before + 4, name
        for name, (data, limit) in CLOSED.items():
            before = await receiver.metric("limit_hits_total", limit=limit)
            assert await asyncio.gather(*(bomb(receiver.address, data) for _ in range(4))) == [b""] * 4, name
            assert await receiver.metric("limit_hits_total", limit=limit) == before + 4, name
        assert memory.grown <= ALLOWED, f"grew by {memory.grown / MIB:.0f} MiB"


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
