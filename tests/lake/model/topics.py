"""Kafka: topics whose records have offsets, times and ids. What the job asks of it is `Brokers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headrace_lake.kafka.source import TopicInfo, TopicPartition
from headrace_lake.spark.halt import KafkaAwayError

EVENTS, QUARANTINE = "e", "q"


@dataclass(frozen=True)
class Record:
    """`id` is empty for a record that is no event. `time`: Kafka's timestamp, ms."""

    offset: int
    time: int
    id: str


@dataclass
class Partition:
    """`start`: the first offset that is still there; `end`: one past the last. Offsets of aborted records are holes."""

    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, time: int, event_id: str) -> None:
        self.records.append(Record(self.end, time, event_id))
        self.end += 1


@dataclass
class Topic:
    id: str
    partitions: list[Partition]


class Kafka:
    """The topics that exist now, and those that were deleted. `away_until`: a step."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.former: list[tuple[str, Topic]] = []
        self.away_until = 0
        self._made = 0

    def make(self, name: str, partitions: int) -> None:
        """Makes a topic, and deletes the one of that name."""
        if name in self.topics:
            self.former.append((name, self.topics[name]))
        self._made += 1
        self.topics[name] = Topic(f"id{self._made}", [Partition() for _ in range(partitions)])

    def of_id(self, topic_id: str) -> tuple[str, Topic]:
        for name, topic in [*self.topics.items(), *self.former]:
            if topic.id == topic_id:
                return name, topic
        raise KeyError(topic_id)


class Brokers:
    """In place of `headrace_lake.kafka.source.Brokers`."""

    def __init__(self, kafka: Kafka, step: Callable[[], None], steps: Callable[[], int]) -> None:
        self._kafka = kafka
        self._step = step
        self._steps = steps

    def _ask(self) -> None:
        self._step()
        if self._steps() < self._kafka.away_until:
            raise KafkaAwayError("Kafka does not answer")

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self._ask()
        there = self._kafka.topics
        return {name: TopicInfo(there[name].id, len(there[name].partitions)) for name in names if name in there}

    def offsets(self, partitions: Iterable[TopicPartition], *, earliest: bool) -> dict[TopicPartition, int]:
        self._ask()
        found = {}
        for name, number in partitions:
            partition = self._partition(name, number)
            found[name, number] = partition.start if earliest else partition.end
        return found

    def _partition(self, name: str, number: int) -> Partition:
        there = self._kafka.topics[name].partitions
        if number >= len(there):
            raise KafkaAwayError("a topic was made anew")
        return there[number]

    def close(self) -> None:
        pass
