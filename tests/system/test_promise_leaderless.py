"""A broker dies and takes the only replica of some partitions with it: the other partitions' connections are served."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiokafka.errors import NodeNotReadyError
from headrace_cli.machine.ports import free_port
from headrace_cli.stack.broker import HOST
from headrace_common.operations.settings import KafkaSettings

from tests.contract.brokers import HEEDS_RULES
from tests.contract.dialect import ContractClient, values
from tests.contract.embedded import EmbeddedKafka
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receivers
from tests.contract.topic import events, own_topics
from tests.contract.waiting import until
from tests.system.cluster import admin
from tests.system.conftest import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SECOND = 2
FORWARD = ForwardDialect()


class SecondBroker(EmbeddedKafka):
    """A broker without a controller, in the cluster of `first`."""

    def __init__(self, folder: Path, first: EmbeddedKafka) -> None:
        self._first = first
        port = free_port()
        properties = {
            "process.roles": "broker",
            "node.id": str(SECOND),
            "controller.quorum.voters": f"1@{HOST}:{first.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            **HEEDS_RULES,
        }
        super().__init__(folder, port, free_port(), properties)

    def _format(self) -> None:
        """The first one's cluster, another node."""
        (first,) = self._first.folder.rglob("meta.properties")
        lines = dict(line.split("=", 1) for line in first.read_text().splitlines() if "=" in line)
        (self.folder / "data" / "meta.properties").write_text(
            f"version=1\nnode.id={SECOND}\ncluster.id={lines['cluster.id']}\ndirectory.id={uuid.uuid4().hex[:22]}\n"
        )


@pytest.fixture
def second(broker: EmbeddedKafka, tmp_path: Path) -> Iterator[SecondBroker]:
    with SecondBroker(tmp_path / "second", broker) as running:
        yield running


async def leaders(kafka: KafkaSettings) -> dict[int, int]:
    """The events topic's leader by partition, -1: none."""
    async with admin(kafka) as client:
        (described,) = await client.describe_topics([kafka.events_topic])
        return {partition["partition"]: partition["leader"] for partition in described["partitions"]}


async def test_partitions_without_a_leader(broker: Broker, second: SecondBroker, start: Receivers) -> None:
    await until(lambda: _registered(broker), "both brokers are in the cluster")
    topics = own_topics(broker.bootstrap)
    lost = {partition for partition, leader in (await leaders(topics)).items() if leader == SECOND}
    assert 0 < len(lost) < 4
    receiver = await start(topics)
    clients: dict[int, ContractClient] = {}
    async with AsyncExitStack() as ending:
        while len(clients) < 4:  # one on each partition
            client = await ending.enter_async_context(await ContractClient.connect(FORWARD, receiver.address))
            (hello,) = values(1)
            await client.receives(await client.send([hello]))
            clients.setdefault((await events(topics, hello["mark"]))[0].partition, client)

        second.kill()
        frame = values(5)
        numbers = {partition: await clients[partition].send(frame) for partition in lost}
        await until(lambda: _leaderless(topics, lost), "Kafka knows that they have no leader")
        for partition in clients.keys() - lost:
            await clients[partition].receives(await clients[partition].send(values(5)))
        for partition in lost:
            assert clients[partition].acknowledged == [0]
            assert not clients[partition].closed
        assert (await receiver.get("/livez"), await receiver.get("/readyz")) == ((200, "ok\n"), (200, "ok\n"))

        second.start()
        for partition, number in numbers.items():
            await clients[partition].receives(number)
    assert receiver.exit_status() is None
    records = await events(topics, frame[0]["mark"])
    assert sorted((record.partition, record.json["n"]) for record in records) == [
        (partition, n) for partition in sorted(lost) for n in range(len(frame))
    ]


async def _registered(broker: EmbeddedKafka) -> bool:
    async with admin(KafkaSettings(bootstrap_servers=broker.bootstrap)) as client:
        return len((await client.describe_cluster())["brokers"]) == 2


async def _leaderless(topics: KafkaSettings, lost: set[int]) -> bool:
    try:
        found = await leaders(topics)
    except NodeNotReadyError:  # it asked the dead one
        return False
    return all(found[partition] == -1 for partition in lost)
