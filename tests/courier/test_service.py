"""The receiver on a real Kafka, with a client that follows the rules of log-courier's."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from headrace_common.operations.settings import MIB
from headrace_courier.wire import HEADER, PING

from tests.contract.courier import CourierDialect
from tests.contract.dialect import ContractClient, values
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import events as on_topic
from tests.contract.topic import now, own_topics
from tests.contract.waiting import until
from tests.courier.client import Endpoint, Heard
from tests.courier.driving import numbered
from tests.courier.test_ids import by_the_rule
from tests.courier.test_limits import bomb
from tests.tiers import sized

pytestmark = pytest.mark.kafka

SMALL_BATCH = 16 * 1024
HISTORIES = sized(10, 50, 200)
"""Of each client, cut once at least; half as many cuts must fall into a payload that is acknowledged in part."""
FORMS = ("JDAT", "EVNT")
STOPPED = sized(20, 20, 60)
CLIENT_TIMEOUT = 15.0


def expected_ids(items: list[tuple[bytes, list[bytes]]]) -> list[str]:
    """Of payloads as they were sent first, in order."""
    return [by_the_rule(nonce, len(events) - n, event) for nonce, events in items for n, event in enumerate(events)]


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


async def test_connections_cut_after_partial_acknowledgements(receiver: Receiver) -> None:
    """In each history a client of its own; what it sends again lacks what was acknowledged."""
    mark = uuid.uuid4().hex
    sent: list[tuple[bytes, list[bytes]]] = []
    cuts: Counter[str] = Counter()
    for seed in itertools.count():
        if seed >= HISTORIES and cuts["partly"] >= HISTORIES // 2:  # where a cut falls, the machine decides
            break
        sent += await _history(receiver, random.Random(seed), mark, seed, cuts)
    events = [event for _, events in sent for event in events]
    values = {record.id: record.value for record in await on_topic(receiver.kafka, mark)}
    assert values == dict(zip(expected_ids(sent), events, strict=True))
    assert len(values) == len(events)


async def _history(
    receiver: Receiver, chance: random.Random, mark: str, seed: int, cuts: Counter[str]
) -> list[tuple[bytes, list[bytes]]]:
    client = await Endpoint.joined(receiver.address)
    said, sent = client.conversation, []
    for number in range(chance.randint(1, 4)):
        events = marked(chance.randint(1, 700), mark, history=seed, parcel=number)
        item = await client.ships(events, chance.choice(FORMS))
        sent.append((item.nonce, item.events))
        if chance.random() < 0.3:
            await client.write(chance.choice([PING, HEADER.pack(b"NEWS", 2) + b"hi"]))
    for _ in range(chance.randint(1, 3)):
        told = len(said.heard) + chance.randint(1, 6)
        await client.until(lambda told=told: len(said.heard) >= told or not said.pending)
        if not said.pending:
            break
        cuts["partly" if any(item.partly for item in said.pending.values()) else "between"] += 1
        client.kill()
        client = await Endpoint.joined(receiver.address, said)
    async with client:
        await client.all_acknowledged()
    return sent


async def test_the_receiver_is_killed_after_a_partial_acknowledgement(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = own_topics(kafka.bootstrap)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    sections = {"kafka": {"batch_bytes": SMALL_BATCH}}
    receiver, other = (Receiver("courier", topics, tmp_path / name, sections) for name in ("first", "second"))
    mark = uuid.uuid4().hex
    await receiver.start()
    try:
        client = await Endpoint.joined(receiver.address)
        items = [await client.ships(marked(3000, mark, parcel=n), FORMS[n % 2]) for n in range(4)]
        sent = [(item.nonce, item.events) for item in items]
        assert await client.until(lambda: any(item.partly for item in items))
        client.kill()  # before the receiver: it may store all the rest meanwhile, and say so
        receiver.kill()
        await other.start()
        async with await Endpoint.joined(other.address, client.conversation) as again:
            await again.all_acknowledged()
    finally:
        receiver.stop()
        other.stop()
    records = await on_topic(topics, mark)
    assert {record.id for record in records} == set(expected_ids(sent))


async def test_bombs_take_no_more_than_the_limits_and_disturb_nobody(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    budget, inflated, bombs = 32 * MIB, 8 * MIB, 40
    limits = {
        "frame_bytes": 1 * MIB,
        "inflated_bytes": inflated,
        "connection_budget": 12 * MIB,
        "process_budget": budget,
    }
    with Receiver("courier", own_topics(kafka.bootstrap), tmp_path, {"limits": limits}) as receiver:
        await receiver.start()
        other = await ContractClient.connect(CourierDialect(), receiver.address)
        await other.receives(await other.send(values(50)))
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
        for _ in range(40):
            await other.receives(await other.send(values(50)))
            highest = max(highest, _resident(receiver))

        async def refused() -> bool:
            return await receiver.metric("limit_hits_total") >= bombs // 4

        await until(refused, "those that end are refused")
        assert highest - before < budget + 32 * MIB
        for writer in writers:
            writer.close()
        await other.__aexit__()


def _resident(receiver: Receiver) -> int:
    return psutil.Process(receiver.pid).memory_info().rss


@pytest.mark.long
async def test_a_client_stays_while_kafka_stands_still(receiver: Receiver, kafka: EmbeddedKafka) -> None:
    """What was said before is said again, for the oldest payload alone: a client of log-courier's time-out stays."""
    client, sent = await Endpoint.joined(receiver.address), []
    said = client.conversation
    mark = uuid.uuid4().hex
    while True:  # a machine may take so long to stop Kafka that all is stored: then once more
        for number in range(6):
            item = await client.ships(marked(4000, mark, parcel=len(sent)), FORMS[number % 2])
            sent.append((item.nonce, item.events))
        await client.until(lambda: any(item.partly for item in said.pending.values()) or not said.pending)
        with stopped(kafka.pid):
            # What had been stored before may still be told. What is said twice is a sign of life: nothing is left to tell.
            told = len(said.heard) + 1
            await client.until(lambda told=told: not said.pending or (len(said.heard) > told and _repeated(said.heard)))
            if said.pending:
                before, began = len(said.heard), time.monotonic()
                last = said.heard[-1]
                await asyncio.sleep(STOPPED)
                meanwhile, until_then = said.heard[before:], time.monotonic()
                break
    assert {(each.frame, each.count) for each in meanwhile} == {(last.frame, last.count)}
    times = [began, *(each.at for each in meanwhile), until_then]
    assert max(after - before for before, after in itertools.pairwise(times)) < CLIENT_TIMEOUT
    async with client:
        await client.all_acknowledged()
    assert {record.id for record in await on_topic(receiver.kafka, mark)} == set(expected_ids(sent))


def _repeated(heard: list[Heard]) -> bool:
    return (heard[-1].frame, heard[-1].count) == (heard[-2].frame, heard[-2].count)


async def test_complaints_are_counted(receiver: Receiver) -> None:
    before = await receiver.metric("messages_ignored_total", kind="complaint")
    async with await Endpoint.joined(receiver.address) as client:
        await client.write(HEADER.pack(b"????", 0) + PING)
        assert await client.until(lambda: client.conversation.remarks["PONG"] == 1)
    assert await receiver.metric("messages_ignored_total", kind="complaint") == before + 1
