"""Stores one batch in Kafka, or finds the records of it that Kafka refuses for their content.

The rules are in docs/architecture.md, "Publishing".
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from aiokafka.structs import TopicPartition

from headrace_common.kafka.producer import Producer
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.in_flight import InFlightFrame
from headrace_common.publishing.topics import Topics

REFUSALS_PER_BATCH: Final = 16
"""With more refused records than this in one batch, the topic is the problem, not the records."""

OVERDUE: Final = "KAFKA__ACK_DEADLINE has passed"

SUSPECT: Final = (DeliveryPolicy.POISON, DeliveryPolicy.UNKNOWN)
"""Policies after which single records are suspected."""

Refusal = tuple[bytes, InFlightFrame]
"""A record that Kafka refuses because of its content, and its frame."""


@dataclass(frozen=True, slots=True)
class PartitionRefusal:
    """Refusals of all that is sent to a partition: the first and the last time (event loop time), and the last error."""

    since: float
    last: float
    error: DeliveryError

    @classmethod
    def again(cls, before: PartitionRefusal | None, now: float, error: DeliveryError) -> PartitionRefusal:
        """Returns `before` with one refusal more."""
        return cls(now if before is None else before.since, now, error)


class Delivery:
    """Stores batches. Times are those of the event loop."""

    def __init__(self, producer: Producer, topics: Topics, metrics: ReceiverMetrics) -> None:
        self._producer = producer
        self._topics = topics
        self._metrics = metrics

    async def store(self, batch: Batch, deadline: float) -> list[Refusal]:
        """Returns when Kafka has stored every record of `batch` but those returned, which it refuses because of their content.

        Raises `DeliveryError` when no record is known to be stored; its policy says what to do. After `deadline`, when no client
        waits for it any more, the batch is not sent again.
        """
        policy = await self._failure(batch, deadline)
        if policy is None:
            return []
        if self._fits(batch):
            with contextlib.suppress(Exception):
                await self._topics.refresh()  # max.message.bytes may have changed
            if self._topics.named(batch.topic).compacted:
                raise DeliveryError(
                    f"topic {batch.topic} is compacted: it takes no records without a key", DeliveryPolicy.REFUSED
                )
        try:
            return await self._search(batch, policy, deadline)
        except DeliveryError:  # Kafka may have stored a part, and the whole batch may be sent again
            self._mark(batch)
            raise

    def _fits(self, batch: Batch) -> bool:
        return batch.sealed().size() <= self._topics.named(batch.topic).max_message_bytes

    def _mark(self, batch: Batch) -> None:
        """Marks the records of a batch that Kafka may have stored already."""
        self._metrics.events_republished.inc(batch.doubt())

    async def _search(self, batch: Batch, policy: DeliveryPolicy, deadline: float) -> list[Refusal]:
        """Returns the refused records of a batch that failed with `policy`, found by halving; the others are stored.

        A record that fails for an unknown reason counts as refused only if others of the batch are stored, and it fails again
        after them: a broker in trouble fails everything.
        """
        refused: list[Refusal] = []
        suspects: list[Batch] = []
        blamed, stored, parts = 0, False, [batch]
        while parts and blamed + len(suspects) <= REFUSALS_PER_BATCH:
            part = parts.pop()
            failure = policy if part is batch else await self._failure(part, deadline)
            if failure is None:
                stored = True
            elif len(part) > 1:
                parts += reversed([*part.halves()])
            elif failure is DeliveryPolicy.UNKNOWN:
                suspects.append(part)
            else:
                blamed += self._fits(part)
                refused += part.pairs()
        if suspects and not stored:
            raise DeliveryError("Kafka fails for an unknown reason", DeliveryPolicy.RETRY)
        if blamed + len(suspects) > REFUSALS_PER_BATCH:
            raise DeliveryError(f"topic {batch.topic} refuses record after record", DeliveryPolicy.REFUSED)
        for suspect in suspects:
            if await self._failure(suspect, deadline) is not None:
                refused += suspect.pairs()
        return refused

    async def _failure(self, batch: Batch, deadline: float) -> DeliveryPolicy | None:
        """Stores a batch. Returns None, or the policy after which its records are suspected: not sent if it is too large."""
        if not self._fits(batch):
            return DeliveryPolicy.POISON
        try:
            await self._producer.store(TopicPartition(batch.topic, batch.partition), batch.sealed(), deadline)
        except DeliveryError as error:
            if error.in_doubt:  # what is sent again has another identity
                self._mark(batch)
            if error.policy in SUSPECT:
                return error.policy
            raise
        self._metrics.batches.inc()
        return None
