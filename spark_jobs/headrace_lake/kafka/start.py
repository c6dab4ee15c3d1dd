"""Where a job begins: where the last job ended by the table `batches`.

Never at "earliest" or "latest" for a partition that was landed before: the first would duplicate, the second would lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from headrace_common.record.contract import GapReason

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.source import TopicInfo, TopicPartition
from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.layout import BATCHES, SCHEMAS
from headrace_lake.tables.on_spark import Span, Tables

CLAIM: Final = -1
"""The number of the batch in a line of `batches` that a claim has added."""

EndOffsets = dict[TopicPartition, int]


@dataclass
class Position:
    """How far the tables are, by partition of the topics that exist now."""

    landed: EndOffsets
    """One past the last offset that `batches` covers, of each partition that this job has claimed."""
    strays: EndOffsets
    """One past the last offset of rows beyond `landed`, which a job left when shut out; only of partitions with such rows."""
    number: int = 0
    """That of the last line of `batches`."""
    landed_at: int | None = None
    """When the landing of the newest batch began, in Unix ms."""

    def add(self, ranges: Iterable[Range]) -> None:
        """Counts a batch that `batches` holds."""
        for topic, partition, _, end in ranges:
            self.landed[topic, partition] = end
            self.number += 1

    def has_strays(self, ranges: Iterable[Range]) -> bool:
        """Returns whether a job that was shut out may have left rows in `ranges`."""
        return any(start < self.strays.get((topic, number), 0) for topic, number, start, _ in ranges)

    def starting(self, topics: Mapping[str, TopicInfo]) -> dict[str, dict[str, int]]:
        """Returns Spark's `startingOffsets` for all partitions of `topics`."""
        return {
            name: {str(number): self.landed[name, number] for number in range(topic.partitions)}
            for name, topic in topics.items()
        }


@dataclass(frozen=True)
class Coverage:
    """The offsets of the topics that the tables cover, by `batches` and by the accepted gaps."""

    ends: EndOffsets
    """One past the last covered offset, by partition of the topics that exist now."""
    former: Mapping[tuple[str, str, int], int]
    """The same for deleted topics with these names; by (name, Kafka's id, partition)."""
    given_up: frozenset[tuple[str, int | None]]
    """(Kafka's id, partition) of deleted topics whose remaining offsets were accepted as lost."""
    number: int = 0
    """That of the last line of `batches`."""
    landed_at: int | None = None
    """When the landing of the newest batch began, in Unix ms."""


def coverage(tables: Tables, topics: Mapping[str, TopicInfo]) -> Coverage:
    """Returns the offsets of `topics` that the tables cover. Blocks: one query."""
    names = {topic.id: name for name, topic in topics.items()}
    rows = tables.sums()
    ends: EndOffsets = {}
    former: dict[tuple[str, str, int], int] = {}
    for row in rows:
        if row.end is None:
            continue
        if row.topic_id in names:
            pair = (names[row.topic_id], row.partition)
            ends[pair] = max(ends.get(pair, 0), row.end)
        elif row.topic in topics:
            key = (row.topic, row.topic_id, row.partition)
            former[key] = max(former.get(key, 0), row.end)
    return Coverage(
        ends,
        former,
        frozenset((row.topic_id, row.partition) for row in rows if row.reason == GapReason.RECREATED),
        max((row.number for row in rows), default=0),
        max((row.time for row in rows if row.time is not None), default=None),
    )


def strays(tables: Tables, landed: EndOffsets, topics: Mapping[str, TopicInfo]) -> EndOffsets:
    """Returns, for partitions with rows beyond `landed`, one past the last offset. Blocks; reads only the newest files."""
    names = {topic.id: name for name, topic in topics.items()}
    beyond = [
        Span(topic.id, number, landed.get((name, number), 0))
        for name, topic in topics.items()
        for number in range(topic.partitions)
    ]
    return {(names[topic_id], number): held.last + 1 for (topic_id, number), held in tables.held(beyond).items()}


def spans(ranges: Iterable[Range], ids: Mapping[str, str]) -> list[Span]:
    """Returns `ranges` by Kafka's ids of their topics."""
    return [Span(ids[topic], number, start, end) for topic, number, start, end in ranges]


def claimed_lines(
    epoch: int, there: Coverage, strays: EndOffsets, firsts: EndOffsets, topics: Mapping[str, TopicInfo]
) -> pa.Table:
    """Returns the lines of `batches` that the claim of `epoch` adds: of partitions that are claimed for the first time, where
    they begin (`firsts`), and of partitions with `strays`. They cover no offset.
    """
    lines = []
    for number, (topic, partition) in enumerate(sorted(firsts.keys() | strays.keys()), there.number + 1):
        at = there.ends.get((topic, partition), firsts.get((topic, partition), 0))
        line = dict.fromkeys(SCHEMAS[BATCHES].names, 0) | {
            "epoch": epoch, "batch": CLAIM, "topic": topic, "topic_id": topics[topic].id, "partition": partition, "from": at,
            "to": at, "strays": strays.get((topic, partition)), "landed_at": datetime.now(UTC), "number": number,
        }  # fmt: skip
        lines.append(line)
    return arrow_rows(lines, SCHEMAS[BATCHES])
