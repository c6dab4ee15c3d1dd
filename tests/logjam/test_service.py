"""The process, as real clients of ZeroMQ see it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import socket
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from headrace_cli.machine.ports import free_port
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.settings import KafkaSettings
from headrace_logjam.wire import split

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import HOST, Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import Stored, events, now, own_topics, quarantined, reassembled
from tests.contract.waiting import PATIENCE, until
from tests.logjam.driving import APP_ENV, META, asking, event

pytestmark = pytest.mark.kafka

ACCEPTED = [APP_ENV, b"202 Accepted"]
REFUSED = [APP_ENV, b"400 Bad Request"]


class Logjam(Receiver):
    """With its second port."""

    def __init__(self, topics: KafkaSettings, folder: Path, /, **sections: dict[str, object]) -> None:
        self.pull_port = free_port()
        sections["logjam"] = {"pull_port": self.pull_port, **sections.get("logjam", {})}
        super().__init__("logjam", topics, folder, sections)


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka) -> KafkaSettings:
    return own_topics(kafka.bootstrap)


@pytest.fixture(scope="module")
def receiver(topics: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logjam]:
    running = Logjam(topics, tmp_path_factory.mktemp("logjam"))
    running.spawn()
    now(running.listens())
    yield running
    running.stop()


def connected(context: zmq.asyncio.Context, kind: int, port: int | str, **options: Any) -> zmq.asyncio.Socket:
    """`port`: at `HOST`, or a whole address, which may name the client's own."""
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    for name, value in options.items():
        made.setsockopt(getattr(zmq, name), value)
    made.connect(f"tcp://{HOST}:{port}" if isinstance(port, int) else f"tcp://{port}")
    return made


async def heard(client: zmq.asyncio.Socket, seconds: float = PATIENCE) -> list[bytes]:
    return await asyncio.wait_for(client.recv_multipart(), seconds)


async def silent(client: zmq.asyncio.Socket, seconds: float = 0.5) -> None:
    assert not await client.poll(int(seconds * 1000))


def marked(**more: Any) -> dict[str, Any]:
    return {"mark": uuid.uuid4().hex, "n": 0, **more}


async def kept(topics: KafkaSettings, frames: list[bytes]) -> Stored:
    """The one quarantine record that holds these frames."""
    (found,) = [record for record in await quarantined(topics) if split(record.value) == frames]
    return found


async def test_a_ping_hears_our_name_and_a_req_nothing(receiver: Logjam, context: zmq.asyncio.Context) -> None:
    """Answers carry no empty frame, because agents expect none: as with Logjam's own device."""
    client = connected(context, zmq.DEALER, receiver.port)
    await client.send_multipart([b"", b"ping", b"", b"{}", META])
    assert await heard(client) == [b"ping", b"200 OK", socket.gethostname().encode()]
    body = marked()
    client = connected(context, zmq.REQ, receiver.port)
    await client.send_multipart(event(body))
    await until(lambda: events(receiver.kafka, body["mark"]), "it is stored")
    assert not await client.poll(500)
    (line,) = receiver.lines("ready")
    assert (line["listen"], line["pull"]) == (f"{HOST}:{receiver.port}", f"{HOST}:{receiver.pull_port}")


async def _count(topics: KafkaSettings, mark: str, count: int) -> bool:
    return len(await events(topics, mark)) >= count


async def test_too_large_a_frame_ends_its_own_client_alone(receiver: Logjam, context: zmq.asyncio.Context) -> None:
    other = connected(context, zmq.DEALER, receiver.port)
    await other.send_multipart(asking(event(marked())))
    assert await heard(other) == ACCEPTED
    client = connected(context, zmq.DEALER, receiver.port)
    largest, larger = b"x" * (4 << 20), b"x" * ((4 << 20) + 1)
    await client.send_multipart(asking(event(largest)))
    assert await heard(client) == ACCEPTED  # above LIMITS__EVENT_BYTES: kept, and never sent again
    watch = client.get_monitor_socket()
    await client.send_multipart(asking(event(larger)))
    assert await asyncio.wait_for(watch.recv_multipart(), PATIENCE)
    await silent(client, 0.2)
    await other.send_multipart(asking(event(marked())))
    assert await heard(other) == ACCEPTED


async def test_the_first_frames_of_a_refused_message_are_kept(receiver: Logjam, context: zmq.asyncio.Context) -> None:
    client = connected(context, zmq.DEALER, receiver.port)
    for count in (63, 64, 100_000):
        frames = [b"x", uuid.uuid4().bytes, *[b"x"] * (count - 2)]
        await client.send_multipart([b"", *frames])
        assert await heard(client) == [b"x", b"400 Bad Request"]
        kept_of_it = await kept(receiver.kafka, frames[:64])
        assert ("or more" in kept_of_it["detail"]) is (count >= 64)
    large = [b"x", uuid.uuid4().bytes, *[bytes(2 << 20)] * 3]
    await client.send_multipart([b"", *large])
    assert await heard(client) == [b"x", b"400 Bad Request"]
    parts = [record for record in await quarantined(receiver.kafka) if record["reason"] == "bad_message"]
    assert [*large[:4], b""] in map(split, reassembled(parts).values())


