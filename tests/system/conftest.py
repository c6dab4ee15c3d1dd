"""One broker for all of these tests, which can be refused to, stopped, and reached through a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import KafkaSettings

from tests.contract.brokers import HEEDS_RULES, ProxiedListener
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.contract.topic import own_topics
from tests.contract.waiting import BROKER_TIME
from tests.system.proxy import Proxy


class Broker(EmbeddedKafka):
    """A broker that heeds access rules, with a second listener which is only reached through a proxy."""

    def __init__(self, folder: Path) -> None:
        port, controller = free_port(), free_port()
        self.listener = ProxiedListener()
        super().__init__(
            folder,
            port,
            controller,
            {
                **self.listener.properties(port, controller),
                **HEEDS_RULES,
                "broker.session.timeout.ms": "6000",  # a killed broker's partitions are soon known to have no leader
            },
        )

    def proxy(self) -> Proxy:
        """What clients of the `proxied` port go through while it runs."""
        return Proxy(self.listener.behind, self.listener.port)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker"))
    running.start(BROKER_TIME)
    yield running
    running.stop()


@pytest.fixture
def topics(broker: Broker) -> KafkaSettings:
    """Topics of the test's own."""
    return own_topics(broker.bootstrap)


@pytest.fixture
async def broker_proxy(broker: Broker) -> AsyncIterator[Proxy]:
    async with broker.proxy() as proxy:
        yield proxy


@pytest.fixture
def start(topics: KafkaSettings, tmp_path: Path) -> Iterator[Receivers]:
    with Receivers("forward", topics, tmp_path) as receivers:
        yield receivers
