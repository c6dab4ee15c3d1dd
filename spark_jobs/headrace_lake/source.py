"""Kafka as the landing job sees it: options for Spark's source, topic ids, offsets. Uses Kafka's own client in the JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from headrace_common.settings import KafkaSettings
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace_lake.causes import kafka_is_away, root_cause
from headrace_lake.halt import HaltError, KafkaAwayError
from headrace_lake.jvm import java_class

_ANSWER_TIME: Final = 30  # seconds for one answer of the brokers
_OFFSET_SPEC: Final = "org.apache.kafka.clients.admin.OffsetSpec"


@dataclass(frozen=True)
class Topic:
    """A topic: Kafka's id of it, which no other topic ever has, and its number of partitions."""

    id: str
    partitions: int


TopicPartition = tuple[str, int]


def client_options(settings: KafkaSettings) -> dict[str, str]:
    """Kafka's own client options for `settings`."""
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
    }
    if settings.security_protocol.startswith("SASL"):
        module = "plain.Plain" if settings.sasl_mechanism == "PLAIN" else "scram.Scram"
        user, password = _quoted(settings.sasl_username), _quoted(settings.sasl_password.get_secret_value())
        options["sasl.mechanism"] = settings.sasl_mechanism
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required username={user} password={password};"
        )
    if settings.ca is not None and settings.security_protocol.endswith("SSL"):
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = str(settings.ca.absolute())
    return options


_FETCH_WAIT: Final = "10"
"""Milliseconds that a broker waits for records to come. Spark reads only what is there; behind its end the consumer asks for more
all the same, and when a partition is read a second time (a batch's quarantine) that answer is waited for: half a second each."""


def source_options(settings: KafkaSettings, starting: Mapping[str, Mapping[str, int]], most: int) -> dict[str, str]:
    """Options for Spark's Kafka source: both topics from `starting`, at most `most` records in a batch."""
    return {
        **{f"kafka.{name}": value for name, value in client_options(settings).items()},
        "kafka.isolation.level": "read_committed",  # what a producer aborted was never sent
        "kafka.fetch.max.wait.ms": _FETCH_WAIT,
        "subscribe": f"{settings.events_topic},{settings.quarantine_topic}",
        "includeHeaders": "true",
        "startingOffsets": json.dumps(starting),
        "maxOffsetsPerTrigger": str(most),
        "failOnDataLoss": "true",
    }


def range_options(settings: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, str]:
    """Options for one bounded read of `ranges`: first offset, and one past the last, of each partition."""
    assigned: dict[str, list[int]] = {}
    ends: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = ({}, {})
    for (topic, partition), pair in ranges.items():
        assigned.setdefault(topic, []).append(partition)
        for side, offset in zip(ends, pair, strict=True):
            side.setdefault(topic, {})[str(partition)] = offset
    options = source_options(settings, {}, 1)
    for name in ("subscribe", "maxOffsetsPerTrigger"):
        del options[name]
    return {
        **options,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(ends[0]),
        "endingOffsets": json.dumps(ends[1]),
    }


class Brokers:
    """Asks the brokers. Every call blocks up to `_ANSWER_TIME` seconds; raises `KafkaAwayError` when none answers."""

    def __init__(self, spark: SparkSession, settings: KafkaSettings) -> None:
        self._class = partial(java_class, spark)
        self._settings = settings
        self._admin: Any = None

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of `names` that exist. Raises `HaltError` when they may not be described."""
        found = {}
        answers = self._client().describeTopics(self._list(names)).topicNameValues()
        for name in names:
            try:
                description = self._wait(answers.get(name))
            except _UnknownTopicError:
                continue
            found[name] = Topic(description.topicId().toString(), description.partitions().size())
        return found

    def offsets(self, partitions: Iterable[TopicPartition], *, earliest: bool) -> dict[TopicPartition, int]:
        """The first offset still there (`earliest`), or one past the last that a reader of committed records sees."""
        spec = self._class(_OFFSET_SPEC)
        return self._offsets(partitions, spec.earliest() if earliest else spec.latest())

    def _offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        wanted = self._class("java.util.HashMap")()
        place = self._class("org.apache.kafka.common.TopicPartition")
        keys = {pair: place(*pair) for pair in partitions}
        for key in keys.values():
            wanted.put(key, spec)
        committed = self._class("org.apache.kafka.common.IsolationLevel").READ_COMMITTED
        options = self._class("org.apache.kafka.clients.admin.ListOffsetsOptions")(committed)
        answers = self._client().listOffsets(wanted, options)
        return {pair: int(self._wait(answers.partitionResult(key)).offset()) for pair, key in keys.items()}

    def offsets_since(self, partitions: Iterable[TopicPartition], time: datetime) -> dict[TopicPartition, int | None]:
        """The first offset whose record's timestamp is `time` or later; None where there is none."""
        milliseconds = int(time.timestamp() * 1000)
        found = self._offsets(partitions, self._class(_OFFSET_SPEC).forTimestamp(milliseconds))
        return {pair: None if offset < 0 else offset for pair, offset in found.items()}

    def close(self) -> None:
        """Lets the connections go."""
        if self._admin is not None:
            self._admin.close(self._class("java.time.Duration").ofSeconds(1))
            self._admin = None

    def _client(self) -> Any:
        if self._admin is None:
            options = self._class("java.util.HashMap")()
            for name, value in client_options(self._settings).items():
                options.put(name, value)
            try:
                self._admin = self._class("org.apache.kafka.clients.admin.AdminClient").create(options)
            except Py4JJavaError as error:
                raise HaltError(f"Kafka's client does not start: {root_cause(error)}") from error
        return self._admin

    def _list(self, names: Iterable[str]) -> Any:
        array = self._class("java.util.ArrayList")()
        for name in names:
            array.add(name)
        return array

    def _wait(self, future: Any) -> Any:
        try:
            return future.get(_ANSWER_TIME, self._class("java.util.concurrent.TimeUnit").SECONDS)
        except Py4JJavaError as error:
            cause = root_cause(error)
            if "UnknownTopicOrPartitionException" in cause or "UnknownTopicIdException" in cause:
                raise _UnknownTopicError(cause) from error
            if kafka_is_away(cause):
                raise KafkaAwayError(
                    f"Kafka at {self._settings.bootstrap_servers} does not answer ({cause})"
                ) from error
            raise HaltError(f"Kafka at {self._settings.bootstrap_servers} refuses: {cause}") from error


class _UnknownTopicError(Exception):
    pass


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
