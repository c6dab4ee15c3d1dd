"""Offsets that Kafka deleted before they were landed: found, named, and once the operator accepts them, written down.

A gap is what lies before the first offset that Kafka still holds, or belongs to a topic that is no more. Offsets that a
reader never sees because a transaction was aborted or a topic compacted lie behind it: no gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headrace_common.event import GapReason
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.decode import quoted
from headrace_lake.halt import GapError, HaltError
from headrace_lake.source import Brokers, Topic
from headrace_lake.start import Covered, Ends, some
from headrace_lake.tables import EVENTS, GAPS, QUARANTINE, SCHEMAS

ACCEPT: Final = "--accept-loss"
_COMMAND: Final = f"python -m headrace_lake {ACCEPT}"


@dataclass(frozen=True, order=True)
class Loss:
    """Offsets of one partition that were not landed and that Kafka no longer holds: `start` included, `end` not."""

    topic: str
    topic_id: str
    partition: int | None  # None: unknown, and so is how many there were
    start: int
    end: int | None  # None: unknown, the topic is gone
    reason: GapReason

    def __str__(self) -> str:
        if self.partition is None:
            return f"{self.topic} (id {self.topic_id}, made anew): of all partitions"
        where = f"{self.topic}/{self.partition}"
        if self.end is None:
            return f"{where} (id {self.topic_id}, made anew): from {self.start} on"
        return f"{where}: {self.start} to {self.end - 1}"


def find(there: Covered, brokers: Brokers, topics: Mapping[str, Topic], known: Mapping[str, str]) -> list[Loss]:
    """What is lost between the tables (`there`) and the `topics` that exist now, in order; nothing that was accepted before.

    `known`: the ids that the topics had when the checkpoint was made. Blocks on Kafka. Raises `HaltError` when Kafka has
    less than what was landed.
    """
    ends = there.ends
    gone = _made_anew(there, topics, known)
    told = {loss.topic for loss in gone} | {topic for topic, _ in ends}
    # A partition that joined a topic after the tables had begun with it counts from its first offset.
    expected: Ends = {
        (name, number): ends.get((name, number), 0)
        for name, topic in topics.items()
        if name in told
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
        raise HaltError(f"the topic is shorter than what was landed of it: {some(short)}")
    overtaken = [
        Loss(name, topics[name].id, number, end, first[name, number], GapReason.RETENTION)
        for (name, number), end in expected.items()
        if first[name, number] > end
    ]
    return sorted(gone, key=str) + sorted(overtaken, key=str)


def refuse(losses: Iterable[Loss]) -> GapError:
    """What to tell the operator."""
    listed = list(losses)
    total = sum(loss.end - loss.start for loss in listed if loss.end is not None)
    named = some([str(loss) for loss in listed], 20)
    return GapError(
        f"Kafka no longer holds what was not landed yet, {total} offsets or more: {named}. Nothing behind it is landed until"
        f" the loss is accepted: {_COMMAND} (with the same settings) notes it in the table {GAPS} and goes on behind it"
    )


def rows(spark: SparkSession, lake: str, losses: Iterable[Loss], epoch: int) -> DataFrame:
    """`losses` as rows of the table of gaps, accepted now by the job that claims `epoch`. Blocks: counts rows in them."""
    moment = f"timestamp'{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
    values = []
    for loss in losses:
        own = {
            "reason": quoted(loss.reason),
            "topic": quoted(loss.topic),
            "topic_id": quoted(loss.topic_id),
            "partition": _literal(loss.partition),
            "from": _literal(loss.start),
            "to": _literal(loss.end),
            "rows": _literal(0 if loss.partition is None else _left_in(spark, lake, loss)),
            "covered": "false",
            "epoch": _literal(epoch),
            "landed_at": moment,
        }
        columns = ((field.name, field.dataType.simpleString()) for field in SCHEMAS[GAPS].fields)
        values.append("(" + ", ".join(f"cast({own.get(name, 'null')} as {kind})" for name, kind in columns) + ")")
    names = ", ".join(f"`{name}`" for name in SCHEMAS[GAPS].names)
    return spark.sql(f"select * from values {', '.join(values)} as gap({names})").coalesce(1)  # noqa: S608


def _left_in(spark: SparkSession, lake: str, loss: Loss) -> int:
    """How many rows of a loss an interrupted job had landed before Kafka deleted them."""
    offset = sf.col("offset")
    here = (sf.col("topic_id") == loss.topic_id) & (sf.col("partition") == loss.partition) & (offset >= loss.start)
    if loss.end is not None:
        here &= offset < loss.end
    return sum(spark.read.format("delta").load(f"{lake}/{table}").where(here).count() for table in (EVENTS, QUARANTINE))


def _made_anew(there: Covered, topics: Mapping[str, Topic], known: Mapping[str, str]) -> list[Loss]:
    """The rest of topics that were deleted and made anew, as far as that was not accepted yet."""
    found = [
        Loss(topic, topic_id, number, end, None, GapReason.RECREATED)
        for (topic, topic_id, number), end in there.former.items()
        if (topic_id, number) not in there.given_up
    ]
    never = [
        Loss(name, topic_id, None, 0, None, GapReason.RECREATED)
        for name, topic_id in known.items()
        if name in topics
        and topic_id != topics[name].id
        and (topic_id, None) not in there.given_up
        and not any(former == topic_id for _, former, _ in there.former)
    ]
    return found + never


def _literal(number: int | None) -> str:
    return "null" if number is None else f"{number}L"
