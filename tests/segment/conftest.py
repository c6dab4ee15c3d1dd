"""The segment service as a process, on the session's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receivers
from tests.segment.client import segment_topics


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Receivers]:
    """A test names its topics: ``await start(kafka, segment={"tail_wait": 1})``."""
    with Receivers("segment", KafkaSettings(), tmp_path) as receivers:
        yield receivers


@pytest.fixture
def own_segments(kafka: EmbeddedKafka) -> KafkaSettings:
    """Topics of the test's own."""
    return segment_topics(kafka.bootstrap)
