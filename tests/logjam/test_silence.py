"""When an endpoint counts as silent; in a time that passes only where work takes some."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import structlog
from headrace_logjam.devices.endpoints import LOOK, SILENCE, Subscription

from tests.common.slowly import SlowLoop, slowly


def test_a_process_that_stood_still_was_not_spoken_to() -> None:
    """What its devices have said meanwhile is in the system's buffers, and a new connection would lose it."""
    slowly(_stands_still)


async def _stands_still(loop: SlowLoop) -> None:
    said: list[tuple[str, float]] = []
    runtime: Any = SimpleNamespace(receiver=SimpleNamespace(limited=structlog.get_logger()))
    nothing: Any = None
    subscription = Subscription(runtime, nothing, nothing, nothing, lambda: None, "one", "tcp://127.0.0.1:9606")
    made: Any = SimpleNamespace(
        disconnect=lambda address: said.append(("disconnect", loop.now)),
        connect=lambda address: said.append(("connect", loop.now)),
    )
    connection: Any = SimpleNamespace(closed=asyncio.Event())
    session: Any = SimpleNamespace(read=lambda **more: None)
    watching = asyncio.create_task(subscription._watch(made, connection, session))
    await asyncio.sleep(5)
    loop.work(2 * SILENCE)
    stood_until = loop.now
    await asyncio.sleep(SILENCE + 3 * LOOK)
    assert [word for word, _ in said] == ["disconnect", "connect"]
    assert said[0][1] >= stood_until + SILENCE
    connection.closed.set()
    await watching
