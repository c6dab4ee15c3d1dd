"""The plan of a replay: rows of `batches`, in the order of landing, cut into steps. No Spark, no Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from headrace_lake.kafka.source import TopicPartition


@dataclass(frozen=True)
class BatchRange:
    """One row of `batches`: a range of one partition, and the first offset of it that Kafka still holds."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    landed_at: datetime
    first_held: int

    @property
    def place(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay, or of a step."""

    offsets: int = 0
    events: int = 0
    quarantined: int = 0
    left_out: int = 0  # rows of the table of duplicates

    def __add__(self, other: ReplayResult) -> ReplayResult:
        return ReplayResult(
            self.offsets + other.offsets,
            self.events + other.events,
            self.quarantined + other.quarantined,
            self.left_out + other.left_out,
        )


class Step(NamedTuple):
    """One step: partition -> first offset, and one past the last; its rows land at `landed_at` under `version`."""

    ranges: Mapping[TopicPartition, tuple[int, int]]
    version: int
    landed_at: datetime


def steps(batch_ranges: Iterable[BatchRange], most: int) -> Iterator[list[BatchRange]]:
    """Yields groups of ranges, in order; each has at most `most` offsets, or one range, and no hole in any partition."""
    step: list[BatchRange] = []
    ends: dict[TopicPartition, int] = {}
    size = 0
    for batch_range in batch_ranges:
        length = batch_range.end - batch_range.first_held
        if step and (
            size + length > most or ends.get(batch_range.place, batch_range.first_held) != batch_range.first_held
        ):
            yield step
            step, ends, size = [], {}, 0
        step.append(batch_range)
        ends[batch_range.place] = batch_range.end
        size += length
    if step:
        yield step


def merged(batch_ranges: Iterable[BatchRange]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns partition -> first offset, and one past the last, of a step."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for batch_range in batch_ranges:
        start, end = ranges.get(batch_range.place, (batch_range.first_held, batch_range.end))
        ranges[batch_range.place] = (min(start, batch_range.first_held), max(end, batch_range.end))
    return ranges


def landing_time(step: Iterable[BatchRange], now: datetime) -> datetime:
    """Returns `landed_at` for the rows that `step` restores: `now`, but never before its batches landed.

    A clock may have been put back since; `landed_at` of a line of `batches` is the earliest of its rows.
    """
    return max(now, *(batch_range.landed_at for batch_range in step))


class Unreplayable:
    """Ranges that cannot be replayed; adjacent ranges are joined."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, int, str], list[list[int]]] = {}

    def add(self, batch_range: BatchRange, start: int, end: int, why: str) -> None:
        """Adds offsets of `batch_range`, and the reason."""
        ranges = self._ranges.setdefault((batch_range.topic, batch_range.partition, why), [])
        touching = next((pair for pair in ranges if pair[0] <= end and start <= pair[1]), None)
        if touching is None:
            ranges.append([start, end])
        else:
            touching[:] = [min(touching[0], start), max(touching[1], end)]

    def __iter__(self) -> Iterator[str]:
        for (topic, partition, why), ranges in sorted(self._ranges.items()):
            for start, end in ranges:
                yield f"{topic}/{partition}: {start} to {end - 1} ({why})"
