"""Three brokers that are restarted one after another, killed, and moved, while clients send: nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import TopicSettings

from tests.contract.brokers import BROKERS, Brokers
from tests.contract.dialect import Dialect
from tests.contract.forward import ForwardDialect
from tests.contract.load import Load
from tests.contract.receiver import Receiver
from tests.contract.segment import SegmentDialect
from tests.contract.topic import events, own_topics
from tests.contract.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.full]

CLIENTS = 8


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.mark.parametrize("dialect", [ForwardDialect(), SegmentDialect()], ids=["forward", "segment"])
async def test_restarted_killed_and_moved(brokers: Brokers, dialect: Dialect, tmp_path: Path) -> None:
    topics = own_topics(brokers.bootstrap, TopicSettings(events_partitions=6, segments_partitions=dialect.segments))
    receiver = Receiver.of(dialect, topics, tmp_path)
    await receiver.start()
    load = Load(dialect, receiver.address, CLIENTS, pause=0.02)
    name = topics.events_topic
    try:

        async def goes_on() -> None:
            """Everything that was on its way is answered, and more."""
            at = len(load.heard)
            await until(lambda: len(load.heard) >= at + 10 * CLIENTS, "acknowledgements come")

        await goes_on()
        for number in [*brokers.nodes, *brokers.nodes]:
            await brokers.restart(number)
            await brokers.in_sync(topics, name)
        await goes_on()
        await brokers.restart(await brokers.leader(topics, name), kill=True)
        await brokers.in_sync(topics, name)
        await goes_on()
        await brokers.restart(BROKERS, elsewhere=True)
        await brokers.in_sync(topics, name)
        await goes_on()
        await load.end()
        assert receiver.exit_status() is None
        assert await receiver.ready()
    finally:
        load.cancel()
        receiver.stop()
    records = await events(topics.model_copy(update={"bootstrap_servers": brokers.bootstrap}), load.mark)
    assert not load.lost(records)
    assert {record.json["n"] for record in records} == {heard.number for heard in load.heard}
    assert not load.repeated(records)
