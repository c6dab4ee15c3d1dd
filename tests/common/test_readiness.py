"""When a service calls itself ready."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.settings import OpsSettings, ServiceSettings
from headrace_common.publishing.publisher import Publisher
from headrace_common.service import service
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import Service
from typing_extensions import override


class Door(Endpoint):
    """A listener that writes down what its service says of itself."""

    def __init__(self, runtime: Runtime[Any]) -> None:
        self.runtime = runtime
        self.heard: list[list[str]] = []

    @override
    async def bind(self) -> str:
        return "here"

    @override
    def start(self) -> None:
        self.heard.append(self.runtime.ready_problems())
        asyncio.get_running_loop().call_soon(lambda: self.heard.append(self.runtime.ready_problems()))

    @override
    async def close(self) -> None: ...


async def test_a_service_is_ready_once_its_listeners_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka answers and its own parts have started a few turns of the loop earlier."""

    async def start(publisher: Publisher, topics: Any) -> None: ...

    monkeypatch.setattr(Publisher, "start", start)
    monkeypatch.setattr(service, "configure", lambda *_: structlog.get_logger())  # not for all tests of this process
    monkeypatch.setattr(Publisher, "ready_problems", lambda publisher: [])
    doors: list[Door] = []

    def build(runtime: Runtime[ServiceSettings]) -> Parts:
        doors.append(Door(runtime))
        return Parts(doors)

    settings = ServiceSettings(ops=OpsSettings(host="127.0.0.1", port=0))
    running = asyncio.create_task(Service("forward", settings, build).run())
    try:
        async with asyncio.timeout(60):
            while not doors or len(doors[0].heard) < 2:  # noqa: ASYNC110  (a condition of doubles)
                await asyncio.sleep(0)
        assert doors[0].heard == [["starting"], []]
    finally:
        running.cancel()
        await asyncio.wait({running})