@pytest.mark.long
async def test_answers_to_thousands_of_messages_at_once_are_kept(
    receiver: Logjam, kafka: EmbeddedKafka, context: zmq.asyncio.Context
) -> None:
    """A batch of Kafka answers all of its messages together, faster than ZeroMQ sends."""
    client = connected(context, zmq.DEALER, receiver.port, RCVHWM=0, SNDHWM=0)
    message, count = asking(event(marked())), 8000
    with stopped(kafka.pid):
        for _ in range(count):
            await client.send_multipart(message)
        await asyncio.sleep(1)  # most are read by then
    for _ in range(count):
        assert await heard(client) == ACCEPTED


async def test_who_does_not_read_answers_stops_nobody(receiver: Logjam, context: zmq.asyncio.Context) -> None:
    rude = connected(context, zmq.DEALER, receiver.port, RCVHWM=1, RCVBUF=4096)
    for n in range(5000):
        await rude.send_multipart(asking(event({"n": n})))
    client = connected(context, zmq.DEALER, receiver.port)
    await client.send_multipart(asking(event(marked())))
    assert await heard(client) == ACCEPTED


async def test_a_stop_stores_and_answers_what_was_handed_over(
    topics: KafkaSettings, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    """It stands still when they send. One of them goes on: it is not waited for. One comes too late: it waits for another."""
    mark, count = uuid.uuid4().hex, 100
    with Logjam(topics, tmp_path) as receiver:
        await receiver.start()
        pushes = [connected(context, zmq.PUSH, receiver.pull_port) for _ in range(8)]
        dealers = [connected(context, zmq.DEALER, receiver.port) for _ in range(16)]
        endless = connected(context, zmq.DEALER, receiver.port)

        async def send(name: int, client: zmq.asyncio.Socket, n: int, *, asks: bool) -> None:
            frames = event({"mark": mark, "n": f"{name}.{n}"})[: 4 if name < 16 else 3 + n % 2]
            await client.send_multipart(asking(frames) if asks else frames)

        async def talk() -> None:
            for n in itertools.count():
                await send(-1, endless, n, asks=True)
                await asyncio.sleep(0.01)

        clients = [*enumerate((*dealers, *pushes))]
        for name, client in clients:
            await send(name, client, 0, asks=False)
        await until(lambda: _count(topics, mark, len(clients)), "all are there")
        with stopped(receiver.pid):
            talking = asyncio.create_task(talk())
            for n in range(1, count):
                for name, client in clients:
                    await send(name, client, n, asks=name < 8)
            receiver.signal(signal.SIGTERM)
        await until(lambda: receiver.lines("stopping"), "it stops")
        late = connected(context, zmq.PUSH, receiver.pull_port)
        await late.send_multipart(event({"mark": mark, "n": "late"}))
        for client in dealers[:8]:
            for _ in range(1, count):
                assert await heard(client) == ACCEPTED
        assert await receiver.ended() == 0
        talking.cancel()
        heir = context.socket(zmq.PULL)
        heir.bind(f"tcp://{HOST}:{receiver.pull_port}")
        assert b"late" in (await heard(heir))[2]
    stored = Counter(record.json["n"] for record in await events(topics, mark))
    assert {stored.pop(f"{name}.{n}") for name, _ in clients for n in range(count)} == {1}
    answers = 0
    while await endless.poll(100):
        assert await heard(endless) == ACCEPTED
        answers += 1
    assert 0 < answers <= len(stored)


async def test_a_taken_pull_port_is_named(topics: KafkaSettings, tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server((HOST, 0))) as taken:
        port = taken.getsockname()[1]
        receiver = Logjam(topics, tmp_path, logjam={"pull_port": port})
        receiver.spawn()
        assert await receiver.ended() == EXIT_CONFIG
        assert f"LOGJAM__PULL_PORT {HOST}:{port}" in receiver.log.read_text().splitlines()[-1]


async def test_an_endpoint_that_cannot_be_is_named(topics: KafkaSettings, tmp_path: Path) -> None:
    """A path of more bytes than a socket's address has. Another endpoint is not started yet."""
    path = "ipc:///" + "x" * 200
    receiver = Logjam(topics, tmp_path, logjam={"endpoints": json.dumps({"first": path, "other": f"tcp://{HOST}:1"})})
    receiver.spawn()
    assert await receiver.ended() == EXIT_CONFIG
    assert f"LOGJAM__ENDPOINTS first: {path}" in receiver.log.read_text().splitlines()[-1]
