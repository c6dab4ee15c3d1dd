"""The receiver as a process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from headrace_courier.wire import HEADER, PING, PONG

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import own_topics
from tests.contract.waiting import PATIENCE
from tests.courier.driving import HELO

pytestmark = pytest.mark.kafka


async def test_complaints_are_counted(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with Receiver("courier", own_topics(kafka.bootstrap), tmp_path) as receiver:
        await receiver.start()
        reader, writer = await asyncio.open_connection(*receiver.address)
        writer.write(HELO + HEADER.pack(b"????", 0) + PING)
        await asyncio.wait_for(reader.readuntil(PONG), PATIENCE)
        writer.close()
        assert await receiver.metric("messages_ignored_total", kind="complaint") == 1
