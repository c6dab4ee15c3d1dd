"""Kafka is away for a while: v2 clients stay, and nothing is lost. Of v1 clients: test_waiting."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings
from headrace_common.session.client import Answer
from headrace_lumberjack.wire import json_frame

from tests.contract.dialect import ContractClient
from tests.contract.embedded import EmbeddedKafka
from tests.contract.lumberjack import LumberjackConversation, LumberjackDialect
from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import events, own_topics
from tests.contract.waiting import PATIENCE, until
from tests.tiers import sized

pytestmark = pytest.mark.kafka

AWAY = sized(9, 9, 60)
"""Seconds that Kafka stands still: two signs of life."""

TIMEOUT = 30.0
"""A v2 client's own: it must hear something within."""

WINDOW = 2048


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> KafkaSettings:
    return own_topics(kafka.bootstrap)


@contextlib.asynccontextmanager
async def running(settings: KafkaSettings, folder: Path) -> AsyncIterator[Receiver]:
    with Receiver("lumberjack", settings, folder) as receiver:
        await receiver.start()
        yield receiver


class Numbers(LumberjackConversation):
    """Writes down each number that it hears, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[float, int]] = []

    def receive(self, data: bytes) -> list[int]:
        found = self.client.receive(data)
        self.heard += [(time.monotonic(), each.count if isinstance(each, Answer) else 0) for each in found]
        return []


class Client(ContractClient):
    conversation: Numbers

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.conversation.heard]

    def documents(self, mark: str, first: int, count: int) -> list[bytes]:
        return [self.conversation.client.document({"mark": mark, "n": n}) for n in range(first, first + count)]

    async def sends(self, documents: list[bytes], form: str = "", without: int = 0) -> None:
        """A window; `without`: bytes that are missing at its end."""
        data = self.conversation.client.payload(documents, form)
        await self.write(data[: len(data) - without])

    async def hears(self, condition: Callable[[list[int]], bool], seconds: float = PATIENCE) -> None:
        await self.waits_for(lambda: condition(self.numbers), seconds)
        assert condition(self.numbers), self.numbers

    async def first_acknowledgement(self, mark: str) -> int:
        """Sends a window of one event. How much was said until it is acknowledged: signs of life may come before."""
        await self.sends(self.documents(mark, 0, 1))
        await self.hears(lambda heard: 1 in heard)
        return len(self.numbers)


async def connected(receiver: Receiver) -> Client:
    return await Client.connect(LumberjackDialect(), receiver.address, conversation=Numbers())


@pytest.mark.long
async def test_a_v2_client_stays_and_nothing_is_sent_again(
    kafka: EmbeddedKafka, settings: KafkaSettings, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    async with running(settings, tmp_path) as receiver, await connected(receiver) as client:
        first = await client.first_acknowledgement(mark)
        with stopped(kafka.pid):
            began = time.monotonic()
            for number in range(2):
                await client.sends(client.documents(mark, 1 + number * WINDOW, WINDOW))
            await asyncio.sleep(AWAY)
            await client.hears(lambda heard: len(heard) > first, TIMEOUT)
            assert not client.closed
            times = [began, *(at for at, _ in client.conversation.heard[first:]), time.monotonic()]
            assert max(after - before for before, after in itertools.pairwise(times)) < TIMEOUT
            assert set(client.numbers[first:]) == {0}, "a sign of life, and no more"
        await client.hears(lambda heard: heard.count(WINDOW) == 2)
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
        async with await connected(receiver) as client:
            documents = client.documents(mark, 0, 1000)
            await client.sends(documents, "plain", without=400 * len(json_frame(1, documents[-1])))
            await client.hears(lambda heard: bool(heard) and heard[-1] > 0)
            done = client.numbers[-1]
            assert 0 < done < 1000
        async with await connected(receiver) as client:
            await client.sends(documents[done:])
            await client.hears(lambda heard: 1000 - done in heard)
    records = await events(settings, mark)
    assert {record.json["n"] for record in records} == set(range(1000))
    assert len({record.id for record in records}) == 1000


async def test_a_service_that_stops_inside_a_window_says_how_far_it_was_stored(
    kafka: EmbeddedKafka, settings: KafkaSettings, tmp_path: Path
) -> None:
    """Its client need not send that part again; the number is said when Kafka has it, not before."""
    mark = uuid.uuid4().hex
    async with running(settings, tmp_path) as receiver:
        async with await connected(receiver) as client:
            first = await client.first_acknowledgement(mark)
            with stopped(kafka.pid):
                documents = client.documents(mark, 1, 100)
                await client.sends(documents, "plain", without=len(json_frame(1, documents[-1])))
                await until(lambda: receiver.metric("frames_pending"), "it waits for Kafka")
                receiver.signal(signal.SIGTERM)
                await until(lambda: receiver.lines("stopping"), "it stops")
                assert not any(client.numbers[first:])
                assert not client.closed
            await client.sees_end()
            said = [number for number in client.numbers[first:] if number]
            assert said == sorted(set(said))  # on its way, what Kafka has by then
            assert said[-1:] == [99]
        assert await receiver.ended() == 0
    assert [record.json["n"] for record in await events(settings, mark)] == list(range(100))
