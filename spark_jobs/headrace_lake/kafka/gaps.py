"""Offsets that Kafka deleted before they were landed: finds them, names them, and records them once the operator accepts.

A gap lies before the first offset that Kafka still holds, or belongs to a topic that no longer exists. Offsets that no reader
sees, because a transaction was aborted or a topic compacted, come after that first offset: they are not gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from headrace_common.record.contract import GapReason

from headrace_lake.configuration import ACCEPT
from headrace_lake.kafka.source import Brokers, TopicInfo
from headrace_lake.kafka.start import Coverage, EndOffsets
from headrace_lake.spark.halt import GapError, HaltError
from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.layout import GAPS, SCHEMAS
from headrace_lake.tables.on_spark import ENDLESS, Span, Tables

_COMMAND: Final = f"python -m headrace_lake {ACCEPT} (with the same settings; of a stack: headrace up {ACCEPT})"


@dataclass(frozen=True, order=True)
class Loss:
    """Offsets of one partition that never landed and that Kafka no longer holds: from `start` up to but not including `end`."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int | None  # None: unknown, the topic no longer exists
    reason: GapReason

    def __str__(self) -> str:
        where = f"{self.topic}/{self.partition}"
        if self.end is None:
            return f"{where} (id {self.topic_id}, recreated): from {self.start} on"
        return f"{where}: {self.start} to {self.end - 1}"


def find(coverage: Coverage, brokers: Brokers, topics: Mapping[str, TopicInfo]) -> list[Loss]:
    """Returns the losses between the tables (`coverage`) and the `topics` that exist now, sorted; without those accepted before.

    Blocks on Kafka. Raises `HaltError` if Kafka holds less than the tables.
    """
    ends = coverage.ends
    gone = _recreated(coverage)
    claimed = {loss.topic for loss in gone} | {topic for topic, _ in ends}
    # A partition that was added to a topic after its claim, or is of a topic that was recreated, counts from offset 0.
    expected: EndOffsets = {
        (name, number): ends.get((name, number), 0)
        for name, topic in topics.items()
        if name in claimed
        for number in range(topic.partitions)
    }
    first = brokers.offsets(expected, earliest=True)
    last = brokers.offsets(expected, earliest=False)
    short = [
        f"{t}/{p}: landed to {end}, ends at {last[t, p]}"
        for (t, p), end in sorted(expected.items())
        if last[t, p] < end
    ]
    if short:
        raise HaltError(f"the topic is shorter than what was landed of it: {_first(short, 5)}")
    overtaken = [
        Loss(name, topics[name].id, number, end, first[name, number], GapReason.RETENTION)
        for (name, number), end in expected.items()
        if first[name, number] > end
    ]
    return sorted(gone, key=str) + sorted(overtaken, key=str)


def firsts(coverage: Coverage, brokers: Brokers, topics: Mapping[str, TopicInfo]) -> EndOffsets:
    """Returns where the partitions begin that are claimed for the first time: what Kafka has deleted before is no loss.

    One that was added, or whose topic was recreated, begins at 0. Blocks on Kafka.
    """
    claimed = {topic for topic, _ in coverage.ends} | {topic for topic, _, _ in coverage.former}
    new = [
        (name, n) for name, topic in topics.items() for n in range(topic.partitions) if (name, n) not in coverage.ends
    ]
    return dict.fromkeys(new, 0) | brokers.offsets([pair for pair in new if pair[0] not in claimed], earliest=True)


def refuse(losses: Iterable[Loss], landed_at: int | None) -> GapError:
    """Returns the error that tells the operator about `losses`. `landed_at`: when the newest batch began, in Unix ms; None: none
    has landed.
    """
    listed = list(losses)
    total = sum(loss.end - loss.start for loss in listed if loss.end is not None)
    named = _first([str(loss) for loss in listed], 20)
    until = f"at {datetime.fromtimestamp(landed_at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if landed_at else "never"
    return GapError(
        f"Kafka no longer holds what was not landed yet, {total} offsets or more: {named}. A batch landed last {until}. Nothing"
        f" after it lands until you accept the loss: {_COMMAND} records it in the table {GAPS} and continues after it"
    )


def rows(tables: Tables, losses: Iterable[Loss], epoch: int) -> pa.Table:
    """Returns `losses` as rows of the table of gaps, accepted now by the job that claims `epoch`. Blocks: it counts
    rows in them.
    """
    now = datetime.now(UTC)
    values = [
        {
            "reason": str(loss.reason),
            "topic": loss.topic,
            "topic_id": loss.topic_id,
            "partition": loss.partition,
            "from": loss.start,
            "to": loss.end,
            "rows": _left_in(tables, loss),
            "epoch": epoch,
            "landed_at": now,
        }
        for loss in losses
    ]
    return arrow_rows(values, SCHEMAS[GAPS])


def _left_in(tables: Tables, loss: Loss) -> int:
    """Returns how many rows within a loss an interrupted job had landed before Kafka deleted the records, also erased ones."""
    span = Span(loss.topic_id, loss.partition, loss.start, ENDLESS if loss.end is None else loss.end)
    return sum(held.rows for held in tables.held([span]).values())


def _first(items: list[str], shown: int) -> str:
    """Returns the first few of `items` in one line, and how many more there are."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return "; ".join(items[:shown]) + more


def _recreated(coverage: Coverage) -> list[Loss]:
    """Returns the losses in topics that were deleted and recreated, unless already accepted."""
    return [
        Loss(topic, topic_id, number, end, None, GapReason.RECREATED)
        for (topic, topic_id, number), end in coverage.former.items()
        if (topic_id, number) not in coverage.given_up
    ]
