"""Today's dialect against the service on Kafka: what the pure tests cannot show."""

from __future__ import annotations

import uuid

import pytest
from headrace_common.operations.settings import KafkaSettings
from headrace_segment.wire import messages as said

from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import events
from tests.segment.client import ClosedError, TodayClient, new_writer
from tests.segment.speaking import events as framed
from tests.segment.speaking_today import (
    NO_LEVEL,
    REQUEST,
    append,
    create,
    info,
    read,
    seal,
    setup,
    truncate,
)

pytestmark = pytest.mark.kafka


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


async def test_the_life_of_a_segment(service: Receiver, name: str) -> None:
    writer = new_writer()
    async with await TodayClient.connect(service.address) as client:
        assert await client.ask(info(name)) == said.NoSuchSegment(REQUEST, name)
        assert await client.ask(setup(name, writer)) == said.NoSuchSegment(REQUEST, name)
        assert await client.ask(create(name)) == said.SegmentCreated(REQUEST, name)
        assert await client.ask(create(name)) == said.SegmentAlreadyExists(REQUEST, name)
        assert await client.setup(name, writer) == NO_LEVEL
        assert await client.append(2, b"one", b"two", writer=writer) == said.DataAppended(
            writer, 2, NO_LEVEL, REQUEST, 22
        )
        assert await client.append(3, b"three", writer=writer) == said.DataAppended(writer, 3, 2, REQUEST, 35)
        assert await client.ask(truncate(11, name)) == said.SegmentTruncated(REQUEST, name)
        assert await client.ask(truncate(99, name)) == said.SegmentIsTruncated(REQUEST, name, 11, "", 99)
        assert await client.ask(read(name, 5)) == said.SegmentIsTruncated(REQUEST, name, 11, "", 5)
        found = await client.ask(read(name, 11))
        assert found == said.SegmentRead(name, 11, False, False, framed(b"two", b"three"), REQUEST)
        assert await client.ask(seal(name)) == said.SegmentSealed(REQUEST, name)
        assert await client.ask(append(4, b"four", writer=writer)) == said.SegmentIsSealed(REQUEST, name, "", 4)
        assert await client.ask(read(name, 35)) == said.SegmentRead(name, 35, False, True, b"", REQUEST)
        found = await client.ask(info(name))
        assert (found.exists, found.sealed, found.length, found.start) == (True, True, 35, 11)
    there = {(record["ce_subject"], record.value) for record in await events(service.kafka)}
    assert {(name, b"one"), (name, b"two"), (name, b"three")} <= there


async def test_readers_at_the_end_of_many_segments_over_one_connection(service: Receiver, name: str) -> None:
    """Each hears of its own segment at once, whatever the others wait for."""
    writer = new_writer()
    segments = [f"{name}/{number}" for number in range(5)]
    async with (
        await TodayClient.connect(service.address) as client,
        await TodayClient.connect(service.address) as other,
    ):
        for segment in segments:
            await other.ask(create(segment))
            client.say(read(segment))
        over: set[str] = set()
        for segment in reversed(segments):
            await other.setup(segment, writer)
            await other.append(1, segment.encode(), writer=writer)
            while segment not in over:
                heard = await client.reply()
                if heard.data:
                    assert heard == said.SegmentRead(segment, 0, False, False, framed(segment.encode()), REQUEST)
                    break
                over.add(heard.segment)  # its time at the end


async def test_another_connection_takes_the_writer_over(own_segments: KafkaSettings, start: Receivers) -> None:
    service, writer = await start(own_segments), new_writer()
    async with (
        await TodayClient.connect(service.address) as first,
        await TodayClient.connect(service.address) as second,
    ):
        await first.ask(create("a"))
        await first.setup("a", writer)
        await first.append(1, b"x", writer=writer)
        assert await second.setup("a", writer) == 1
        with pytest.raises(ClosedError):
            await first.reply()
        await second.append(2, b"y", writer=writer)
        assert await second.content("a") == framed(b"x", b"y")
