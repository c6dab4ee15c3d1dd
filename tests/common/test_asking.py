"""How Kafka's client asks its brokers what there is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from headrace_common.kafka.client import LOOKS, look

from tests.common.slowly import SlowLoop, slowly


def test_brokers_are_asked_a_few_times_a_second() -> None:
    """While a batch waited for a leader, each receiver asked 1,800 times a second, at half a core on both sides."""
    slowly(_asks)


async def _asks(loop: SlowLoop) -> None:
    asked: list[float] = []

    async def ask(client: object, topics: str) -> bool:
        asked.append(loop.now)
        return topics == "topics"

    client = cast("Any", SimpleNamespace())
    for _ in range(3 * LOOKS + 1):
        assert await look(client, "topics", ask=ask)
    assert asked[LOOKS - 1] == 0, "the first ones do not wait"
    assert [later - sooner for sooner, later in zip(asked, asked[LOOKS:], strict=False)] == [1] * (2 * LOOKS + 1)
    loop.work(60)
    assert await look(client, "topics", ask=ask)
    assert asked[-1] == loop.now == 63
