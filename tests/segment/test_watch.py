"""When a replica gives up what has waited for too long; in a time that passes only where work takes some."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from headrace_common.operations.tasks import LATE
from headrace_segment.replica.segments import LOOK, Segments

from tests.common.slowly import SlowLoop, slowly


def test_a_process_that_stood_still_hears_first_what_came_meanwhile() -> None:
    """Kafka's answers may have arrived, and readers have taken nothing because nothing was sent to them."""
    slowly(_stands_still)


async def _stands_still(loop: SlowLoop) -> None:
    looks: list[float] = []
    replica: Any = SimpleNamespace(
        _clock=loop.time,
        _settings=SimpleNamespace(kafka=SimpleNamespace(ack_deadline=300)),
        _end_early=lambda before: looks.append(loop.now),
        _producer=SimpleNamespace(overdue=lambda before: None),
        _partitions=[],
        _replies=SimpleNamespace(stalled=lambda now: []),
        _runtime=SimpleNamespace(ready_problems=list),
        _count=lambda: None,
    )
    watching = asyncio.create_task(Segments._watch(replica))
    await asyncio.sleep(2.5 * LOOK)
    assert len(looks) == 2
    loop.work(600)
    await asyncio.sleep(0.5 * LOOK)
    assert len(looks) == 2
    await asyncio.sleep(LOOK)
    assert len(looks) == 3
    for _ in range(4):
        loop.work(LOOK + LATE)
        await asyncio.sleep(0)
        await asyncio.sleep(0.1 * LOOK)
    assert len(looks) == 5, "it looks all the same where each turn of the loop takes long"
    watching.cancel()
    await asyncio.wait({watching})
