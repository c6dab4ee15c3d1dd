"""Many producers at once, through outages and a kill; and how much they can make the receiver hold."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_common.operations.settings import MIB, KafkaSettings
from headrace_logjam.reading import ALIVE, SILENCE_MS
from headrace_logjam.wire import Meta, encode_meta

from tests.contract.logjam import GREETING, READY, message
from tests.contract.receiver import HOST
from tests.contract.stopping import stopped
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.logjam.driving import APP_ENV, TOPIC, asking, event
from tests.logjam.test_service import ACCEPTED, Logjam, connected, heard, marked
from tests.system.memory import Memory
from tests.tiers import sized

pytestmark = pytest.mark.kafka


DEALERS = 20
MESSAGES = sized(2_000, 20_000, 100_000)
OUTAGE = sized(2, 7, 20)
"""Seconds that Kafka stands still."""

WINDOW = 25
GIVES_UP = 5.0
"""A client sends again, over a new socket, what was not answered for so long: Logjam's agent waits as long, others send again."""


class Dealer:
    """Sends its numbers and each again until it is accepted, as a client does that wants to lose nothing.

    Answers carry no id, so they belong to the messages of one connection in order. ZeroMQ connects again by itself, and what
    the old connection lost would be taken for accepted: it must not (`RECONNECT_IVL`).
    """

    def __init__(self, context: zmq.asyncio.Context, port: int, name: int, mark: str, numbers: list[int]) -> None:
        self._context = context
        self._port = port
        self._name = name
        self._mark = mark
        self._left = numbers[::-1]
        self.accepted: list[int] = []
        self.again = 0

    def _message(self, number: int) -> list[bytes]:
        body = {"mark": self._mark, "n": number, "request_id": f"{self._mark}-{number}", "text": "x" * (number % 300)}
        return asking(event(body, number % 4, app_env=b"shop%d-production" % (self._name % 5)))

    async def run(self) -> None:
        while self._left:
            client = connected(self._context, zmq.DEALER, self._port, RECONNECT_IVL=-1)
            waiting: list[int] = []
            try:
                while self._left or waiting:
                    while self._left and len(waiting) < WINDOW:
                        number = self._left.pop()
                        waiting.append(number)
                        await asyncio.wait_for(client.send_multipart(self._message(number)), GIVES_UP)
                    _, answer = await asyncio.wait_for(client.recv_multipart(), GIVES_UP)
                    assert answer == ACCEPTED[1]
                    self.accepted.append(waiting.pop(0))
            except TimeoutError:
                self.again += len(waiting)
                self._left += reversed(waiting)
            finally:
                client.close()


@pytest.mark.long
async def test_no_202_without_a_record_through_an_outage_and_a_kill(
    topics: KafkaSettings, kafka: EmbeddedKafka, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    """What was accepted is on the topic; what was sent again, because it was answered too late or never, has one id."""
    receiver = Logjam(topics, tmp_path, logjam={"answer_time": 4.5})
    await receiver.start()
    mark = uuid.uuid4().hex
    dealers = [
        Dealer(context, receiver.port, name, mark, list(range(name, MESSAGES, DEALERS))) for name in range(DEALERS)
    ]
    try:
        running = [asyncio.create_task(dealer.run()) for dealer in dealers]

        def accepted() -> int:
            return sum(len(dealer.accepted) for dealer in dealers)

        await until(lambda: accepted() > MESSAGES // 10, "a tenth is accepted")
        with stopped(kafka.pid):
            at = accepted()
            await asyncio.sleep(OUTAGE)
            assert accepted() - at <= DEALERS * WINDOW  # answers that were on their way
        await until(lambda: accepted() > MESSAGES // 3, "a third is accepted")
        receiver.kill()
        await receiver.start()
        await asyncio.gather(*running)
    finally:
        receiver.stop()
    ids = defaultdict(set)
    for record in await events(topics, mark):
        ids[record.json["n"]].add(record.id)
    assert accepted() == MESSAGES
    assert ids.keys() == set(range(MESSAGES))
    assert all(len(names) == 1 for names in ids.values())
    assert sum(dealer.again for dealer in dealers) > 0


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


STANDSTILL = 45
"""Seconds, more than `SILENCE_MS`."""
PUSHED = 30_000


@pytest.mark.full
async def test_what_was_pushed_while_kafka_stood_still_for_long_is_there(
    topics: KafkaSettings, kafka: EmbeddedKafka, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    limits = {
        "event_bytes": MIB, "frame_bytes": MIB, "inflated_bytes": MIB,
        "connection_budget": 2 * MIB, "process_budget": 8 * MIB,
    }  # fmt: skip
    receiver = Logjam(topics, tmp_path, limits=limits)
    await receiver.start()
    mark = uuid.uuid4().hex
    try:
        client = connected(context, zmq.PUSH, receiver.pull_port, SNDHWM=0)
        with stopped(kafka.pid):
            for number in range(PUSHED):
                await client.send_multipart(event({"mark": mark, "n": number, "text": "x" * 2_000}))
            await until(lambda: receiver.metric("connections_paused"), "nothing is read any more")
            await asyncio.sleep(STANDSTILL)
        await until(lambda: _stored(receiver), "all is stored")
    finally:
        receiver.stop()
    assert {record.json["n"] for record in await events(topics, mark)} == set(range(PUSHED))


async def _stored(receiver: Logjam) -> bool:
    return await receiver.metric("events_stored_total") >= PUSHED


PEERS = sized(200, 1_000, 10_000)
PEER_MESSAGES = 4
SIZE = 7_000
EACH = 8
"""Messages that each peer sends, more than are read ahead for it."""

ACCOUNTED = 64 << 10
"""Bytes that ZeroMQ takes for a connection and its queues, whatever is in them."""


@pytest.mark.long
async def test_peers_that_are_not_read_stay_below_what_the_page_says(
    topics: KafkaSettings, kafka: EmbeddedKafka, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    """Budgets are used up, Kafka stands still, and thousands send: peers × (PEER_MESSAGES + 1) × size."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < PEERS + 1000:
        pytest.skip(f"needs {PEERS} open files, this machine allows {hard}")
    limits = {
        "event_bytes": MIB, "frame_bytes": MIB, "inflated_bytes": MIB,
        "connection_budget": 2 * MIB, "process_budget": 8 * MIB, "connections": PEERS + 10,
        "connections_per_address": 0,
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
        await until(lambda: _clients(receiver, PEERS + 1), "all are there")
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


async def _clients(receiver: Logjam, count: int) -> bool:
    return await receiver.metric("logjam_clients") == count


async def _still(memory: Memory, least: int) -> None:
    """Until it has grown by `least`, and then not for two seconds: a process that waits for a processor stands still, too."""

    def quiet() -> bool:
        last = memory.samples[-20:]
        return memory.grown >= least and len(memory.samples) > 30 and max(last) - min(last) < MIB

    await until(quiet, "the memory stands still")
