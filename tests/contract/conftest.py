"""Receivers of every protocol that is declared here, each against the session's broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from headrace_cli.broker import EmbeddedKafka
from headrace_common.settings import KafkaSettings

from contract.dialect import Dialect
from contract.forward import ForwardDialect
from contract.lumberjack import LumberjackDialect
from contract.receiver import Receiver, Sections
from contract.topic import now, own_topics

DIALECTS: tuple[Dialect, ...] = (ForwardDialect(), LumberjackDialect())
"""Every receiver there is. A new one adds its adapter here, and passes."""

Start = Callable[..., Awaitable[Receiver]]


@pytest.fixture(scope="session", params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


@pytest.fixture(scope="session")
def stored_in(kafka: EmbeddedKafka, dialect: Dialect) -> KafkaSettings:
    """One pair of topics for all tests of a protocol: each looks for its own mark."""
    return own_topics(kafka.bootstrap)


@pytest.fixture(scope="session")
def receiver(
    dialect: Dialect, stored_in: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Receiver]:
    """A receiver with the settings that users have by default, for the whole session: leave it as you found it."""
    running = Receiver(dialect.name, stored_in, tmp_path_factory.mktemp(dialect.name))
    running.spawn()
    now(running.listens())
    yield running
    running.stop()


@pytest.fixture
def start(dialect: Dialect, stored_in: KafkaSettings, tmp_path: Path) -> Iterator[Start]:
    """Starts a receiver for one test, with sections of settings: ``await start(limits={"connections": 3})``."""
    started: list[Receiver] = []

    async def begin(*, spawn_only: bool = False, **sections: Sections) -> Receiver:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Receiver(dialect.name, stored_in, folder, sections))
        if spawn_only:
            started[-1].spawn()
        else:
            await started[-1].start()
        return started[-1]

    yield begin
    for running in started:
        running.stop()
