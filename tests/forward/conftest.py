"""Receivers of Forward for the tests that need the service itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.contract.topic import own_topics


@pytest.fixture(scope="session")
def store(kafka: EmbeddedKafka) -> KafkaSettings:
    """Topics that these tests share: each looks for its own mark."""
    return own_topics(kafka.bootstrap)


@pytest.fixture
def start(store: KafkaSettings, tmp_path: Path) -> Iterator[Receivers]:
    with Receivers("forward", store, tmp_path) as receivers:
        yield receivers
