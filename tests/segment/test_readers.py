"""Reads beside the log's tail, when they are given up or Kafka is away."""

from __future__ import annotations

import asyncio
from headrace_segment.questions import Lost, ReadBytes
from headrace_segment.store.records import Create

from tests.segment.test_segments import Bench
from tests.segment.test_serving import Hears


async def test_a_read_that_is_given_up_at_once_is_answered() -> None:
    """Else the budgets would never get its bytes back."""
    bench, caller = Bench(), Hears("a")
    bench.partition.fold.apply(0, b"s", Create(bytes(16)).encode(), 1)
    bench.goes_live()
    bench.segments.ask(ReadBytes(1, "s", 0, 8), caller)
    bench.segments.ended(caller)
    for _ in range(5):
        await asyncio.sleep(0)
    assert caller.heard == [(1, Lost())]
