"""What a replay covers: rows of `batches`, in the order in which they were landed, cut into steps. No Spark, no Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace_lake.decode import quoted
from headrace_lake.source import Topic, TopicPartition

EVER: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Wanted:
    """What the operator asks for: from a time or from offsets on, up to a time or to offsets, or to all that was landed."""

    since: datetime | None = None
    until: datetime | None = None
    starts: Mapping[TopicPartition, int] | None = None
    ends: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True)
class Piece:
    """One row of `batches`: a range of one partition, what was said of it, and the first offset that Kafka still holds."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    held: int
    records: int
    events: int
    duplicates: int
    quarantined: int
    skipped: int
    epoch: int
    batch: int
    landed_at: datetime

    @property
    def whole(self) -> bool:
        """Kafka holds all of it."""
        return self.held == self.start

    @property
    def replayable(self) -> bool:
        """Kafka holds it; or a part, of which each record that is missing must have been landed once."""
        return self.whole or (self.held < self.end and not self.duplicates and not self.skipped)

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Records, events, duplicates, quarantined, skipped."""
        return self.records, self.events, self.duplicates, self.quarantined, self.skipped

    @property
    def place(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


def condition(
    wanted: Wanted,
    topics: Mapping[str, Topic],
    earliest: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int | None],
) -> str:
    """The rows of `batches` that `wanted` names, as SQL; also those whose records Kafka no longer holds.

    `starts`, `ends`: by partition that is wanted, None: beyond what Kafka has. A record lands after it was received: a
    batch that was landed before the time asked for has none of it.
    """
    since = "false" if wanted.since is None else f"landed_at >= timestamp'{wanted.since.isoformat(sep=' ')}'"
    conditions = []
    for (topic, number), start in starts.items():
        low = EVER if start is None else start
        here = f"topic_id = {quoted(topics[topic].id)} and partition = {number}"
        gone = f"(`to` <= {earliest[topic, number]} and {since})"
        end = ends.get((topic, number))
        conditions.append(f"({here} and `from` < {EVER if end is None else end} and (`to` > {low} or {gone}))")
    names = ", ".join(quoted(name) for name in topics)
    ids = ", ".join(quoted(topic.id) for topic in topics.values())
    conditions.append(f"(topic in ({names}) and topic_id not in ({ids}) and {since})")
    return " or ".join(conditions)


def steps(pieces: Iterable[Piece], most: int) -> Iterator[list[Piece]]:
    """Groups of pieces in their order, each of at most `most` offsets or of one piece, without a hole in any partition."""
    step: list[Piece] = []
    ends: dict[TopicPartition, int] = {}
    size = 0
    for piece in pieces:
        length = piece.end - piece.held
        if step and (size + length > most or ends.get(piece.place, piece.held) != piece.held):
            yield step
            step, ends, size = [], {}, 0
        step.append(piece)
        ends[piece.place] = piece.end
        size += length
    if step:
        yield step


def merged(pieces: Iterable[Piece]) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets of a step by partition."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for piece in pieces:
        start, end = ranges.get(piece.place, (piece.held, piece.end))
        ranges[piece.place] = (min(start, piece.held), max(end, piece.end))
    return ranges


class Absent:
    """Ranges that cannot be replayed, joined where they touch."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, int, str], list[list[int]]] = {}

    def add(self, piece: Piece, start: int, end: int, why: str) -> None:
        """Offsets of `piece`, and why they stay as they are."""
        ranges = self._ranges.setdefault((piece.topic, piece.partition, why), [])
        touching = next((pair for pair in ranges if pair[0] <= end and start <= pair[1]), None)
        if touching is None:
            ranges.append([start, end])
        else:
            touching[:] = [min(touching[0], start), max(touching[1], end)]

    def __iter__(self) -> Iterator[str]:
        for (topic, partition, why), ranges in sorted(self._ranges.items()):
            for start, end in ranges:
                yield f"{topic}/{partition}: {start} to {end - 1} ({why})"
