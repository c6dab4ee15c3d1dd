"""How much producers that are not read can make the receiver hold, and that they are not taken for dead."""

from __future__ import annotations

import asyncio
import json
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from headrace_common.operations.settings import MIB, KafkaSettings
from headrace_logjam.reading import ALIVE, SILENCE_MS
from headrace_logjam.wire import Meta, encode_meta

from tests.contract.embedded import EmbeddedKafka
from tests.contract.logjam import GREETING, READY, message
from tests.contract.processes import file_limit
from tests.contract.receiver import HOST
from tests.contract.stopping import stopped
from tests.contract.waiting import PATIENCE, until
from tests.logjam.driving import APP_ENV, TOPIC, asking, event
from tests.logjam.test_service import ACCEPTED, Logjam, connected, heard, marked
from tests.system.memory import Memory
from tests.tiers import sized

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    "kinds",
    [(zmq.PULL, zmq.PUSH), pytest.param((zmq.ROUTER, zmq.DEALER), marks=pytest.mark.long)],
    ids=["pull", "router"],
)
async def test_a_peer_that_is_not_read_is_not_taken_for_dead(
    context: zmq.asyncio.Context, kinds: tuple[int, int]
) -> None:
    """Questions ten times as fast as ours, and a receiver that stands still for several of them."""
    server, client = map(context.socket, kinds)
    for option, value in ALIVE.items():
        server.setsockopt(option, max(value // 10, 1))
    server.setsockopt(zmq.RCVHWM, 4)
    client.setsockopt(zmq.SNDHWM, 0)
    client.connect(f"tcp://{HOST}:{server.bind_to_random_port(f'tcp://{HOST}')}")
    for number in range(3_000):  # more than the kernel holds
        await client.send(b"%d " % number + bytes(2_000))
    await asyncio.sleep(1.5 * SILENCE_MS / 10 / 1000)
    for number in range(3_000):
        parts = await asyncio.wait_for(server.recv_multipart(), PATIENCE)
        assert int(parts[-1].split()[0]) == number


PEERS = sized(200, 1_000, 10_000)
PEER_MESSAGES = 4
SIZE = 7_000
EACH = 8
"""Messages that each peer sends, more than are read ahead for it."""

ACCOUNTED = 64 << 10
"""Bytes that ZeroMQ takes for a connection and its queues, whatever is in them."""


@pytest.fixture
def files() -> Iterator[None]:
    """As many as there are peers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < PEERS + 1000:
        pytest.skip(f"needs {PEERS} open files, this machine allows {hard}")
    with file_limit(PEERS + 1000):
        yield


@pytest.mark.long
@pytest.mark.usefixtures("files")
async def test_peers_that_are_not_read_stay_below_what_the_page_says(
    topics: KafkaSettings, kafka: EmbeddedKafka, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    """Budgets are used up, Kafka stands still, and thousands send: peers × (PEER_MESSAGES + 1) × size."""
    limits: dict[str, object] = {
        "event_bytes": MIB, "frame_bytes": MIB, "inflated_bytes": MIB,
        "connection_budget": 2 * MIB, "process_budget": 8 * MIB, "connections": PEERS + 10,
    }  # fmt: skip
    receiver = Logjam(topics, tmp_path, logjam={"peer_messages": PEER_MESSAGES, "pull_port": 0}, limits=limits)
    await receiver.start()
    writers: list[asyncio.StreamWriter] = []
    try:
        filler = connected(context, zmq.DEALER, receiver.port, SNDHWM=0)
        await filler.send_multipart(asking(event(marked())))
        assert await heard(filler) == ACCEPTED
        many = asyncio.Semaphore(100)

        async def connect() -> None:
            async with many:
                reader, writer = await asyncio.open_connection(HOST, receiver.port)
                writer.write(GREETING)
                await reader.readexactly(len(GREETING))
                writer.write(READY)
                await reader.readexactly(2)
                writers.append(writer)

        await asyncio.gather(*(connect() for _ in range(PEERS)))
        await receiver.shows(PEERS + 1, "logjam_clients")
        with stopped(kafka.pid):
            for _ in range(200):
                await filler.send_multipart(asking(event({"text": random.randbytes(32_000).hex()})))
            await until(lambda: receiver.metric("connections_paused"), "nothing is read any more")
            with Memory(receiver.pid) as memory:
                body = json.dumps({"text": "x" * SIZE}).encode()
                data = message([APP_ENV, TOPIC, body, encode_meta(Meta())])
                for writer in writers:
                    for _ in range(EACH):
                        writer.write(data)
                await _still(memory, PEERS * len(data))
            assert await receiver.metric("connections_paused")
            assert memory.grown <= PEERS * ((PEER_MESSAGES + 1) * len(data) + ACCOUNTED)
            assert memory.grown >= PEERS * len(data)  # it was read ahead: else this shows nothing
        for writer in writers:
            writer.close()
        await filler.send_multipart(asking(event(marked())))
    finally:
        for writer in writers:
            writer.close()
        receiver.stop()


async def _still(memory: Memory, least: int) -> None:
    """Until it has grown by `least`, and then not for two seconds: a process that waits for a processor stands still, too."""

    def quiet() -> bool:
        last = memory.samples[-20:]
        return memory.grown >= least and len(memory.samples) > 30 and max(last) - min(last) < MIB

    await until(quiet, "the memory stands still")
