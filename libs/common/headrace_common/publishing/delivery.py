"""Stores one batch in Kafka, despite failures on the way.

The rules, and the aiokafka behaviour behind them, are in docs/architecture.md, "Publishing".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiokafka import errors
from aiokafka.structs import TopicPartition

from headrace_common.kafka.client import InvalidRecordError
from headrace_common.kafka.producer import (
    LEADER_PAUSE,
    Producer,
    ProducerSource,
    has_leader,
    leave_unheard,
    look_for_leader,
)
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.publishing.batch import Batch
from headrace_common.publishing.in_flight import NO_DEADLINE, InFlightFrame

POISON: Final = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.CorruptRecordException,
    InvalidRecordError,
)
REFUSED: Final = (
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.InvalidTopicError,
    errors.InvalidRequiredAcksError,
    errors.UnsupportedVersionError,
    errors.PolicyViolationError,
)
REFUSALS_PER_BATCH: Final = 16
"""With more refused records than this in one batch, the topic is the problem, not the records."""

UNKNOWN_TRIES: Final = 3
"""How often a batch is sent that fails for an unknown reason, before its records are suspected."""

SILENCE_TIME: Final = 120.0
"""Seconds without an answer to a batch after which its producer is replaced. Replacing it disturbs every other partition, and
cannot help where the brokers are to blame; so it takes longer than any request, and no deadline of a frame matters."""

RETRY_PAUSE: Final = 0.1

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


@dataclass(slots=True)
class _Search:
    """The findings of a search for refused records. `suspects`: single records that failed for an unknown reason."""

    refused: list[Refusal] = field(default_factory=list)
    suspects: list[Batch] = field(default_factory=list)
    stored: bool = False


class Delivery:
    """Stores batches through the current producer. Times are those of the event loop."""

    def __init__(self, source: ProducerSource, metrics: ReceiverMetrics) -> None:
        self._source = source
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._clock: Callable[[], float] = self._loop.time
        self._quarantine_refuses = False
        """Kafka refused the last batch for quarantine. The next goes by a producer of its own: events are not in doubt for it."""

    async def store(self, batch: Batch, deadline: float, max_message_bytes: Callable[[], int]) -> list[Refusal]:
        """Returns when Kafka has stored every record of `batch` but those returned, which it refuses because of their content.

        Raises `DeliveryError` when no record is known to be stored; its policy says what to do. After `deadline`, when no client
        waits for it any more, the batch is not sent again. An answer that is under way is awaited all the same: without it, its
        producer would have to be replaced.
        """
        quarantine = self._source.quarantine is not None and batch.topic == self._source.quarantine.name
        if batch.sealed().size() <= max_message_bytes():
            send = self._send_alone if quarantine and self._quarantine_refuses else self._send
            try:
                await send(batch, deadline)
            except DeliveryError as error:
                if quarantine:
                    self._quarantine_refuses = error.policy is DeliveryPolicy.REFUSED
                if error.policy not in SUSPECT:
                    raise
            else:
                if quarantine:
                    self._quarantine_refuses = False
                return []
            with contextlib.suppress(Exception):
                await self._source.refresh()  # max.message.bytes may have changed
            topic = self._source.quarantine if quarantine else self._source.events
            if topic is not None and topic.compacted:
                self._quarantine_refuses |= quarantine
                raise DeliveryError(
                    f"topic {topic.name} is compacted: it takes no records without a key", DeliveryPolicy.REFUSED
                )
        try:
            if batch.sealed().size() > max_message_bytes():
                return await self._split(batch, deadline, max_message_bytes)
            return await self._search(batch, deadline)
        except DeliveryError:  # Kafka may have stored a part, and the whole batch may be sent again
            self._metrics.events_republished.inc(batch.doubt())
            raise

    async def _split(self, batch: Batch, deadline: float, max_message_bytes: Callable[[], int]) -> list[Refusal]:
        """Halves a batch that is too large. A single record that is too large is refused."""
        if len(batch) == 1:
            return list(zip(batch.records, batch.owners, strict=True))
        refused: list[Refusal] = []
        for half in batch.halves():
            refused += await self.store(half, deadline, max_message_bytes)
        return refused

    async def _search(self, batch: Batch, deadline: float) -> list[Refusal]:
        """Finds the refused records of a batch that failed. A record that fails for an unknown reason counts as refused only
        if another of the batch was stored, and it fails again afterwards: a broker in trouble fails everything.
        """
        while True:
            found = _Search()
            await self._separate(batch, deadline, found)
            if found.stored or not found.suspects:
                break
            if self._clock() >= deadline:
                raise DeliveryError("Kafka fails for an unknown reason", DeliveryPolicy.RETRY)
        for suspect in found.suspects:
            try:
                await self._send_alone(suspect, deadline)
            except DeliveryError as error:
                if error.policy not in SUSPECT:
                    raise
                found.refused += zip(suspect.records, suspect.owners, strict=True)
        return found.refused

    async def _separate(self, batch: Batch, deadline: float, found: _Search) -> None:
        """Finds the refused records by halving. Uses isolated producers, so that the shared producer survives refusals."""
        try:
            await self._send_alone(batch, deadline)
        except DeliveryError as error:
            if error.policy not in SUSPECT:
                raise
            if len(batch) > 1:
                for half in batch.halves():
                    if len(found.suspects) <= REFUSALS_PER_BATCH:
                        await self._separate(half, deadline, found)
            elif error.policy is DeliveryPolicy.UNKNOWN:
                found.suspects.append(batch)
            else:
                found.refused += zip(batch.records, batch.owners, strict=True)
            refused = len(found.refused) + len(found.suspects) * found.stored
            if refused > REFUSALS_PER_BATCH:
                raise DeliveryError(
                    f"topic {batch.topic} refuses record after record", DeliveryPolicy.REFUSED
                ) from error
        else:
            found.stored = True

    async def _send_alone(self, batch: Batch, deadline: float) -> None:
        """Raises `DeliveryError`; with policy UNKNOWN only after `UNKNOWN_TRIES` and before the deadline."""
        unknown = 0
        while True:
            try:
                async with self._source.isolated() as producer:
                    await self._attempt(producer, batch)
                    return
            except DeliveryError as error:
                if error.policy is DeliveryPolicy.UNKNOWN:
                    unknown += 1
                    if self._clock() >= deadline:
                        raise DeliveryError(str(error), DeliveryPolicy.RETRY) from error
                    if unknown == UNKNOWN_TRIES:
                        raise
                elif error.policy is not DeliveryPolicy.RETRY or self._clock() >= deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE * 2**unknown)

    async def _send(self, batch: Batch, deadline: float) -> None:
        while True:
            producer = self._source.usable
            if producer is None:
                try:
                    async with asyncio.timeout_at(None if deadline == NO_DEADLINE else deadline):
                        producer = await self._source.current()
                except TimeoutError:
                    raise DeliveryError(OVERDUE, DeliveryPolicy.RETRY) from None
            if not has_leader(producer, TopicPartition(batch.topic, batch.partition)):
                await self._leader(producer, batch, deadline)
            try:
                with self._source.taken(producer, batch.topic, batch.partition):
                    await self._attempt(producer, batch)
                return
            except DeliveryError as error:
                self._source.discard(producer, error)
                if error.policy is not DeliveryPolicy.RETRY or self._clock() >= deadline or batch.has_abandoned():
                    raise
            await asyncio.sleep(RETRY_PAUSE)

    async def _attempt(self, producer: Producer, batch: Batch) -> None:
        """Sends one batch and returns when Kafka has stored it. Raises `DeliveryError`; the producer is then unusable."""
        try:
            # The client knows the topic, so it waits for its own queue alone, at most KAFKA__REQUEST_TIMEOUT.
            answer = await producer.client.send_batch(batch.sealed(), batch.topic, partition=batch.partition)
            await self._answer(answer, producer.gone)
            if answer.done() and not answer.cancelled():
                answer.result()
                producer.stored = True
                self._metrics.batches.inc()
                return
            leave_unheard(answer)
            silence = f"Kafka has not answered for {SILENCE_TIME:g} s"
            problem = "its producer was replaced" if producer.gone.done() else silence
            raise DeliveryError(problem, DeliveryPolicy.RETRY)
        except Exception as error:
            # aiokafka sends again by itself: an attempt before the one that was refused may have been stored, its answer lost.
            self._metrics.events_republished.inc(batch.doubt())
            raise _explained(error) from error

    async def _answer(self, answer: asyncio.Future[object], gone: asyncio.Future[None]) -> None:
        """Waits until one of them is done, at most `SILENCE_TIME`. `asyncio.wait` would be a tenth of a small batch's cost."""
        heard = self._loop.create_future()

        def hear(_: object = None) -> None:
            if not heard.done():
                heard.set_result(None)

        timer = self._loop.call_later(SILENCE_TIME, hear)
        answer.add_done_callback(hear)
        gone.add_done_callback(hear)
        try:
            await heard
        finally:
            timer.cancel()
            answer.remove_done_callback(hear)
            gone.remove_done_callback(hear)

    async def _leader(self, producer: Producer, batch: Batch, deadline: float) -> None:
        """Waits until the partition has a leader. A batch without a leader would expire and break the shared producer.

        If a recreated topic lacks the partition, moves the batch to another: all batches of a pump to the same one, in order.
        """
        while not has_leader(producer, TopicPartition(batch.topic, batch.partition)) and not producer.discarded:
            if self._clock() >= deadline:
                raise DeliveryError("its partition has no leader", DeliveryPolicy.RETRY)
            there = await look_for_leader(producer, batch.topic)
            if 0 < there <= batch.partition:
                batch.partition %= there
            else:
                await asyncio.sleep(LEADER_PAUSE)


def _explained(error: Exception) -> DeliveryError:
    """Returns the failure of one attempt and what to do about it."""
    if isinstance(error, DeliveryError):
        return error
    if isinstance(error, errors.UnknownError):
        return DeliveryError(f"Kafka fails for an unknown reason: {error}", DeliveryPolicy.UNKNOWN)
    if isinstance(error, POISON):
        return DeliveryError(str(error), DeliveryPolicy.POISON)
    if isinstance(error, errors.InvalidTimestampError):
        return DeliveryError("Kafka refuses our timestamps", DeliveryPolicy.CLOCK)
    if isinstance(error, REFUSED):
        return DeliveryError(str(error), DeliveryPolicy.REFUSED)
    if isinstance(error, errors.KafkaError | OSError):
        return DeliveryError(str(error), DeliveryPolicy.RETRY)
    # A bug of Kafka's client, say: a fresh one may not meet it.
    return DeliveryError(f"{type(error).__name__}: {error}", DeliveryPolicy.RETRY)
