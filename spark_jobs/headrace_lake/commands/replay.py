"""Replay: `batches` forgets its last lines, and the job that begins then lands the ranges of these lines again.

For that job the rows of these ranges are what an older job left when it was shut out. It leaves out what is in a table, by
(topic_id, partition, offset), and lands the rest as it lands any batch: a resend of what is there stays left out, and what was
erased never comes back. If the replay is killed, any job goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from headrace_common.operations.log import Log

from headrace_lake.kafka.source import Brokers
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables import layout
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import BATCHES, EVENTS, QUARANTINE
from headrace_lake.tables.on_spark import Line, Tables

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Limits(NamedTuple):
    """How far back a job can begin."""

    since: datetime
    """What landed before stays as it is."""
    kept_from: datetime
    """Retention may have dropped rows that landed before."""
    gaps: int
    """The epoch of the last gap; 0 without any."""
    earliest: Mapping[tuple[str, int], int]
    """First offset that Kafka holds, by Kafka's id of the topic and partition."""

    def refuse(self, line: Line) -> str | None:
        """Returns why no job can begin before `line`; empty if nobody asks for it. None: it can."""
        if line.landed_at < self.since:
            return ""
        place = f"{line.topic}/{line.partition} from {line.start} on"
        first = self.earliest.get((line.topic_id, line.partition))
        if first is None:
            return f"{place}: Kafka no longer has that topic"
        if line.start < first:
            return f"{place}: Kafka no longer holds it"
        if line.epoch < self.gaps:
            return f"{place}: a loss was accepted since"
        # without this line, a topic that is recreated would not be known as such
        if line.start == line.end and line.strays is None:
            return f"{place}: its first claim"
        if line.start < line.end and line.landed_at < self.kept_from:
            return f"{place}: the tables no longer keep that day (LAKE__RETENTION_DAYS)"
        return None


def go_back(tables: Tables, brokers: Brokers, names: Iterable[str], since: datetime, log: Log) -> int | None:
    """Makes `batches` forget what landed at `since` or later, as far as Kafka holds it; if there is any, shuts out every job.

    `names`: of the topics. Returns the number of the first line that it forgets; None if there is none. Blocks. Raises
    `HaltError` without tables, or if another job takes over, and `KafkaAwayError`.
    """
    if not tables.storage.exists(f"{tables.path(BATCHES)}/_delta_log"):
        raise HaltError(f"there are no tables in {tables.lake}: nothing was landed that a replay could restore")
    layout.create(tables.storage, tables.lake)
    fence = Fence(tables)
    look = partial(_first_line, tables, brokers, names, since, fence)
    first, why = look()
    if first is not None:  # else a claim would only hide from the proof what a killed job has left
        epoch = fence.claim()
        log.info("claimed the tables", epoch=epoch)
        first, why = look()  # now no job lands anything
        if first is not None:
            fence.forget_lines(first, epoch)
    if why:
        log.warning("no replay before it", offsets=why)
    log.info("goes back", lines=first and f"{first} and later")
    return first


def _first_line(
    tables: Tables, brokers: Brokers, names: Iterable[str], since: datetime, fence: Fence
) -> tuple[int | None, str | None]:
    """Returns the number of the first line that a replay can forget, and why not one before."""
    topics = brokers.topics(names)
    pairs = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
    earliest = {(topics[name].id, number): at for (name, number), at in brokers.offsets(pairs, earliest=True).items()}
    kept_from = _1970 + timedelta(days=max(0, *(fence.kept_from(table) for table in (EVENTS, QUARANTINE))))
    limits = Limits(since, kept_from, tables.last_gap(), earliest)
    first = why = None
    for line in tables.lines():
        if (why := limits.refuse(line)) is not None:
            break
        first = line.number
    return first, why
