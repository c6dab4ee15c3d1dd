"""What the events topic holds behind the tables' ends."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from headrace_common.kafka.client import consuming, explain
from headrace_common.operations.errors import CommandError
from headrace_common.operations.settings import KafkaSettings

from headrace_reader.fresh.rows import SCHEMA, table
from headrace_reader.topic_ids import known_topics

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


Place = tuple[str, int]
"""Kafka's id of a topic, and a partition."""


class Tail:
    """The rows of the committed records behind the tables. It keeps what it has read: another look reads only what is new."""

    def __init__(self) -> None:
        self.topic_id = ""
        self._chunks: dict[Place, list[pa.Table]] = {}  # in the order of their offsets
        self._read: dict[Place, int] = {}  # one past the last offset that was read

    @property
    def rows(self) -> pa.Table:
        """All rows, and at most a few that have landed meanwhile."""
        return pa.concat_tables([SCHEMA.empty_table(), *chain(*self._chunks.values())])

    async def look(self, settings: KafkaSettings, landed: Mapping[Place, int], *, known: bool) -> None:
        """Reads up to the present ends of the partitions, and forgets what has landed. `landed`: one past the last offset that
        the tables account for; `known`: whether a topic of this name was claimed, under any id.

        Raises `TablesAloneError` if Kafka has lost a part or there is more than the limits, `CommandError` if it does not answer.
        Then it has forgotten all.
        """
        try:
            await self._look(settings, landed, known)
        except BaseException as error:
            self._chunks, self._read = {}, {}
            if isinstance(error, OffsetOutOfRangeError):
                raise TablesAloneError("Kafka deletes what has not landed") from error
            if isinstance(error, KafkaError | OSError):
                raise CommandError(f"Kafka at {settings.bootstrap_servers}: {explain(error)}") from error
            raise

    async def _look(self, settings: KafkaSettings, landed: Mapping[Place, int], known: bool) -> None:
        name = settings.events_topic
        topic = (await known_topics(settings, [name])).get(name)
        if topic is None:
            self._chunks, self._read = {}, {}
            return
        self.topic_id = topic.id
        places = [TopicPartition(name, number) for number in topic.partitions]
        async with consuming(settings, places, isolation_level="read_committed") as consumer:
            await self._follow(settings, consumer, await self._ends(consumer, places, landed, known))
        if (await known_topics(settings, [name])).get(name) != topic:
            raise TablesAloneError("the topic was made again, or given partitions, at this moment")

    async def _ends(
        self, consumer: AIOKafkaConsumer, places: list[TopicPartition], landed: Mapping[Place, int], known: bool
    ) -> dict[TopicPartition, int]:
        """Returns the ends of the partitions that hold more; `consumer` is where a landing job that starts now would begin, or
        behind what is known. Forgets what has landed, and other topics.
        """
        first, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        starts, chunks = dict[TopicPartition, int](), dict[Place, list[pa.Table]]()
        unlanded = 0
        for place in places:
            key = self.topic_id, place.partition
            # a partition that was added begins at 0; of a topic that nobody has claimed yet, where Kafka does
            at = landed.get(key, 0 if known else first[place])
            unlanded += ends[place] - at
            chunks[key] = [chunk for chunk in self._chunks.get(key, ()) if chunk["offset"][-1].as_py() >= at]
            starts[place] = max(at, self._read.get(key, at))
            if not first[place] <= starts[place] <= ends[place]:
                raise TablesAloneError(
                    f"Kafka does not hold what follows the tables in {place.topic}/{place.partition}"
                )
            consumer.seek(place, starts[place])
        if unlanded > MOST_RECORDS:
            raise TablesAloneError(f"{unlanded:,} records have not landed, more than {MOST_RECORDS:,}")
        self._chunks, self._read = chunks, {(self.topic_id, place.partition): end for place, end in ends.items()}
        return {place: end for place, end in ends.items() if starts[place] < end}

    async def _follow(
        self, settings: KafkaSettings, consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
    ) -> None:
        """Reads up to `ends`."""
        waited = 0.0
        while ends:
            found = await consumer.getmany(*ends, timeout_ms=int(_STEP * 1000), max_records=_AT_ONCE)
            for place, records in found.items():
                chunk = table(record for record in records if record.offset < ends[place])
                if chunk.num_rows:
                    self._chunks[self.topic_id, place.partition].append(chunk)
            if sum(chunk.nbytes for chunk in chain(*self._chunks.values())) > MOST_BYTES:
                raise TablesAloneError(f"more than {MOST_BYTES >> 20} MiB have not landed")
            # behind the last record may be the ends of transactions
            ends = {place: end for place, end in ends.items() if await consumer.position(place) < end}
            waited = 0.0 if found else waited + _STEP
            if waited > settings.request_timeout:
                raise CommandError(f"Kafka at {settings.bootstrap_servers} does not send what it holds.")
