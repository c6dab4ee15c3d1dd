"""Shared fixtures: an embedded Kafka, topics of one's own, and tests that need tools a bare machine may lack."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from headrace_cli.broker import EmbeddedKafka
from headrace_common.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure


def _answers(*command: str) -> bool:
    """Whether a program is there and does what it is asked within half a minute."""
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


TOOLS: dict[str, Callable[[], bool]] = {
    "java": lambda: _answers("java", "-version"),
    "go": lambda: _answers("go", "version"),
    "npm": lambda: _answers("npm", "--version"),
    "maven": lambda: shutil.which("mvn") is not None,
    "docker": lambda: _answers("docker", "info"),
    "k8s": lambda: _answers("kubectl", "version", "--request-timeout=10s"),
}
"""What a test may require, and how to see that it is there."""


@lru_cache
def has(tool: str) -> bool:
    return TOOLS[tool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default="",
        metavar="TOOLS",
        help=f"a test that lacks one of these fails instead of being skipped; of {','.join(TOOLS)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    unknown = required(config) - TOOLS.keys()
    if unknown:
        raise pytest.UsageError(f"--require: {', '.join(sorted(unknown))} is none of {', '.join(TOOLS)}")


def required(config: pytest.Config) -> set[str]:
    return {name.strip() for name in config.getoption("--require").split(",") if name.strip()}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            if name not in TOOLS:
                pytest.fail(f"requires({name!r}): it is none of {', '.join(TOOLS)}", pytrace=False)
            if not has(name):
                verdict = pytest.fail if name in required(item.config) else pytest.skip
                verdict(f"needs {name}, which this machine lacks")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker for the whole session: use topics of your own (`topics`), and don't stop it."""
    broker = EmbeddedKafka(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """A broker for one test: it may be stopped, killed and started again."""
    broker = EmbeddedKafka(tmp_path / "kafka")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
async def topics(kafka: EmbeddedKafka) -> KafkaSettings:
    """Settings for the session's broker with an events and a quarantine topic that no other test uses."""
    mark = uuid.uuid4().hex[:8]
    settings = KafkaSettings(
        bootstrap_servers=kafka.bootstrap, events_topic=f"events.{mark}", quarantine_topic=f"quarantine.{mark}"
    )
    await ensure(settings, TopicSettings(events_partitions=4))
    return settings
