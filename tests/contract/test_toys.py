"""What the seam promises beside the suite: a service of which a part has ended does not live on as half of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_cli.stack.broker import EmbeddedKafka

from tests.contract.dialect import ContractClient, values
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics
from tests.contract.toy import QUESTIONS
from tests.contract.toys.questions import DEADLY

pytestmark = pytest.mark.kafka


async def test_a_task_that_ends_ends_the_service_which_says_why(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = own_topics(kafka.bootstrap)
    with Receiver.of(QUESTIONS, topics, tmp_path, {"limits": {"drain_time": 5}}) as receiver:
        await receiver.start()
        frame = values(3)
        async with (
            await ContractClient.connect(QUESTIONS, receiver.address) as client,
            await ContractClient.connect(QUESTIONS, receiver.address) as other,
        ):
            await client.receives(await client.send(frame))
            await other.write(DEADLY)
            await client.sees_end()
            assert await receiver.ended() == 1
        (line,) = receiver.lines("a task has ended: the service stops")
        assert line["problem"] == "oracle has ended: RuntimeError('asked what must not be asked')"
        assert receiver.lines("stopped")
    assert len(await events(topics, frame[0]["mark"])) == len(frame)
