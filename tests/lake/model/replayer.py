"""A replay: the product's own, but for the query that finds resends."""

from __future__ import annotations

from typing import Any

from headrace_lake.commands.replay import Replay, ReplayResult
from headrace_lake.commands.replay_plan import BatchRange, ReplayRequest
from headrace_lake.tables.fence import REPLAYED, transaction

from tests.lake.model.job import Ignored, World
from tests.lake.model.session import Spark


class Replayer(Replay):
    """Replays all that Kafka holds."""

    def __init__(self, world: World, lake: str) -> None:
        everything = {
            (name, number): 0 for name, topic in world.kafka.topics.items() for number in range(len(topic.partitions))
        }
        log: Any = Ignored()
        session: Any = Spark(world)
        super().__init__(session, world.settings(lake), ReplayRequest(starts=everything), dry_run=False, log=log)
        self._world = world

    def _step(self, step: list[BatchRange], number: int) -> ReplayResult:
        version = transaction(self._epoch, REPLAYED + number)
        self._world.began.setdefault((self._lake, version), self._world.clock)
        return super()._step(step, number)
