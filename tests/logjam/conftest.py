"""Clients' ZeroMQ, and topics of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import zmq.asyncio
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    made = zmq.asyncio.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def topics(kafka: EmbeddedKafka) -> KafkaSettings:
    return own_topics(kafka.bootstrap)
