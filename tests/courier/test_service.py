"""The receiver on a real Kafka, with a client that follows the rules of log-courier's."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_courier.client import Acknowledged, CourierReplies
from headrace_courier.wire import HEADER, PING, PONG, acknowledgement, evnt, jdat

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import events as on_topic
from tests.contract.topic import now, own_topics
from tests.contract.waiting import PATIENCE
from tests.courier.driving import HELO, numbered
from tests.courier.test_vectors import by_the_rule

pytestmark = pytest.mark.kafka

SMALL_BATCH = 16 * 1024


def marked(count: int, mark: str, **more: Any) -> list[bytes]:
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


Payloads = dict[bytes, list[bytes]]
"""Events by nonce."""


async def shipped(
    address: tuple[str, int], payloads: Payloads, enough: Callable[[Counter[bytes]], bool]
) -> Counter[bytes]:
    """Sends payloads, and looks at each ACKN by itself until it has heard enough; then it is gone. Returns how many events of
    each are acknowledged.
    """
    reader, writer = await asyncio.open_connection(*address)
    writer.write(HELO)
    for number, (nonce, events) in enumerate(payloads.items()):
        writer.write((evnt if number % 2 else jdat)(nonce, events))
    replies, counts = CourierReplies(), Counter[bytes]()
    async with asyncio.timeout(PATIENCE):
        while not enough(counts):
            data = await reader.read(len(acknowledgement(bytes(16), 0)))
            assert data, "it was closed"
            counts |= {each.nonce: each.count for each in replies.receive(data) if isinstance(each, Acknowledged)}
    writer.transport.abort()
    return counts


async def test_the_receiver_is_killed_after_a_partial_acknowledgement(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """What it has acknowledged is stored; the client sends the rest to another one, with its nonce."""
    topics = own_topics(kafka.bootstrap)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    sections = {"kafka": {"batch_bytes": SMALL_BATCH}}
    receiver, other = (Receiver("courier", topics, tmp_path / name, sections) for name in ("first", "second"))
    mark = uuid.uuid4().hex
    payloads = {bytes([n]) * 16: marked(3000, mark, parcel=n) for n in range(4)}
    await receiver.start()
    try:
        # it is gone before the receiver: that may store all the rest meanwhile, and say so
        counts = await shipped(
            receiver.address, payloads, lambda counts: any(0 < each < 3000 for each in counts.values())
        )
        receiver.kill()
        await other.start()
        rest = {nonce: events[counts[nonce] :] for nonce, events in payloads.items() if counts[nonce] < len(events)}
        await shipped(
            other.address, rest, lambda counts: counts == {nonce: len(events) for nonce, events in rest.items()}
        )
    finally:
        receiver.stop()
        other.stop()
    expected = {
        by_the_rule(nonce, len(events) - n, event)
        for nonce, events in payloads.items()
        for n, event in enumerate(events)
    }
    assert {record.id for record in await on_topic(topics, mark)} == expected


async def test_complaints_are_counted(receiver: Receiver) -> None:
    before = await receiver.metric("messages_ignored_total", kind="complaint")
    reader, writer = await asyncio.open_connection(*receiver.address)
    writer.write(HELO + HEADER.pack(b"????", 0) + PING)
    await asyncio.wait_for(reader.readuntil(PONG), PATIENCE)
    writer.close()
    assert await receiver.metric("messages_ignored_total", kind="complaint") == before + 1
