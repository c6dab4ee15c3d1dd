"""The receiver over sockets: what a session cannot show by itself."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path

import orjson
import pytest
from headrace_lumberjack.wire import compressed, json_frame, window

from tests.contract.dialect import ContractClient, values
from tests.contract.embedded import EmbeddedKafka
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics
from tests.contract.waiting import PATIENCE
from tests.lumberjack.driving import acks

pytestmark = pytest.mark.kafka

DIALECT = LumberjackDialect()


async def test_a_window_that_takes_many_turns_is_acknowledged_though_its_client_has_finished(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """24 MiB of content in one C frame, the end of the connection right behind it; others are served meanwhile."""
    mark = uuid.uuid4().hex
    documents = [orjson.dumps({"mark": mark, "n": n, "pad": os.urandom(600).hex()}) for n in range(20_000)]
    data = window(20_000) + compressed(b"".join(json_frame(1 + n, item) for n, item in enumerate(documents)), 1)
    with Receiver("lumberjack", own_topics(kafka.bootstrap), tmp_path) as receiver:
        await receiver.start()
        reader, writer = await asyncio.open_connection(*receiver.address)
        async with await ContractClient.connect(DIALECT, receiver.address) as other:
            writer.write(data)
            writer.write_eof()
            await other.receives(await other.send(values(1)))
            heard = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        numbers = [number for _, number in acks(heard)]
        assert list(filter(None, numbers)) == [20_000]
        records = await events(receiver.kafka, mark)
        assert [record.value for record in records] == documents
        await receiver.shows(0, "budget_used_bytes")
