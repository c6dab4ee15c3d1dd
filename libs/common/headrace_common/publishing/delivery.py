"""Stores one batch in Kafka, or finds the records of it that Kafka refuses for their content.

The rules are in docs/architecture.md, "Publishing".
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from aiokafka.structs import TopicPartition

from headrace_common.kafka.client import Topic, describe
from headrace_common.kafka.producer import Producer
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import KafkaSettings
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.in_flight import InFlightFrame

REFUSALS_PER_BATCH: Final = 16
"""With more refused records than this in one batch, the topic is the problem, not the records."""

OVERDUE: Final = "KAFKA__ACK_DEADLINE has passed"

Refusal = tuple[bytes, InFlightFrame]
"""A record that Kafka refuses because of its content, and its frame."""


class Delivery:
    """Stores batches on the topics of events and quarantine. Times are those of the event loop. `refresh` comes first."""

    events: Topic
    quarantine: Topic

    def __init__(self, settings: KafkaSettings, metrics: ReceiverMetrics, log: Log) -> None:
        self.producer = Producer(settings)
        self.settings = settings
        self.metrics = metrics
        self.log = log

    async def refresh(self) -> None:
        """Reads from Kafka what the topics are. Raises `DeliveryError` and `ConfigError`."""
        self.events, self.quarantine = found = await describe(self.settings)
        tell_weak(found, self.metrics, self.log)

    async def store(self, batch: Batch, deadline: float) -> list[Refusal]:
        """Returns when Kafka has stored every record of `batch` but those returned, which it refuses because of their content:
        they are found by halving.

        Raises `DeliveryError` when not all are stored; some may be. Its policy says what to do. After `deadline`, when no client
        waits for it any more, the batch is not sent again.
        """
        refused: list[Refusal] = []
        blamed, parts = 0, [batch]
        try:
            while parts:
                part = parts.pop()
                if await self._is_stored(part, deadline):
                    continue
                if part is batch and self._fits(batch):
                    with contextlib.suppress(Exception):
                        await self.refresh()  # max.message.bytes may have changed
                if len(part) > 1:
                    parts += reversed([*part.halves()])
                    continue
                refused += part.pairs()
                blamed += self._fits(part)
                if blamed > REFUSALS_PER_BATCH:
                    raise DeliveryError(f"topic {batch.topic} refuses record after record", DeliveryPolicy.REFUSED)
        except DeliveryError:
            if part is not batch:  # Kafka may have stored a part, and the whole batch may be sent again
                self._mark(batch)
            raise
        return refused

    def _fits(self, batch: Batch) -> bool:
        topic = self.quarantine if batch.topic == self.quarantine.name else self.events
        return batch.sealed().size() <= topic.max_message_bytes

    def _mark(self, batch: Batch) -> None:
        """Marks the records of a batch that Kafka may have stored already."""
        self.metrics.events_republished.inc(batch.doubt())

    async def _is_stored(self, batch: Batch, deadline: float) -> bool:
        """Stores a batch. Returns False if Kafka refuses it for its content; it is not sent if it is too large."""
        if not self._fits(batch):
            return False
        try:
            await self.producer.store(TopicPartition(batch.topic, batch.partition), batch.sealed(), deadline)
        except DeliveryError as error:
            if error.in_doubt:  # what is sent again has another identity
                self._mark(batch)
            if error.policy is DeliveryPolicy.POISON:
                return False
            raise
        self.metrics.batches.inc()
        return True


def tell_weak(topics: Sequence[Topic], metrics: ReceiverMetrics, log: Log) -> None:
    """Says which of the topics have settings that do not keep the promise, or that may not be read."""
    if unknown := [topic.name for topic in topics if not topic.configuration]:
        log.warning("topic settings not known", right="DESCRIBE_CONFIGS", topics=unknown)
    weak = {topic.name: topic.weak for topic in topics if topic.weak}
    if weak:
        metrics.topic_weak.set(1)
        log.warning("topic settings do not keep the promise", topics=weak)
