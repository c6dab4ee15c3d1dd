"""What an acknowledgement means."""

from __future__ import annotations

from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event

from tests.contract.dialect import ContractClient, Dialect, values
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import events, in_order, quarantined, reassembled
from tests.contract.waiting import until

pytestmark = pytest.mark.kafka


def carried(dialect: Dialect, records: list[Any]) -> list[dict[str, Any]]:
    return [dialect.value(record.json) for record in records]


async def test_what_is_acknowledged_is_stored(dialect: Dialect, receiver: Receiver) -> None:
    frame = values(500)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        await client.receives(await client.send(frame))
        records = await events(receiver.kafka, frame[0]["mark"])
    assert carried(dialect, records) == frame
    in_order(records)
    assert len({record.partition for record in records}) == 1
    assert len({record.id for record in records}) == len(frame)
    for record in records:
        message = KafkaMessage(dict(record.headers), record.key, record.value)
        event = from_kafka_event(message)  # as CloudEvents' SDK reads it
        assert (event.get_id(), event.get_source()) == (record.id, f"/{dialect.name}/127.0.0.1")
        assert (event.get_specversion(), event.get_type()) == ("1.0", f"headrace.{dialect.name}.event")
        assert event.get_datacontenttype() == dialect.content_type
        assert event.get_time() is not None
        dialect.stream(dict(record.headers))


async def held(dialect: Dialect, receiver: Receiver, kafka: EmbeddedKafka, *, faulty: bool) -> str:
    """Sends a frame while Kafka stands still: nothing is heard until it goes on. The frame's mark."""
    frame = values(10)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        await client.receives(await client.send(values(1)))
        with stopped(kafka.pid):
            make = client.conversation.faulty if faulty else client.conversation.frame
            number = await client.send_frame(data := make(frame))
            await until(lambda: receiver.metric("frames_pending"), "the receiver has it")
            await until(lambda: receiver.metric("oldest_pending_seconds"), "and says that it waits")
            assert await receiver.metric("budget_used_bytes") >= len(data) / 2  # what frames it is not counted
            await client.hears_nothing(0.5)
            assert client.acknowledged == [0]
        await client.receives(number)
        await client.receives(await client.send(values(1)))  # the connection goes on
        await receiver.shows(0, "budget_used_bytes")
    mark: str = frame[0]["mark"]
    assert carried(dialect, await events(receiver.kafka, mark)) == frame
    return mark


async def test_nothing_is_acknowledged_before_it_is_stored(
    dialect: Dialect, receiver: Receiver, kafka: EmbeddedKafka
) -> None:
    await held(dialect, receiver, kafka, faulty=False)


async def test_pipelined_frames_are_acknowledged_and_stored_in_order(dialect: Dialect, receiver: Receiver) -> None:
    mark = values(1)[0]["mark"]
    frames = [values(1 + number % 40, mark, frame=number) for number in range(60)]
    async with await ContractClient.connect(dialect, receiver.address) as client:
        for frame in frames:
            await client.send(frame)
        await client.receives(len(frames) - 1)
        assert client.acknowledged == list(range(len(frames)))
    records = await events(receiver.kafka, mark)
    assert carried(dialect, records) == [value for frame in frames for value in frame]
    assert len({record.partition for record in records}) == 1


async def test_an_event_that_cannot_be_understood_is_quarantined_and_acknowledged(
    dialect: Dialect, receiver: Receiver, kafka: EmbeddedKafka
) -> None:
    """Not before the rest of its frame and the fault are stored."""
    before = await receiver.metric("events_quarantined_total", reason=dialect.fault.value)
    mark = await held(dialect, receiver, kafka, faulty=True)
    (reject,) = rejects = await quarantined(receiver.kafka, mark)
    (raw,) = reassembled(rejects).values()
    assert mark.encode() in raw
    assert reject["reason"] == dialect.fault.value
    assert reject["protocol"] == dialect.name
    assert reject["ce_source"] == f"/{dialect.name}/127.0.0.1"
    assert reject["part"] == "1/1"
    assert await receiver.metric("events_quarantined_total", reason=dialect.fault.value) == before + 1


@pytest.mark.stored_again
async def test_a_frame_sent_again_has_the_ids_it_had(dialect: Dialect, receiver: Receiver) -> None:
    frame = values(5)
    conversation = dialect.conversation()
    data = conversation.frame(frame)
    for _ in range(2):
        async with await ContractClient.connect(dialect, receiver.address, conversation=conversation) as client:
            await client.write(data)
            await client.receives(0)
    records = await events(receiver.kafka, frame[0]["mark"])
    assert sorted(value["n"] for value in carried(dialect, records)) == sorted(2 * list(range(len(frame))))
    for n in range(len(frame)):
        assert len({record.id for record in records if dialect.value(record.json)["n"] == n}) == 1
    assert len({record.id for record in records}) == len(frame)


async def test_equal_events_have_ids_of_their_own(dialect: Dialect, receiver: Receiver) -> None:
    """In one frame, and in the next: with one id, the lake would keep one of them."""
    (event,) = values(1)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        for _ in range(2):
            await client.receives(await client.send_frame(client.conversation.equal(event, 3)))
    records = await events(receiver.kafka, event["mark"])
    assert carried(dialect, records) == [event] * 6
    assert len({record.id for record in records}) == len(records)


@pytest.mark.stored_again
async def test_other_content_under_the_same_name_has_other_ids(dialect: Dialect, receiver: Receiver) -> None:
    """A client may use a name twice, and another may guess it."""
    frame, other = values(1), values(1)
    conversation = dialect.conversation()
    data = conversation.legible(frame)
    marks = frame[0]["mark"], other[0]["mark"]
    for sent in (data, conversation.retold(data, *marks)):
        async with await ContractClient.connect(dialect, receiver.address, conversation=conversation) as client:
            await client.write(sent)
            await client.receives(0)
    records = [record for mark in marks for record in await events(receiver.kafka, mark)]
    assert carried(dialect, records) == frame + other
    assert len({record.id for record in records}) == len(records)
