"""Where a consumer stands, as the service keeps it, without Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
import structlog
import zmq
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import RateLimited
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.service.parts import Runtime
from headrace_logjam.access import Curve
from headrace_logjam.devices.endpoints import Subscriptions
from headrace_logjam.devices.positions import Places, Position, Positions, encode
from headrace_logjam.settings import LogjamSettings

KNOWN = {"one": {7: Position(12, 1)}, "other": {8: Position(34, 2)}, "gone": {9: Position(56, 3)}}


class Kept:
    """The positions, as if Kafka had them."""

    def __init__(self) -> None:
        self.places: Places = KNOWN

    async def load(self) -> Places:
        return self.places

    async def save(self, places: Places) -> None:
        self.places = places

    async def close(self) -> None: ...


class Receiver:
    """As much of it as an endpoint that does not connect asks for."""

    def __init__(self) -> None:
        self.limited = RateLimited(structlog.get_logger())


async def test_a_start_that_fails_keeps_where_each_endpoint_stood() -> None:
    """An address that is none was added: with it mended, the others must not begin anew and report what they have stored."""
    settings = LogjamSettings.model_validate(
        {"logjam": {"endpoints": {"new": "tcp://*:1", "one": "tcp://127.0.0.1:1", "other": "ipc:///none"}}}
    )
    log = structlog.get_logger()
    runtime = Runtime(settings, cast("Any", Receiver()), ReceiverMetrics(), log, Tasks(lambda: None), list)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    subscriptions = Subscriptions(runtime, context, Curve.of(""))
    kept = Kept()
    subscriptions._positions = cast("Any", kept)
    with pytest.raises(ConfigError, match="LOGJAM__ENDPOINTS new"):
        await subscriptions.start()
    await subscriptions.stop()
    context.term()
    assert kept.places == KNOWN


class Slow:
    """A consumer whose first commit is tried again for a while."""

    def __init__(self) -> None:
        self.again = asyncio.Event()
        self.taken: list[str] = []
        self._first = True

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        first, self._first = self._first, False
        if first:
            await self.again.wait()
        self.taken += [each.metadata for each in offsets.values()]


async def test_what_is_written_late_does_not_overtake_what_is_written_last() -> None:
    """At the end two commits are on their way. The earlier one came last: the next start reported a gap of what was stored."""
    positions = Positions(KafkaSettings(), "us", RateLimited(structlog.get_logger()))
    slow = Slow()
    positions._consumer = cast("Any", slow)
    positions._partitions = [TopicPartition("events", 0)]
    places: list[Places] = [{"one": {7: Position(number, 1)}} for number in (1, 2)]
    saves = [asyncio.create_task(positions.save(each)) for each in places]
    for _ in range(5):
        await asyncio.sleep(0)
    slow.again.set()
    await asyncio.gather(*saves)
    assert slow.taken == [encode(each) for each in places]
