"""The properties that all batches of one epoch share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace_common.operations.log import Log

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.start import Position
from headrace_lake.rows.decode import Topics
from headrace_lake.tables.fence import Fence


@dataclass(frozen=True)
class Epoch:
    """One job's time as the only writer of the tables."""

    number: int
    topics: Topics
    fence: Fence
    position: Position
    log: Log

    def among_strays(self, ranges: Iterable[Range]) -> bool:
        """Returns whether a job that was shut out may have left rows in `ranges`."""
        return any(start < self.position.strays.get((topic, number), 0) for topic, number, start, _ in ranges)
