"""Receivers of Forward for the tests that need the service itself; both cores for those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import own_topics
from tests.native import core as core
from tests.native import with_both

pytest_generate_tests = with_both


@pytest.fixture(scope="session")
def store(kafka: EmbeddedKafka) -> KafkaSettings:
    """Topics that these tests share: each looks for its own mark."""
    return own_topics(kafka.bootstrap)


@pytest.fixture
async def start(store: KafkaSettings, tmp_path: Path) -> AsyncIterator[Any]:
    """Starts a receiver for one test, with sections of settings: ``await start(limits={"connections": 3})``."""
    started: list[Receiver] = []

    async def begin(kafka: KafkaSettings = store, **sections: Any) -> Receiver:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Receiver("forward", kafka, folder, sections))
        await started[-1].start()
        return started[-1]

    yield begin
    for receiver in started:
        receiver.stop()
