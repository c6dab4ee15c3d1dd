"""Reads what the events topic holds behind the tables' ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from headrace_common.kafka.client import explain, make_consumer, start
from headrace_common.kafka.topic_ids import KnownTopic, known_topics
from headrace_common.operations.errors import CommandError
from headrace_common.operations.settings import KafkaSettings

MOST_RECORDS: Final = 1_000_000
"""Records that are read behind the tables' ends, at most."""
MOST_BYTES: Final = 512 << 20
"""Bytes of the rows that they become, at most: they are held in memory."""
_AT_ONCE: Final = 10_000
"""Records that are handed over together, at most."""
_STEP: Final = 0.5
"""Seconds of one wait for records."""


class TablesAloneError(Exception):
    """The records behind the tables' ends cannot be shown; the text says why."""


@dataclass(frozen=True)
class Landed:
    """How far the tables are."""

    ends: Mapping[tuple[str, int], int]
    """(Kafka's id of the topic, partition) -> one past the last offset that is accounted for."""
    known: bool
    """Whether a topic of this name was claimed, under any id."""


async def read(settings: KafkaSettings, landed: Landed, take: Callable[[str, list[Any]], int]) -> None:
    """Gives `take` the topic's id and the committed records behind the tables, up to the present ends of the partitions.

    `take` returns how many bytes of them it keeps. Raises `TablesAloneError` if Kafka has lost a part of them or there are more
    than the limits, `CommandError` if it does not answer.
    """
    name = settings.events_topic
    try:
        topic = (await known_topics(settings, [name])).get(name)
        if topic is None:
            return
        consumer = make_consumer(settings, isolation_level="read_committed")
        places = [TopicPartition(name, number) for number in topic.partitions]
        consumer.assign(places)  # once: aiokafka's `stop` may wait for ever soon after another assignment
        await start(consumer)
        try:
            await _read(
                settings, consumer, await _ends(consumer, places, topic, landed), lambda found: take(topic.id, found)
            )
        finally:
            await consumer.stop()
        if (await known_topics(settings, [name])).get(name) != topic:
            raise TablesAloneError("the topic was made again, or given partitions, at this moment")
    except OffsetOutOfRangeError as error:
        raise TablesAloneError("Kafka deletes what has not landed") from error
    except (KafkaError, OSError) as error:
        raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error


async def _ends(
    consumer: AIOKafkaConsumer, places: list[TopicPartition], topic: KnownTopic, landed: Landed
) -> dict[TopicPartition, int]:
    """Returns the ends of the partitions that hold more; `consumer` is where a landing job that starts now would begin."""
    first, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    # a partition that was added begins at 0; of a topic that nobody has claimed yet, where Kafka does
    starts = {each: landed.ends.get((topic.id, each.partition), 0 if landed.known else first[each]) for each in places}
    for place, at in starts.items():
        if not first[place] <= at <= ends[place]:
            raise TablesAloneError(f"Kafka does not hold what follows the tables in {place.topic}/{place.partition}")
    if (count := sum(ends.values()) - sum(starts.values())) > MOST_RECORDS:
        raise TablesAloneError(f"{count:,} records have not landed, more than {MOST_RECORDS:,}")
    for place, at in starts.items():
        consumer.seek(place, at)
    return {place: end for place, end in ends.items() if starts[place] < end}


async def _read(
    settings: KafkaSettings,
    consumer: AIOKafkaConsumer,
    ends: Mapping[TopicPartition, int],
    take: Callable[[list[Any]], int],
) -> None:
    held, waited = 0, 0.0
    while ends:
        found = await consumer.getmany(*ends, timeout_ms=int(_STEP * 1000), max_records=_AT_ONCE)
        there = [record for place, records in found.items() for record in records if record.offset < ends[place]]
        held += take(there)
        if held > MOST_BYTES:
            raise TablesAloneError(f"more than {MOST_BYTES >> 20} MiB have not landed")
        # behind the last record may be the ends of transactions
        ends = {place: end for place, end in ends.items() if await consumer.position(place) < end}
        waited = 0.0 if found else waited + _STEP
        if waited > settings.request_timeout:
            raise CommandError(f"Kafka at {settings.bootstrap_servers} does not send what it holds.")
