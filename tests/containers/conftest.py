"""Docker, and receivers in containers."""

from __future__ import annotations

import os

# Its reaper is an image of its own, which not every machine can pull; everything here is removed by its fixture.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from headrace_common.operations.settings import KafkaSettings, TopicSettings

from tests.containers.building import built
from tests.containers.running import Contained
from tests.contract.conftest import DIALECTS
from tests.contract.dialect import Dialect
from tests.contract.embedded import EmbeddedKafka
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


@pytest.fixture
def stored_in(kafka: EmbeddedKafka) -> KafkaSettings:
    """Topics of the test's own."""
    return own_topics(kafka.bootstrap, TopicSettings(events_partitions=4, segments_partitions=1))


@pytest.fixture(params=[d for d in DIALECTS if not d.module and d.name != "relp"], ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Every protocol that has an image."""
    built(request.param.name)
    return request.param


@pytest.fixture
def receiver(dialect: Dialect, stored_in: KafkaSettings, tmp_path: Path) -> Iterator[Contained]:
    """The receiver's image, started and perhaps not ready."""
    with Contained.of(dialect, stored_in, tmp_path) as running:
        running.spawn()
        yield running
