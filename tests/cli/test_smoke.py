"""`headrace smoke`: an event by each protocol, found on the topic; what fails is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from aiokafka.errors import KafkaConnectionError
from headrace_cli.verbs.smoke import smoke
from headrace_cli.wire import smoking as module
from headrace_cli.wire.target import CLIENTS
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, TopicSettings

from tests.cli.operating.topics import lead_to
from tests.contract.conftest import DIALECTS
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import HOST, Receiver
from tests.contract.topic import events, own_topics

REAL = [
    dialect
    for dialect in DIALECTS
    if dialect.name in CLIENTS and dialect.module == f"headrace_{dialect.name}" and not dialect.variant
]


async def test_a_kafka_that_is_reached_late_is_waited_for_and_a_topic_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that enforces policies refuses a new pod at first."""
    late = DeliveryError("Kafka at kafka:9092: refused", DeliveryPolicy.RETRY)
    late.__cause__ = KafkaConnectionError("refused")
    missing = DeliveryError("topic events is missing", DeliveryPolicy.RETRY)
    monkeypatch.setattr(module, "AGAIN", 0)
    monkeypatch.setattr(module, "describe", AsyncMock(side_effect=[late, late, ["events"]]))
    await module.reached(KafkaSettings(), seconds=60)
    for error, seconds in ((late, -1), (missing, 60)):
        monkeypatch.setattr(module, "describe", AsyncMock(side_effect=[error]))
        with pytest.raises(DeliveryError, match=str(error)):
            await module.reached(KafkaSettings(), seconds)


@pytest.fixture
async def topics(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    four = TopicSettings(events_partitions=4, segments_partitions=1)
    found = await asyncio.to_thread(own_topics, kafka.bootstrap, four)
    lead_to(found, monkeypatch)
    return found


@pytest.fixture
async def receivers(topics: KafkaSettings, tmp_path: Path) -> AsyncIterator[dict[str, Receiver]]:
    started = {dialect.name: Receiver.of(dialect, topics, tmp_path) for dialect in REAL}
    for receiver in started.values():
        receiver.spawn()
    for receiver in started.values():
        await receiver.listens()
    yield started
    for receiver in started.values():
        receiver.stop()


@pytest.mark.kafka
async def test_each_event_is_acknowledged_and_found_and_what_nobody_answers_fails_alone(
    receivers: dict[str, Receiver], topics: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [f"{name}={HOST}:{receiver.port}" for name, receiver in receivers.items()]
    assert await asyncio.to_thread(smoke, targets, ca=None, seconds=60) == 0
    said = capsys.readouterr().out
    assert said.count(f"on {topics.events_topic}, partition") == len(REAL) == len(await events(topics))
    targets = [f"courier={HOST}:1", f"forward={HOST}:{receivers['forward'].port}"]
    assert await asyncio.to_thread(smoke, targets, ca=None, seconds=60) == 1
    said = capsys.readouterr().out
    assert f"!! courier    {HOST}:1 " in said
    assert said.count(f"on {topics.events_topic}, partition") == 1
