"""A receiver is killed between Kafka's answer and the acknowledgement: what the client sends again has the same ids."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.dialect import ContractClient, Conversation, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import Stored, events
from tests.contract.waiting import until
from tests.system.conftest import Broker
from tests.system.proxy import Proxy

pytestmark = pytest.mark.kafka

PARTITIONS = 4
"""Of the topics that a test gets."""


async def _resent(receiver: Receiver, conversation: Conversation, data: bytes) -> None:
    async with await ContractClient.connect(ForwardDialect(), receiver.address, conversation=conversation) as client:
        await client.write(data)
        await client.receives(0)


def _twice_with_the_same_ids(records: list[Stored], count: int) -> None:
    assert Counter(record.json["n"] for record in records) == dict.fromkeys(range(count), 2)
    assert set(Counter(record.id for record in records).values()) == {2}
    assert len({(record.id, record.value) for record in records}) == count


async def test_killed_before_it_hears_kafkas_answer(
    broker: Broker, broker_proxy: Proxy, topics: KafkaSettings, start: Receivers
) -> None:
    proxied = topics.model_copy(update={"bootstrap_servers": f"127.0.0.1:{broker.listener.port}"})
    receiver = await start(proxied)
    frame = values(100)
    for _ in range(PARTITIONS):  # each connection gets another partition, which needs an identity before it stores
        async with await ContractClient.connect(ForwardDialect(), receiver.address) as client:
            await client.receives(await client.send(values(1)))
    async with await ContractClient.connect(ForwardDialect(), receiver.address) as client:
        data = client.conversation.frame(frame)
        broker_proxy.answers.clear()
        await client.write(data)
        await until(lambda: _all_stored(topics, frame), "Kafka has stored it")
        await until(lambda: broker_proxy.withheld, "Kafka has answered")
        await client.hears_nothing(0.3)
        receiver.kill()
        await client.sees_end()
        assert client.acknowledged == []
    broker_proxy.answers.set()
    await _resent(await start(), client.conversation, data)
    _twice_with_the_same_ids(await events(topics, frame[0]["mark"]), len(frame))


async def test_killed_before_the_client_hears_the_acknowledgement(topics: KafkaSettings, start: Receivers) -> None:
    receiver = await start()
    frame = values(100)
    async with (
        Proxy(receiver.address) as proxy,
        await ContractClient.connect(ForwardDialect(), proxy.address) as client,
    ):
        data = client.conversation.frame(frame)
        proxy.answers.clear()
        await client.write(data)
        await until(lambda: proxy.withheld, "the acknowledgement has left")
        assert len(await events(topics, frame[0]["mark"])) == len(frame)
        receiver.kill()
        await client.hears_nothing(0.1)
    await _resent(await start(), client.conversation, data)
    _twice_with_the_same_ids(await events(topics, frame[0]["mark"]), len(frame))


async def _all_stored(topics: KafkaSettings, frame: list[dict[str, Any]]) -> bool:
    return len(await events(topics, frame[0]["mark"])) == len(frame)
