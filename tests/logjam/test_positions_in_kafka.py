"""Where a consumer of devices stands, kept in Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from headrace_common.operations.log import RateLimited
from headrace_common.operations.settings import KafkaSettings
from headrace_logjam.devices import positions
from headrace_logjam.devices.positions import Position, Positions
from structlog.testing import CapturingLogger

pytestmark = [pytest.mark.kafka, pytest.mark.long]

NOT_COORDINATOR, LOADING = 16, 14
"""What a broker answers that has just started."""

PLACES = {"one": {7: Position(99, 1_700_000_000_123)}, "two": {7: Position(5, 8)}}


async def test_they_are_read_when_the_broker_has_loaded_them(
    topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an answer names no partition: it must not be taken for "nothing is kept"."""
    log = CapturingLogger()
    before = Positions(topics, "us", RateLimited(log))  # type: ignore[arg-type]
    assert await before.load() == {}
    await before.save(PLACES)
    await before.close()

    ask = AIOKafkaAdminClient._send_request
    errors = iter((NOT_COORDINATOR, LOADING))

    async def loading(self: AIOKafkaAdminClient, request: Any, *more: Any) -> Any:
        if isinstance(request, OffsetFetchRequest) and (error := next(errors, None)):
            return OffsetFetchResponse_v3(0, [], error)
        return await ask(self, request, *more)

    monkeypatch.setattr(AIOKafkaAdminClient, "_send_request", loading)
    monkeypatch.setattr(positions, "PAUSE", 0.01)
    after = Positions(topics, "us", RateLimited(log))  # type: ignore[arg-type]
    assert await after.load() == PLACES
    assert not after.exact
    await after.save(PLACES, exact=True)
    await after.close()
    third = Positions(topics, "us", RateLimited(log))  # type: ignore[arg-type]
    assert await third.load() == PLACES
    assert third.exact
    await third.close()
    assert [call.args for call in log.calls].count(("positions cannot be read",)) >= 2
