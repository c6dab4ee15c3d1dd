"""The service on Kafka: what its clients hear, and what it does when something fails."""

from __future__ import annotations

import pytest
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition
from headrace_common.kafka.record_batch import builder_of
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.encoding import encode
from headrace_segment.wire.original import SegmentIsTruncated

from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import produce
from tests.contract.waiting import until
from tests.segment.client import Client, ClosedError, log_start, new_writer, restart
from tests.segment.speaking import events as framed
from tests.segment.speaking import read
from tests.system.cluster import admin, altered

pytestmark = pytest.mark.kafka

HELLO, WORLD = framed(b"hello"), framed(b"world!")


@pytest.mark.long
async def test_checkpoints_are_stored_and_read_and_the_log_is_cut(
    own_segments: KafkaSettings, start: Receivers
) -> None:
    service = await start(own_segments, segment={"checkpoint_records": 10, "retention_time": 1})
    writer, level = new_writer(), 0
    data = framed(bytes(20_000))
    async with await Client.connect(service.address) as client:
        await client.setup("a", writer)
        for _ in range(48):
            level = await client.append(level, data, writer)
        await until(lambda: _begins(client, "a"), "the segment's beginning is let go")
        await until(lambda: log_start(own_segments), "the head of the log is cut")
        await client.append(level, data, writer)
    service.kill()
    await restart(service)
    async with await Client.connect(service.address) as client:
        assert await client.setup("a", writer) == 49 * len(data)
        start_at = await _begins(client, "a")
        assert await client.content("a", start_at) == (49 * data)[start_at:]


async def _begins(client: Client, segment: str) -> int:
    """Where the segment begins now."""
    answer = await client.ask(read(segment, 0, 8))
    return answer.start if isinstance(answer, SegmentIsTruncated) else 0


async def test_it_is_not_ready_on_topics_that_would_lose_segments(
    own_segments: KafkaSettings, start: Receivers
) -> None:
    service = start.make(own_segments)
    async with altered(own_segments, own_segments.segments_topic, retention_ms=60_000):
        await restart(service, "segments not served")
        status, text = await service.get("/readyz")
        assert status == 503
        assert "retention.ms is 60000 and must be -1" in text
        assert (await service.get("/livez"))[0] == 200
        service.stop()
        assert service.exit_status() == 0
    service.spawn()
    await service.listens()
    assert await service.ready()


async def test_limits_of_the_service(own_segments: KafkaSettings, start: Receivers) -> None:
    service = await start(own_segments, segment={"segments": 2, "writers": 2, "connection_writers": 3})
    one, two, three = new_writer(), new_writer(), new_writer()

    async def stores(segment: str, writer: bytes) -> None:
        assert await client.setup(segment, writer) == 0
        await client.append(0, HELLO, writer)

    async def refused(segment: str, writer: bytes) -> None:
        async with await Client.connect(service.address) as other:
            with pytest.raises(ClosedError):
                await other.setup(segment, writer)

    async with await Client.connect(service.address) as client:
        await stores("a", one)
        await stores("a", two)
        await refused("a", three)
        await client.setup("b", three)
        await refused("c", one)
        assert await service.metric("limit_hits_total", limit="SEGMENT__WRITERS") == 1
        assert await service.metric("limit_hits_total", limit="SEGMENT__SEGMENTS") == 1
        with pytest.raises(ClosedError):
            await client.setup("a", new_writer())


async def test_a_cut_or_strange_log_is_not_served(own_segments: KafkaSettings, start: Receivers) -> None:
    """Nothing is guessed: the service says what is wrong, and serves no segment."""
    service = await start(own_segments)
    writer = new_writer()
    async with await Client.connect(service.address) as client:
        await client.setup("a", writer)
        await client.append(0, HELLO, writer)
    service.stop()
    async with admin(own_segments) as cutting:
        where = TopicPartition(own_segments.segments_topic, 0)
        await cutting.delete_records({where: RecordsToDelete(before_offset=1)})
    await restart(service, "starting")
    await until(
        lambda: _unready(service, "the log begins at 1, and no whole checkpoint reaches that far"), "it says so"
    )
    await produce(own_segments, where, builder_of([(encode(b"\7\7", []), 1)]))
    await until(lambda: _unready(service, "a record of version 7"), "it says what it cannot read")


async def _unready(service: Receiver, text: str) -> bool:
    status, page = await service.get("/readyz")
    return status == 503 and text in page
