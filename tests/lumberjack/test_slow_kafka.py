"""Kafka is away for a while: v2 clients stay, v1 clients come again, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import ssl
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson
import pytest
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_common.operations.settings import KafkaSettings
from headrace_lumberjack.wire import V1, compressed, json_frame, pairs_frame, window

from tests.contract.certificates import Authority
from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import events, own_topics
from tests.contract.waiting import PATIENCE, until
from tests.lumberjack.driving import acks
from tests.tiers import sized

pytestmark = pytest.mark.kafka

AWAY = sized(9, 9, 60)
"""Seconds that Kafka stands still: two signs of life."""

AWAY_FROM_V1 = sized(5, 5, 60)
"""The same: long enough for what a v1 client must not hear."""

TIMEOUT = 30.0
"""A v2 client's own: it must hear something within."""

WINDOW = 2048


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> KafkaSettings:
    return own_topics(kafka.bootstrap)


@contextlib.asynccontextmanager
async def running(settings: KafkaSettings, folder: Path, **sections: dict) -> AsyncIterator[Receiver]:
    receiver = Receiver("lumberjack", settings, folder, sections)
    await receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


class Client:
    """One connection; what it hears, and when."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.heard: list[tuple[float, int]] = []
        self.closed = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, receiver: Receiver, context: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection(
            *receiver.address, ssl=context, server_hostname="localhost" if context else None
        )
        client = cls(reader, writer)
        try:
            yield client
        finally:
            client._reading.cancel()
            writer.transport.abort()

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.heard]

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def gives_up(self) -> None:
        """As a client does whose time-out has passed."""
        self._writer.transport.abort()

    async def hears(self, condition: Callable[[list[int]], bool], what: str, seconds: float = PATIENCE) -> None:
        await until(lambda: condition(self.numbers), what, seconds)

    async def first_acknowledgement(self, mark: str) -> int:
        """Sends a window of one event. How much was said until it is acknowledged: signs of life may come before."""
        await self.send(batch(mark, 0, 1))
        await self.hears(lambda heard: 1 in heard, "the first acknowledgement")
        return len(self.heard)

    async def _read(self) -> None:
        data = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while piece := await self._reader.read(4096):
                data += piece
                whole = len(data) // 6 * 6
                self.heard += [(time.monotonic(), number) for _, number in acks(data[:whole])]
                data = data[whole:]
        self.closed = True


def document(mark: str, n: int) -> bytes:
    return orjson.dumps(
        {
            "@timestamp": "2026-11-21T09:30:00.000Z",
            "@metadata": {"beat": "filebeat"},
            "agent": {"id": mark, "ephemeral_id": "e"},
            "log": {"file": {"path": "/var/log/a"}, "offset": n},
            "message": f"line {n}",
            "mark": mark,
            "n": n,
        }
    )


def batch(mark: str, first: int, count: int, level: int = 3) -> bytes:
    frames = b"".join(json_frame(index + 1, document(mark, first + index)) for index in range(count))
    return window(count) + (compressed(frames, level) if level else frames)


@pytest.mark.long
async def test_a_v2_client_stays_and_nothing_is_sent_again(
    kafka: EmbeddedKafka, settings: KafkaSettings, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    async with running(settings, tmp_path) as receiver, Client.connected(receiver) as client:
        first = await client.first_acknowledgement(mark)
        with stopped(kafka.pid):
            began = time.monotonic()
            await client.send(batch(mark, 1, WINDOW) + batch(mark, 1 + WINDOW, WINDOW))
            await asyncio.sleep(AWAY)
            await client.hears(lambda heard: len(heard) > first, "a sign of life", TIMEOUT)
            assert not client.closed
            times = [began, *(at for at, _ in client.heard[first:]), time.monotonic()]
            assert max(after - before for before, after in itertools.pairwise(times)) < TIMEOUT
            assert set(client.numbers[first:]) == {0}, "a sign of life, and no more"
        await client.hears(lambda heard: heard.count(WINDOW) == 2, "both windows are acknowledged")
        assert [number for number in client.numbers[first:] if number >= WINDOW] == [WINDOW, WINDOW]
        assert not client.closed
    records = await events(settings, mark)
    assert [record.json["n"] for record in records] == list(range(1 + 2 * WINDOW))


@pytest.mark.long
async def test_a_client_that_drops_the_acknowledged_part_after_a_cut_loses_nothing(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    """As Beats do after an error: the events that a partial acknowledgement covers are not sent again."""
    mark = uuid.uuid4().hex
    async with running(settings, tmp_path) as receiver:
        async with Client.connected(receiver) as client:
            await client.send(batch(mark, 0, 1000, level=0)[: -len(json_frame(1, document(mark, 999))) * 400])
            await client.hears(lambda heard: bool(heard) and heard[-1] > 0, "a partial acknowledgement")
            done = client.numbers[-1]
            assert 0 < done < 1000
        async with Client.connected(receiver) as client:
            await client.send(batch(mark, done, 1000 - done))
            await client.hears(lambda heard: 1000 - done in heard, "the rest is acknowledged")
    records = await events(settings, mark)
    assert {record.json["n"] for record in records} == set(range(1000))
    assert len({record.id for record in records}) == 1000


async def test_a_service_that_stops_inside_a_window_says_how_far_it_was_stored(
    kafka: EmbeddedKafka, settings: KafkaSettings, tmp_path: Path
) -> None:
    """Its client need not send that part again; the number is said when Kafka has it, not before."""
    mark = uuid.uuid4().hex
    async with running(settings, tmp_path) as receiver:
        async with Client.connected(receiver) as client:
            first = await client.first_acknowledgement(mark)
            with stopped(kafka.pid):
                await client.send(batch(mark, 1, 100, level=0)[: -len(json_frame(1, document(mark, 100)))])
                await until(lambda: receiver.metric("frames_pending"), "it waits for Kafka")
                receiver.signal(signal.SIGTERM)
                await until(lambda: receiver.lines("stopping"), "it stops")
                assert not any(client.numbers[first:])
                assert not client.closed
            await until(lambda: client.closed, "it is closed")
            said = [number for number in client.numbers[first:] if number]
            assert said == sorted(set(said))  # on its way, what Kafka has by then
            assert said[-1:] == [99]
        assert await receiver.ended() == 0
    assert [record.json["n"] for record in await events(settings, mark)] == list(range(100))


def v1_batch(mark: str, first: int, count: int) -> bytes:
    """As logstash-forwarder writes it: numbers go on over windows and connections."""
    frames = b"".join(
        pairs_frame(1 + n, [(b"file", b"/a"), (b"host", b"vm"), (b"line", f'{{"mark":"{mark}","n":{n}}}'.encode())])
        for n in range(first, first + count)
    )
    return window(count, V1) + compressed(frames, 3, V1)


@pytest.mark.long
async def test_a_v1_client_hears_one_acknowledgement_or_comes_again(
    kafka: EmbeddedKafka, settings: KafkaSettings, tmp_path: Path
) -> None:
    """logstash-forwarder takes the first six bytes as success for the whole window, so it may hear nothing before."""
    mark, size = uuid.uuid4().hex, 500
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "server")
    context = authority.context()
    async with running(settings, tmp_path, tls={"cert": cert, "key": key}) as receiver:
        async with Client.connected(receiver, context) as client:
            for index in range(3):
                await client.send(v1_batch(mark, index * size, size))
                await client.hears(lambda heard, index=index: len(heard) == index + 1, "one acknowledgement")
            assert client.numbers == [size, 2 * size, 3 * size]
            with stopped(kafka.pid):
                await client.send(v1_batch(mark, 3 * size, size))
                await asyncio.sleep(AWAY_FROM_V1)
                assert client.numbers == [size, 2 * size, 3 * size]
                assert not client.closed
                client.gives_up()
        async with Client.connected(receiver, context) as client:
            await client.send(v1_batch(mark, 3 * size, size))
            await client.hears(lambda heard: heard == [4 * size], "what is sent again is acknowledged")
        await receiver.shows(5 * size, "events_stored_total")  # what was sent before, too
    records = [record for record in await events(settings) if mark in record.json["line"]]
    copies = Counter(orjson.loads(record.json["line"])["n"] for record in records)
    assert copies == {n: 1 + (n >= 3 * size) for n in range(4 * size)}
    assert len({record.id for record in records}) == 5 * size
    assert all(record.id.startswith("u.") for record in records)
