"""The receiver on a real Kafka, with a client that follows the rules of log-courier's."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import struct
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_common.operations.settings import MIB
from headrace_courier.wire import HEADER, PING

from tests.contract.receiver import Receiver
from tests.contract.topic import events as on_topic
from tests.contract.topic import now, own_topics
from tests.contract.waiting import until
from tests.courier.client import CourierClient, parcel
from tests.courier.driving import numbered
from tests.courier.test_limits import bomb
from tests.tiers import sized

pytestmark = pytest.mark.kafka

SMALL_BATCH = 16 * 1024
HISTORIES = sized(10, 50, 200)
"""Of each client, cut once at least; half as many cuts must fall into a payload that is acknowledged in part."""


def event_id(nonce: bytes, left: int, event: bytes) -> str:
    fields = (b"courier", nonce, struct.pack(">I", left), event)
    packed = b"".join(struct.pack(">I", len(each)) + each for each in fields)
    return f"d.{hashlib.blake2b(packed, digest_size=16).hexdigest()}"


def expected_ids(items: list[tuple[bytes, list[bytes]]]) -> set[str]:
    """Of payloads as they were sent first."""
    return {
        event_id(nonce, len(events) - index, event) for nonce, events in items for index, event in enumerate(events)
    }


def marked(count: int, mark: str, **more: object) -> list[bytes]:
    return numbered(count, mark=mark, message="m" * 120, **more)


@pytest.fixture(scope="module")
def receiver(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Small batches: a payload is stored in several, and so acknowledged in parts."""
    topics = own_topics(kafka.bootstrap)
    sections = {"kafka": {"batch_bytes": SMALL_BATCH}}
    running = Receiver("courier", topics, tmp_path_factory.mktemp("courier"), sections)
    running.spawn()
    now(running.listens())
    yield running
    running.stop()


@pytest.fixture
async def client(receiver: Receiver) -> AsyncIterator[CourierClient]:
    made = CourierClient(receiver.address)
    yield made
    if not made.ended:
        await made.close()


@pytest.mark.long
async def test_a_hundred_thousand_events_in_twenty_payloads_in_flight(
    receiver: Receiver, client: CourierClient
) -> None:
    mark = uuid.uuid4().hex
    await client.connect()
    items = [parcel(marked(5000, mark, parcel=n), streamed=bool(n % 2)) for n in range(20)]
    sent = [(item.nonce, item.events) for item in items]
    ignored = await receiver.metric("messages_ignored_total", kind="unknown")
    for number, item in enumerate(items):
        await client.send(item)
        await client.write(PING)
        await client.write(HEADER.pack(b"NEWS", number) + b"n" * number)
    await client.all_acknowledged()
    await client.until(lambda: client.pongs == client.complaints == 20)
    assert await receiver.metric("messages_ignored_total", kind="unknown") == ignored + 20
    last: dict[bytes, int] = {}
    for each in client.heard:  # that they never fall was checked as each arrived
        last[each.nonce] = each.count
    assert last == dict.fromkeys((item.nonce for item in items), 5000)
    assert len(client.heard) > 200  # in parts, as they were stored
    records = await on_topic(receiver.kafka, mark)
    assert len(records) == 100_000
    assert {record.id for record in records} == expected_ids(sent)
    assert [record.json["n"] for record in records] == [n for _ in range(20) for n in range(5000)]


async def test_connections_cut_after_partial_acknowledgements(receiver: Receiver) -> None:
    """In each history a client of its own; what it sends again lacks what was acknowledged."""
    mark = uuid.uuid4().hex
    sent: list[tuple[bytes, list[bytes]]] = []
    cuts: Counter[str] = Counter()
    for seed in itertools.count():
        if seed >= HISTORIES and cuts["partly"] >= HISTORIES // 2:  # where a cut falls, the machine decides
            break
        sent += await _history(receiver, random.Random(seed), mark, seed, cuts)
    records = await on_topic(receiver.kafka, mark)
    ids = {record.id for record in records}
    assert ids == expected_ids(sent)
    assert len(ids) == sum(len(events) for _, events in sent)
    by_id = {record.id: record.value for record in records}
    for nonce, events in sent:
        for index, event in enumerate(events):
            assert by_id[event_id(nonce, len(events) - index, event)] == event


