"""Two replicas behind one address, killed at any point, and writers that come back with other bytes: every promise holds."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver, Receivers
from tests.contract.topic import now
from tests.segment.client import segment_topics
from tests.segment.replicas import EVENT_BYTES, Balancer, History, violations
from tests.tiers import sized

pytestmark = pytest.mark.kafka
HISTORIES = sized(2, 10, 100)


@pytest.fixture(scope="module")
def replicas(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Receiver]]:
    topics = segment_topics(kafka.bootstrap)
    settings: dict[str, dict[str, object]] = {
        "limits": {"event_bytes": EVENT_BYTES},
        "segment": {"tail_wait": 0.2, "checkpoint_records": 500},
    }
    with Receivers("segment", topics, tmp_path_factory.mktemp("replicas")) as receivers:
        made = [receivers.make(**settings) for _ in range(2)]
        for each in made:
            each.spawn()
        for each in made:
            now(each.listens())
        yield made


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_histories_of_two_replicas(seed: int, replicas: list[Receiver]) -> None:
    async with Balancer(replicas, random.Random(seed)) as balancer:
        history = History(seed, replicas, balancer)
        await history.run()
        assert await violations(history, replicas[0].kafka) == []
    assert history.cuts  # the history was as bad as it is meant to be
