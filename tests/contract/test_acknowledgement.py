"""What an acknowledgement means."""

from __future__ import annotations

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from headrace_cli.broker import EmbeddedKafka

from contract.dialect import ContractClient, Dialect, values
from contract.receiver import Receiver
from contract.stopping import stopped
from contract.topic import events, in_order, quarantined, reassembled

pytestmark = pytest.mark.kafka


def carried(dialect: Dialect, records: list) -> list[dict]:
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
        assert record["ce_source"] == f"/{dialect.name}/127.0.0.1"
        assert record["ce_type"] == f"headrace.{dialect.name}.event"
        dialect.stream(dict(record.headers))


async def test_nothing_is_acknowledged_before_it_is_stored(
    dialect: Dialect, receiver: Receiver, kafka: EmbeddedKafka
) -> None:
    frame = values(10)
    async with (
        await ContractClient.connect(dialect, receiver.address) as client,
        await ContractClient.connect(dialect, receiver.address) as faulty,
    ):
        await client.receives(await client.send(values(1)))
        await faulty.receives(await faulty.send(values(1)))
        with stopped(kafka.pid):
            number = await client.send(frame)
            other = await faulty.send_faulty(frame)
            await client.hears_nothing(0.5)
            await faulty.hears_nothing(0.1)
            assert (client.acknowledged, faulty.acknowledged) == ([0], [0])
            assert await receiver.metric("frames_pending") == 2
        await client.receives(number)
        await faulty.receives(other)
    assert len(await events(receiver.kafka, frame[0]["mark"])) == 2 * len(frame)


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


async def test_every_record_is_a_cloud_event(dialect: Dialect, receiver: Receiver) -> None:
    """As the CloudEvents SDK reads it: the whole topic, whatever the other tests have left there."""
    frame = values(3)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        await client.receives(await client.send(frame))
    records = await events(receiver.kafka)
    found = []
    for record in records:
        event = from_kafka_event(KafkaMessage(dict(record.headers), record.key, record.value))
        assert (event.get_id(), event.get_source()) == (record.id, record["ce_source"])
        assert event.get_specversion() == "1.0"
        assert event.get_type() == f"headrace.{dialect.name}.event"
        assert event.get_datacontenttype() == "application/json"
        assert event.get_time() is not None
        if isinstance(event.get_data(), dict) and event.get_data().get("mark") == frame[0]["mark"]:
            found.append(dialect.value(event.get_data()))
    assert found == frame


async def test_an_event_that_cannot_be_understood_is_quarantined_and_acknowledged(
    dialect: Dialect, receiver: Receiver
) -> None:
    frame = values(4)
    mark = frame[0]["mark"]
    before = await receiver.metric("events_quarantined_total", reason=dialect.fault.value)
    async with await ContractClient.connect(dialect, receiver.address) as client:
        await client.receives(await client.send_faulty(frame))
        rejects = await quarantined(receiver.kafka, mark)
        assert carried(dialect, await events(receiver.kafka, mark)) == frame
        await client.receives(await client.send(values(1)))  # the connection goes on
    (raw,) = reassembled(rejects).values()
    assert mark.encode() in raw
    (reject,) = rejects
    assert reject["reason"] == dialect.fault.value
    assert reject["protocol"] == dialect.name
    assert reject["ce_source"] == f"/{dialect.name}/127.0.0.1"
    assert reject["part"] == "1/1"
    assert await receiver.metric("events_quarantined_total", reason=dialect.fault.value) == before + 1


async def test_a_frame_sent_again_has_the_ids_it_had(dialect: Dialect, receiver: Receiver) -> None:
    frame = values(5)
    conversation = dialect.conversation()
    data = conversation.frame(frame)
    for _ in range(2):
        async with await ContractClient.connect(dialect, receiver.address, conversation=conversation) as client:
            await client.write(data)
            await client.receives(0)
    records = await events(receiver.kafka, frame[0]["mark"])
    assert sorted(record.json["n"] for record in records) == sorted(2 * list(range(len(frame))))
    for n in range(len(frame)):
        assert len({record.id for record in records if record.json["n"] == n}) == 1
    assert len({record.id for record in records}) == len(frame)
