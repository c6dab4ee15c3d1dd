"""Receivers of every protocol that is declared here, each against the session's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings, TopicSettings

from tests.contract.courier import CourierDialect
from tests.contract.dialect import EVENT_BYTES, FRAME_BYTES, Dialect
from tests.contract.embedded import EmbeddedKafka
from tests.contract.forward import ForwardDialect, PythonForwardDialect
from tests.contract.installed import without_adapter
from tests.contract.logjam import LogjamDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.otlp import OtlpDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.relp import RelpDialect
from tests.contract.segment import SegmentDialect, TodayDialect
from tests.contract.topic import apart, now, own_topics

ADAPTERS: tuple[Dialect, ...] = (
    ForwardDialect(),
    PythonForwardDialect(),
    CourierDialect(),
    LumberjackDialect(),
    LogjamDialect(),
    SegmentDialect(),
    TodayDialect(),
    OtlpDialect(),
    RelpDialect(),
)

DIALECTS = (*ADAPTERS, *without_adapter(ADAPTERS))
"""Every receiver there is. A new one passes with its own client, or adds an adapter above."""

OF_A_KIND = ("courier", "lumberjack", "otlp", "segment", "relp")
"""What they share with Forward, the quick tier tests with Forward alone: tests marked `shared`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test is collected for the dialects that can do what it needs. What receivers share, a variant has of its own receiver."""
    if "dialect" in metafunc.fixturenames:
        marks = {mark.name for mark in metafunc.definition.iter_markers()}
        shared = "shared" in marks
        able = [
            pytest.param(dialect, id=_name(dialect), marks=[pytest.mark.long] if _waits(dialect, shared) else [])
            for dialect in DIALECTS
            if (dialect.connection or "connection" not in marks)
            and (dialect.stored_again or "stored_again" not in marks)
            and not (shared and dialect.variant)
        ]
        metafunc.parametrize("dialect", able, indirect=True, scope="session")


def _waits(dialect: Dialect, shared: bool) -> bool:
    """Whether the quick tier leaves a test of this receiver out."""
    return bool(dialect.variant) or (shared and dialect.name in OF_A_KIND)


def _name(dialect: Dialect) -> str:
    return f"{dialect.name}-{dialect.variant}" if dialect.variant else dialect.name


@pytest.fixture(scope="session")
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


@pytest.fixture(scope="session")
def stored_in(kafka: EmbeddedKafka, dialect: Dialect) -> KafkaSettings:
    """One pair of topics for all tests of a protocol: each looks for its own mark."""
    return own_topics(kafka.bootstrap, TopicSettings(events_partitions=4, segments_partitions=dialect.segments))


@pytest.fixture(scope="session")
def receiver(
    dialect: Dialect, stored_in: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Receiver]:
    """A receiver with limits that a test can hit, for the whole session: leave it as you found it."""
    limits = {"frame_bytes": FRAME_BYTES, "event_bytes": EVENT_BYTES}
    with Receiver.of(dialect, stored_in, tmp_path_factory.mktemp(dialect.name), {"limits": limits}) as running:
        running.spawn()
        now(running.listens())
        yield running


@pytest.fixture
def start(dialect: Dialect, stored_in: KafkaSettings, tmp_path: Path) -> Iterator[Receivers]:
    """Starts receivers for one test."""
    with Receivers(dialect, apart(stored_in, dialect.segments), tmp_path) as receivers:
        yield receivers
