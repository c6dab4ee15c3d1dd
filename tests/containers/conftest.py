"""Docker, a broker in a container, and receivers in containers beside it."""

from __future__ import annotations

import os

# Its reaper is an image of its own, which not every machine can pull; everything here is removed by its fixture.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import docker
import pytest
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from testcontainers.core.network import Network

from tests.containers.building import built, reference
from tests.containers.running import Contained, KafkaContainer
from tests.contract.conftest import DIALECTS
from tests.contract.dialect import Dialect
from tests.contract.receiver import Sections
from tests.contract.topic import own_topics

FOLDER = Path(__file__).parent
BUILDING = 1800
"""Seconds for a test that may be the first to need images. Not a guess about speed: each step ends as soon as it can."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Docker is `long`: the quick tier shows the same receivers as processes."""
    for item in items:
        if item.path.parent == FOLDER and item.get_closest_marker("requires"):
            item.add_marker("long")
            item.add_marker(pytest.mark.timeout(BUILDING))


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    found = docker.from_env()
    yield found
    found.close()


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture(scope="session")
def broker(network: Network) -> Iterator[KafkaContainer]:
    with KafkaContainer(network) as running:
        yield running


@pytest.fixture
def stored_in(broker: KafkaContainer) -> KafkaSettings:
    """Topics of the test's own, as this machine reaches them."""
    return own_topics(broker.bootstrap, TopicSettings(events_partitions=4, segments_partitions=1))


@pytest.fixture(params=[d for d in DIALECTS if d.module == f"headrace_{d.name}"], ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Every protocol that has an image."""
    built(request.param.name)
    return request.param


@pytest.fixture
def start(
    dialect: Dialect, network: Network, stored_in: KafkaSettings, tmp_path: Path
) -> Iterator[Callable[..., Awaitable[Contained]]]:
    """Starts the receiver's image, with sections of settings."""
    started: list[Contained] = []

    async def begin(**sections: Sections) -> Contained:
        receiver = Contained.of(dialect, stored_in, tmp_path, sections)
        receiver.place(reference(dialect.name), network)
        started.append(receiver)
        await receiver.start()
        return receiver

    yield begin
    for receiver in started:
        receiver.stop()
