"""One broker for all of these tests, which can be refused to, stopped, and reached through a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import KafkaSettings

from tests.contract.brokers import HEEDS_RULES, ProxiedListener
from tests.contract.certificates import Authority
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.contract.topic import own_topics
from tests.system.proxy import Proxy


class Broker(EmbeddedKafka):
    """A broker that heeds access rules, with a second listener which is only reached through a proxy."""

    def __init__(self, folder: Path) -> None:
        port, controller = free_port(), free_port()
        self.listener = ProxiedListener()
        soon = {"broker.session.timeout.ms": "6000"}  # a killed broker's partitions are soon known to have no leader
        properties = {**self.listener.properties(port, controller), **HEEDS_RULES, **soon}
        super().__init__(folder, port, controller, properties)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def topics(broker: Broker) -> KafkaSettings:
    """Topics of the test's own."""
    return own_topics(broker.bootstrap)


@pytest.fixture
async def broker_proxy(broker: Broker) -> AsyncIterator[Proxy]:
    """What clients of the `proxied` port go through while it runs."""
    async with Proxy(broker.listener.behind, broker.listener.port) as proxy:
        yield proxy


@pytest.fixture
def start(topics: KafkaSettings, tmp_path: Path) -> Iterator[Receivers]:
    with Receivers("forward", topics, tmp_path) as receivers:
        yield receivers
