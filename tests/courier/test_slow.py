"""Slow Kafka and slow clients, in real time: all three at once, in a minute and some."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import string
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_common.operations.settings import MIB
from headrace_courier.wire import evnt

from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import Stored, own_topics
from tests.contract.topic import events as on_topic
from tests.contract.waiting import until
from tests.courier.client import CourierClient, Heard, longest_silence, parcel
from tests.courier.driving import numbered
from tests.courier.test_service import expected_ids

pytestmark = [pytest.mark.kafka, pytest.mark.long]

STOPPED = 60.0
CLIENT_TIMEOUT = 15.0
SIZE = 900_000
FRAME_TIME = 20.0
"""Of the receiver that has a client at 1 kB/s: to save time. The other has the default."""


@dataclass
class Minute:
    """What the three clients saw."""

    silence: float = 0.0
    stopped_client: CourierClient = None  # type: ignore[assignment]
    sent: list[tuple[bytes, list[bytes]]] = field(default_factory=list)
    after_stop: list[Stored] = field(default_factory=list)
    while_stopped: list[Heard] = field(default_factory=list)
    last_before: dict[bytes, int] = field(default_factory=dict)

    slow_client: CourierClient = None  # type: ignore[assignment]
    slow_silence: float = 0.0
    slow_took: float = 0.0
    slow_count: int = 0
    slow_heard: list[int] = field(default_factory=list)
    slow_stored: int = 0
    grown: int = 0

    slowest_took: float = 0.0
    slowest_stored: int = 0
    slowest_problem: str = ""
    slowest_silence: float = 0.0
    slowest_counts: set[int] = field(default_factory=set)


def noise(chance: random.Random, mark: str) -> list[bytes]:
    """Events that compress to about `SIZE` bytes."""
    letters = string.ascii_letters + string.digits
    return [numbered(1, n, mark=mark, noise="".join(chance.choices(letters, k=900)))[0] for n in range(1300)]


async def _stop_kafka(folder: Path, seen: Minute) -> None:
    broker = EmbeddedKafka(folder / "stopped")
    broker.start()
    try:
        topics = own_topics(broker.bootstrap)
        receiver = Receiver("courier", topics, folder, {"kafka": {"batch_bytes": 16 * 1024}})
        await receiver.start()
        try:
            await _through_the_silence(broker, receiver, seen)
        finally:
            receiver.stop()
        seen.after_stop = await on_topic(topics)
    finally:
        broker.stop()


def _repeated(heard: list[Heard]) -> bool:
    last, before = heard[-1], heard[-2]
    return (last.nonce, last.count) == (before.nonce, before.count)


async def _through_the_silence(broker: EmbeddedKafka, receiver: Receiver, seen: Minute) -> None:
    client = seen.stopped_client = CourierClient(receiver.address, timeout=CLIENT_TIMEOUT)
    await client.connect()
    while not seen.last_before:  # a machine may take so long to stop Kafka that all is stored: then once more
        items = [parcel(numbered(4000, parcel=n, message="m" * 200), streamed=bool(n % 2)) for n in range(6)]
        seen.sent += [(item.nonce, item.events) for item in items]
        for item in items:
            await client.send(item)
        # In the middle of it: something was acknowledged in part, most of it was not.
        assert await client.until(lambda: any(item.partly for item in client.pending.values()) or not client.pending)
        with stopped(broker.pid):
            await _hears_signs_of_life(client, seen)
    await client.all_acknowledged()
    await client.close()


async def _hears_signs_of_life(client: CourierClient, seen: Minute) -> None:
    """For a minute, in which Kafka stands still; unless nothing is pending."""
    began, told = time.monotonic(), len(client.heard)
    # What had been stored before may still be told. What is said twice is a sign of life: nothing is left to tell.
    await client.until(lambda: not client.pending or (len(client.heard) > told + 1 and _repeated(client.heard)))
    if not client.pending:
        return
    seen.last_before = {each.nonce: each.count for each in client.heard}
    mark = len(client.heard)
    await asyncio.sleep(began + STOPPED - time.monotonic())
    seen.while_stopped = client.heard[mark:]
    seen.silence = longest_silence(client.heard, began, time.monotonic())


async def _dribble(client: CourierClient, data: bytes, rate: int) -> float:
    """Writes at `rate` bytes a second, ten times a second, as long as the server listens; how long that took."""
    began = time.monotonic()
    sent = 0
    while sent < len(data) and not client.ended:
        due = int((time.monotonic() - began + 0.1) * rate)
        if due > sent:
            try:
                await client.write(data[sent:due])
            except ConnectionError:
                break
            sent = due
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _slow(kafka: EmbeddedKafka, folder: Path, seen: Minute) -> None:
    receiver = Receiver("courier", own_topics(kafka.bootstrap), folder)
    await receiver.start()
    try:
        client = seen.slow_client = CourierClient(receiver.address, timeout=CLIENT_TIMEOUT)
        await client.connect()
        item = parcel(noise(random.Random(1), uuid.uuid4().hex), streamed=True)
        seen.slow_count = len(item.events)
        data = evnt(item.nonce, item.events)
        assert 0.85 * SIZE < len(data) < 1.15 * SIZE
        client.pending[item.nonce] = item
        before = psutil.Process(receiver.pid).memory_info().rss
        began = time.monotonic()
        seen.slow_took = await _dribble(client, data, 20_000)
        seen.grown = psutil.Process(receiver.pid).memory_info().rss - before
        await client.all_acknowledged()
        seen.slow_silence = longest_silence(client.heard, began, time.monotonic())
        seen.slow_heard = [each.count for each in client.heard]
        await client.close()
        seen.slow_stored = len(await on_topic(receiver.kafka))
    finally:
        receiver.stop()


async def _too_slow(kafka: EmbeddedKafka, folder: Path, seen: Minute) -> None:
    receiver = Receiver("courier", own_topics(kafka.bootstrap), folder, {"limits": {"frame_time": FRAME_TIME}})
    await receiver.start()
    try:
        client = CourierClient(receiver.address, timeout=CLIENT_TIMEOUT)
        await client.connect()
        item = parcel(noise(random.Random(2), uuid.uuid4().hex), streamed=True)
        client.pending[item.nonce] = item
        began = time.monotonic()
        seen.slowest_took = await _dribble(client, evnt(item.nonce, item.events), 1_000)
        seen.slowest_silence = longest_silence(client.heard, began, began + seen.slowest_took)
        seen.slowest_counts = {each.count for each in client.heard}
        (line,) = await until(lambda: receiver.lines("protocol error"), "it is told of")
        seen.slowest_problem = line["limit"]
        seen.slowest_stored = len(await on_topic(receiver.kafka))
        client.kill()
    finally:
        receiver.stop()


@pytest.fixture(scope="module")
def minute(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Minute:
    """Each with a receiver, and so a thread, of its own: what starts a receiver must live as long as it."""
    seen = Minute()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        running = [
            pool.submit(asyncio.run, work)
            for work in (
                _stop_kafka(tmp_path_factory.mktemp("stop"), seen),
                _slow(kafka, tmp_path_factory.mktemp("slow"), seen),
                _too_slow(kafka, tmp_path_factory.mktemp("slowest"), seen),
            )
        ]
        for each in running:
            each.result()
    return seen


def test_a_client_stays_while_kafka_stands_still_for_a_minute(minute: Minute) -> None:
    client = minute.stopped_client
    assert (client.connections, client.timed_out, client.ended) == (1, 0, True)
    assert minute.silence < CLIENT_TIMEOUT
    assert len(minute.while_stopped) >= STOPPED / CLIENT_TIMEOUT
    # Only what was stored before is said again, for the oldest payload alone.
    (oldest,) = {each.nonce for each in minute.while_stopped}
    assert {each.count for each in minute.while_stopped} == {minute.last_before[oldest]}
    assert len(client.finished) == len(minute.sent)
    assert {record.id for record in minute.after_stop} == expected_ids(minute.sent)


def test_a_payload_at_20_kb_a_second_completes(minute: Minute) -> None:
    assert minute.slow_client.timed_out == 0
    assert minute.slow_took > 0.85 * SIZE / 20_000
    assert minute.slow_silence < CLIENT_TIMEOUT
    assert minute.slow_heard[-1] == minute.slow_count == minute.slow_stored
    assert 0 in minute.slow_heard
    assert minute.grown < 16 * MIB


def test_a_payload_at_1_kb_a_second_is_cut_and_nothing_of_it_is_stored(minute: Minute) -> None:
    assert minute.slowest_problem == "LIMITS__FRAME_TIME"
    assert minute.slowest_took >= FRAME_TIME
    assert minute.slowest_stored == 0
    assert minute.slowest_silence < CLIENT_TIMEOUT
    assert minute.slowest_counts == {0}