async def _history(
    receiver: Receiver, chance: random.Random, mark: str, seed: int, cuts: Counter[str]
) -> list[tuple[bytes, list[bytes]]]:
    client = CourierClient(receiver.address)
    await client.connect()
    items = [
        parcel(marked(chance.randint(1, 700), mark, history=seed, parcel=n), chance.random() < 0.5)
        for n in range(chance.randint(1, 4))
    ]
    sent = [(item.nonce, item.events) for item in items]
    for item in items:
        await client.send(item)
        if chance.random() < 0.3:
            await client.write(chance.choice([PING, HEADER.pack(b"NEWS", 2) + b"hi"]))
    for _ in range(chance.randint(1, 3)):
        told = len(client.heard) + chance.randint(1, 6)
        await client.until(lambda told=told: len(client.heard) >= told or not client.pending)  # type: ignore[misc]
        if not client.pending:
            break
        cuts["partly" if any(item.partly for item in client.pending.values()) else "between"] += 1
        client.kill()
        await client.connect()
        await client.send_again()
    await client.all_acknowledged()
    await client.close()
    return sent


async def test_the_receiver_is_killed_after_a_partial_acknowledgement(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = own_topics(kafka.bootstrap)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    sections = {"kafka": {"batch_bytes": SMALL_BATCH}}
    receiver, other = (Receiver("courier", topics, tmp_path / name, sections) for name in ("first", "second"))
    await receiver.start()
    try:
        client = CourierClient(receiver.address)
        await client.connect()
        mark = uuid.uuid4().hex
        items = [parcel(marked(3000, mark, parcel=n), streamed=bool(n % 2)) for n in range(4)]
        sent = [(item.nonce, item.events) for item in items]
        for item in items:
            await client.send(item)
        assert await client.until(lambda: any(item.partly for item in client.pending.values()))
        client.kill()  # before the receiver: it may store all the rest meanwhile, and say so
        receiver.kill()
        await other.start()
        client.address = other.address
        await client.connect()
        await client.send_again()
        await client.all_acknowledged()
        await client.close()
    finally:
        receiver.stop()
        other.stop()
    records = await on_topic(topics, mark)
    assert {record.id for record in records} == expected_ids(sent)


async def test_bombs_take_no_more_than_the_limits_and_disturb_nobody(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    budget, inflated, bombs = 32 * MIB, 8 * MIB, 40
    limits = {
        "frame_bytes": 1 * MIB,
        "inflated_bytes": inflated,
        "connection_budget": 12 * MIB,
        "process_budget": budget,
    }
    receiver = Receiver("courier", own_topics(kafka.bootstrap), tmp_path, {"limits": limits})
    await receiver.start()
    try:
        other = CourierClient(receiver.address)
        await other.connect()
        await other.send(parcel(numbered(50)))
        await other.all_acknowledged()
        before = _resident(receiver)
        writers = []
        for n in range(bombs):
            _, writer = await asyncio.open_connection(*receiver.address)
            kind = b"EVNT" if n % 2 else b"JDAT"
            # every fourth ends: more than a thousandfold, or too much; the others are cut a byte before their end
            whole = bomb(inflated if n % 8 else 2 * inflated, kind)
            writer.write(whole if n % 4 == 0 else whole[:-1])
            writers.append(writer)
        highest = 0
        for n in range(40):
            await other.send(parcel(numbered(50, parcel=n)))
            await other.all_acknowledged()
            highest = max(highest, _resident(receiver))

        async def refused() -> bool:
            return await receiver.metric("limit_hits_total") >= bombs // 4

        await until(refused, "those that end are refused")
        assert highest - before < budget + 32 * MIB
        for writer in writers:
            writer.close()
        await other.close()
    finally:
        receiver.stop()


def _resident(receiver: Receiver) -> int:
    return psutil.Process(receiver.pid).memory_info().rss


async def test_complaints_are_counted(receiver: Receiver) -> None:
    before = await receiver.metric("messages_ignored_total", kind="complaint")
    client = CourierClient(receiver.address)
    await client.connect()
    await client.write(HEADER.pack(b"????", 0) + PING)
    await client.until(lambda: client.pongs == 1)
    assert await receiver.metric("messages_ignored_total", kind="complaint") == before + 1
    await client.close()


def test_numbers_are_different() -> None:
    """The histories' events differ from each other: else ids that are equal would prove nothing."""
    made = [marked(3, "m", history=h, parcel=p) for h, p in itertools.product(range(2), range(2))]
    assert len({event for events in made for event in events}) == 12
