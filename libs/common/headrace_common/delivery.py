"""Storing one lot in Kafka, whatever goes wrong on the way. What goes wrong for good is a `DeliveryError`.

The rules, with aiokafka's behaviour that they answer, are in docs/architecture.md, "Publishing".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka import errors
from aiokafka.structs import TopicPartition

from headrace_common.batch import Lot
from headrace_common.consignment import Consignment
from headrace_common.errors import DeliveryError
from headrace_common.metrics import ReceiverMetrics
from headrace_common.producer import Producer, ProducerSource

POISON: Final = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.CorruptRecordException,
    errors.UnknownError,  # among others INVALID_RECORD (87), which aiokafka has no name for
)
REFUSED: Final = (
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.InvalidTopicError,
    errors.InvalidRequiredAcksError,
    errors.UnsupportedVersionError,
    errors.PolicyViolationError,
)
REFUSALS_PER_LOT: Final = 16
"""More refused records than this in one lot: it is the topic that refuses, not the records that are bad."""

RETRY_PAUSE: Final = 0.1
LEADER_PAUSE: Final = 0.5

Refusal = tuple[bytes, Consignment]
"""A record that Kafka refuses for its content, and its frame."""

T = TypeVar("T")


class Delivery:
    """Stores lots through the current producer. Times are those of the event loop."""

    def __init__(self, source: ProducerSource, metrics: ReceiverMetrics) -> None:
        self._source = source
        self._metrics = metrics
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    async def store(self, lot: Lot, deadline: float, max_message_bytes: Callable[[], int]) -> list[Refusal]:
        """Returns when Kafka has stored every record of `lot`, except those returned: it refuses them for their content.

        Raises `DeliveryError`: retriable, `deadline` has passed and the records are in doubt; not retriable, Kafka refuses
        the lot for reasons that lie outside it (with `clock`: our clock is wrong).
        """
        if lot.batch().size() <= max_message_bytes():
            try:
                await self._send(lot, deadline)
            except DeliveryError as error:
                if not error.poison:
                    raise
            else:
                return []
            with contextlib.suppress(DeliveryError):
                await self._source.refresh()  # perhaps max.message.bytes is another now
        try:
            if lot.batch().size() > max_message_bytes():
                return await self._split(lot, deadline, max_message_bytes)
            return await self._separate(lot, deadline)
        except DeliveryError:  # part of it may be stored, and all of it may be sent again
            self._metrics.events_republished.inc(lot.doubt())
            raise

    async def _split(self, lot: Lot, deadline: float, max_message_bytes: Callable[[], int]) -> list[Refusal]:
        if len(lot) == 1:
            return list(zip(lot.records, lot.owners, strict=True))
        refused: list[Refusal] = []
        for half in lot.halves():
            refused += await self.store(half, deadline, max_message_bytes)
        return refused

    async def _separate(self, lot: Lot, deadline: float) -> list[Refusal]:
        """Finds the records that are refused by halving, on producers of its own: nobody else loses one for it."""
        try:
            await self._send_alone(lot, deadline)
        except DeliveryError as error:
            if not error.poison:
                raise
            if len(lot) == 1:
                return list(zip(lot.records, lot.owners, strict=True))
        else:
            return []
        refused: list[Refusal] = []
        for half in lot.halves():
            refused += await self._separate(half, deadline)
            if len(refused) > REFUSALS_PER_LOT:
                raise DeliveryError(f"topic {lot.topic} refuses record after record", retriable=False)
        return refused

    async def _send_alone(self, lot: Lot, deadline: float) -> None:
        while True:
            try:
                async with self._source.isolated() as producer:
                    await self._attempt(producer, lot, deadline)
                    return
            except DeliveryError as error:
                if not error.retriable or self._clock() >= deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE)

    async def _send(self, lot: Lot, deadline: float) -> None:
        while True:
            producer = await self._before(deadline, self._source.current())
            await self._leader(producer, lot, deadline)
            try:
                await self._attempt(producer, lot, deadline)
                return
            except DeliveryError as error:
                self._source.discard(producer, _why(error))
                if not error.retriable or self._clock() >= deadline:
                    raise
            await asyncio.sleep(RETRY_PAUSE)

    async def _attempt(self, producer: Producer, lot: Lot, deadline: float) -> None:
        """One batch, one answer. Raises `DeliveryError`; the producer is spoiled then."""
        try:
            answer = await self._before(
                deadline, producer.client.send_batch(lot.batch(), lot.topic, partition=lot.partition)
            )
            await asyncio.wait(
                {answer, producer.gone}, timeout=deadline - self._clock(), return_when=asyncio.FIRST_COMPLETED
            )
            if answer.done() and not answer.cancelled():
                answer.result()
                self._metrics.batches.inc()
                return
            answer.add_done_callback(_consume)
            problem = "its producer was replaced" if producer.gone.done() else "KAFKA__ACK_DEADLINE has passed"
            raise DeliveryError(problem, retriable=True)
        except POISON as error:
            raise DeliveryError(str(error), retriable=False, poison=True) from error
        except errors.InvalidTimestampError as error:
            raise DeliveryError("Kafka refuses our timestamps", retriable=False, clock=True) from error
        except REFUSED as error:
            raise DeliveryError(str(error), retriable=False) from error
        except (errors.KafkaError, OSError, DeliveryError) as error:
            self._metrics.events_republished.inc(lot.doubt())
            if isinstance(error, DeliveryError):
                raise
            raise DeliveryError(str(error), retriable=True) from error

    async def _leader(self, producer: Producer, lot: Lot, deadline: float) -> None:
        """Waits until the partition has a leader: a batch without one would expire and cost everybody the producer."""
        client = producer.client.client
        partition = TopicPartition(lot.topic, lot.partition)
        while client.cluster.leader_for_partition(partition) in (None, -1) and not producer.discarded:
            if self._clock() >= deadline:
                raise DeliveryError("its partition has no leader", retriable=True)
            update = client.force_metadata_update()
            await asyncio.wait({update}, timeout=LEADER_PAUSE)
            await asyncio.sleep(LEADER_PAUSE)

    async def _before(self, deadline: float, awaitable: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(deadline):
                return await awaitable
        except TimeoutError:
            raise DeliveryError("KAFKA__ACK_DEADLINE has passed", retriable=True) from None


def _why(error: DeliveryError) -> str:
    if error.clock:
        return "clock"
    if error.poison:
        return "record_refused"
    return "failed" if error.retriable else "refused"


def _consume(answer: asyncio.Future[object]) -> None:
    """Looks at a late answer, so that asyncio does not complain that nobody did."""
    if not answer.cancelled():
        answer.exception()
