"""The claim of the tables, with which each start begins: where they end, their losses, and the epoch under which a job lands."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from headrace_common.operations.log import Log

from headrace_lake.kafka import gaps
from headrace_lake.kafka.source import Brokers, TopicInfo
from headrace_lake.kafka.start import Position, claimed_lines, coverage, strays
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import BATCHES, GAPS
from headrace_lake.tables.on_spark import Tables


class Claim:
    """Claims a new epoch. Everything here blocks on storage and Kafka."""

    def __init__(self, tables: Tables, brokers: Brokers, *, accept_loss: bool, log: Log) -> None:
        self._tables = tables
        self._brokers = brokers
        self._accept_loss = accept_loss
        self._log = log

    def begin(self, fence: Fence, topics: Mapping[str, TopicInfo]) -> tuple[int, Position]:
        """Returns the epoch that this claims, and how far the tables are. Raises `HaltError` before it claims if it can."""
        if not self._accept_loss:
            self.check_losses(topics)
        position = Position({}, {})
        epoch = fence.claim(lambda epoch: self._settle(topics, epoch, position))
        self._log.info("claimed the tables", epoch=epoch)
        return epoch, position

    def check_losses(self, topics: Mapping[str, TopicInfo]) -> None:
        """Raises `GapError` if Kafka lost records before they were landed or given up."""
        there = coverage(self._tables, topics)
        if losses := gaps.find(there, self._brokers, topics):
            raise gaps.refuse(losses, there.landed_at)

    def _settle(self, topics: Mapping[str, TopicInfo], epoch: int, position: Position) -> Mapping[str, pa.Table]:
        """Sees where the tables end, fills `position`, and returns the rows that go into the commits of the claim.

        Called when no other job can write events any more. It asks also for the first epoch which rows there are: they may be
        copies of others.
        """
        there = coverage(self._tables, topics)
        losses = gaps.find(there, self._brokers, topics)
        firsts = gaps.firsts(there, self._brokers, topics)
        position.strays = strays(self._tables, there.ends, topics)
        lines = claimed_lines(epoch, there, position.strays, firsts, topics)
        lost = {(loss.topic, loss.partition): loss.end for loss in losses if loss.end is not None}
        position.landed = firsts | there.ends | lost
        position.number, position.landed_at = there.number + len(lines), there.landed_at
        claimed = {BATCHES: lines} if len(lines) else {}
        if not losses:
            return claimed
        if not self._accept_loss:
            raise gaps.refuse(losses, there.landed_at)
        for loss in losses:
            self._log.warning("accepts a loss", lost=str(loss), reason=str(loss.reason))
        return {**claimed, GAPS: gaps.rows(self._tables, losses, epoch)}
