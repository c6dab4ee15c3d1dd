"""The segment service as a process, on the session's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import now
from tests.segment.client import Services, segment_topics, services


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Services]:
    """Starts services for one test: ``await start(kafka, segment={"tail_wait": 1})``."""
    yield from services(tmp_path)


@pytest.fixture
def own_segments(kafka: EmbeddedKafka) -> KafkaSettings:
    """Topics of the test's own."""
    return segment_topics(kafka.bootstrap)


@pytest.fixture(scope="module")
def service(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A service for tests that leave it as they found it: each has segments of its own."""
    for running in services(tmp_path_factory.mktemp("service")):
        made = running.make(segment_topics(kafka.bootstrap), segment={"tail_wait": 2})
        made.spawn()
        now(made.listens())
        yield made
