"""The producer: stores record batches by ProduceRequests of its own, through aiokafka's client.

aiokafka's own producer numbers a batch before Kafka has taken it: each refusal leaves a hole in the sequence and ends the
producer. Here each partition has an identity (producer id and epoch) and the number of its next record, by these rules (KIP-98):

- Only what Kafka has stored takes numbers. The batch after a refused one has the same numbers.
- A batch is in doubt while Kafka may have stored it. It is sent again byte for byte, and Kafka confirms it if it has it. Kafka
  would confirm another batch with these numbers, too, and not store it. So a batch that is given up in doubt takes its identity
  with it.
- One batch of a partition is under way at a time.

An identity's epoch is random. A new cluster at the same address, and one whose data was restored from a copy, gives ids of
producers that are still there to others. If all began with epoch 0, it would take a batch of one for a batch of the other that it
has stored already, confirm it, and store nothing (seen with Kafka 4.3). Kafka refuses a lower epoch, and a higher one that does
not begin at sequence 0; it takes any of a producer that it does not know. Sequences that begin anywhere would do the same, but
Kafka 4.5 refuses them in a partition that was never written (KAFKA-15591).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from secrets import randbelow
from typing import Any, Final, NamedTuple

from aiokafka import errors
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.structs import TopicPartition

from headrace_common.kafka.client import InvalidRecordError, explain, make_client
from headrace_common.kafka.record_batch import BatchBuilder
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings

EPOCHS: Final = 2**15 - 1
LARGEST_SEQUENCE: Final = 2**31 - 1
"""The largest sequence number. 0 follows it."""

FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 1.0
"""Seconds before a batch is sent again. The pause doubles each time."""

LOOK_TIME: Final = 0.5
"""Seconds that a search for leaders is waited for."""

REQUEST_BYTES: Final = 16 << 20
"""A request takes no further batch once it has this many bytes. Brokers take 100 MiB by default."""

TURNS: Final = 2
"""Turns of the loop in which pumps that have heard an answer hand over their next batches, which then share a request."""

CLOSE_TIME: Final = 2.0
"""Seconds that the client may take to close its connections."""

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
    errors.InvalidTimestampError,
)
LOST_US: Final = (
    errors.UnknownProducerId,
    errors.OutOfOrderSequenceNumber,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
)
"""Kafka does not know the identity any more, or gave it to another producer, too."""

NOT_STORED: Final = (
    *POISON, *REFUSED, *LOST_US, errors.NotEnoughReplicasError, errors.NodeNotReadyError,
)  # fmt: skip
"""Errors after which the attempt has stored nothing. All others leave it in doubt: a leader that moves says so after it appended,
too."""


class StoredAt(NamedTuple):
    """Where Kafka has stored a batch: the offset of its first record, -1 if Kafka does not know it any more. `time_ms`: the time
    that the broker gave its records; -1 if they keep theirs.
    """

    offset: int
    time_ms: int


@dataclass(eq=False, slots=True)
class _Sequence:
    """The sequence of one partition. `identity` is taken out while a batch is under way, put back unless it stays in doubt."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    identity: tuple[int, int] | None = None
    next: int = 0
    adopted: bool = False


_Waiting = tuple[TopicPartition, bytes, asyncio.Future[StoredAt]]
"""A batch that waits for a request to its broker."""


class Producer:
    """Stores batches in some topics, for as long as the process runs. Make it inside a running event loop.

    Batches that wait for the same broker share a request; one request to a broker is under way at a time.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._client: Any = None
        self._sequences: defaultdict[TopicPartition, _Sequence] = defaultdict(_Sequence)
        self._waiting: defaultdict[int, deque[_Waiting]] = defaultdict(deque)
        self._carriers: dict[int, asyncio.Task[None]] = {}
        self._answered: dict[int, asyncio.Future[None]] = {}
        self.trouble = "no answer"
        """Why Kafka stores nothing, as far as known."""

    async def open(self, topics: Sequence[str]) -> None:
        """Connects to Kafka, and learns the leaders of these topics, within KAFKA__REQUEST_TIMEOUT. Raises `DeliveryError` if
        that fails for any reason, `ConfigError` for files that cannot be used.
        """
        client = make_client(self._settings)
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                await client.bootstrap()
                await client.set_topics(topics)
        except BaseException as error:
            await _closed(client)
            if not isinstance(error, Exception):
                raise
            raise DeliveryError(
                f"Kafka at {self._settings.bootstrap_servers}: {explain(error)}", DeliveryPolicy.RETRY
            ) from error
        self._client = client

    async def close(self) -> None:
        """Closes the connections. Batches under way stay in doubt."""
        for carrier in self._carriers.values():
            carrier.cancel()
        if self._client is not None:
            await _closed(self._client)

    def leader(self, where: TopicPartition) -> int | None:
        """Returns the broker that leads a partition, as far as known; None if it has no leader."""
        found: int | None = self._client.cluster.leader_for_partition(where)
        return None if found == -1 else found

    def next_answer(self, where: TopicPartition) -> asyncio.Future[None] | None:
        """Returns a future that is done when the request under way to the leader of `where` has an answer. None: there is none,
        and a batch leaves at once. A batch that is filled until then leaves no later, with more.
        """
        found = self.leader(where)
        return None if found is None else self._answered.get(found)

    def adopt(self, where: TopicPartition, producer_id: int, epoch: int) -> None:
        """Gives a partition an identity that its caller has chosen. If that is lost, no batch is stored there any more: `store`
        fails as if Kafka refused the epoch.
        """
        sequence = self._sequences[where]
        sequence.identity, sequence.next, sequence.adopted = (producer_id, epoch), 0, True

    async def store(self, where: TopicPartition, batch: BatchBuilder, deadline: float) -> StoredAt:
        """Returns when Kafka has stored the batch. Waits for batches of the partition that came before.

        Sends it again until `deadline` (event loop time), if that can help. An answer that is under way is awaited all the same.
        Raises `DeliveryError`; `in_doubt` says whether Kafka may have stored the batch.
        """
        sequence = self._sequences[where]
        async with sequence.lock:
            identity, sequence.identity = sequence.identity, None
            data, in_doubt, pause = b"", False, FIRST_PAUSE
            while True:
                try:
                    if identity is None and sequence.adopted:
                        raise errors.InvalidProducerEpoch
                    if identity is None:
                        identity, sequence.next = await self.identify(), 0
                    data = data or batch.stamped(*identity, sequence.next)
                    place = await self._send(where, data)
                except Exception as error:
                    self.trouble = explain(error)
                    in_doubt |= bool(data) and not isinstance(error, NOT_STORED)
                    is_late, is_lost = self._clock() >= deadline, isinstance(error, LOST_US)
                    policy = policy_of(error)
                    if policy is not DeliveryPolicy.RETRY or is_late or is_lost:
                        if not (in_doubt or is_lost):
                            sequence.identity = identity
                        raise DeliveryError(self.trouble, policy, in_doubt=in_doubt) from error
                    await asyncio.wait(
                        {self._client.force_metadata_update()}, timeout=LOOK_TIME
                    )  # leaders may have moved
                else:
                    sequence.identity = identity
                    sequence.next = (sequence.next + batch.record_count()) & LARGEST_SEQUENCE
                    return place
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)

    async def identify(self) -> tuple[int, int]:
        """Returns a new identity. Raises `KafkaError`."""
        node = self._client.get_random_node()
        if node is None:
            raise errors.LeaderNotAvailableError
        answer = await self._client.send(node, InitProducerIdRequest(None, 60_000))
        if answer.error_code:
            raise errors.for_code(answer.error_code)
        return answer.producer_id, randbelow(EPOCHS)

    async def _send(self, where: TopicPartition, data: bytes) -> StoredAt:
        """Sends a batch once, with others that wait for the same broker. Raises `KafkaError`."""
        node = self.leader(where)
        if node is None:
            raise errors.NodeNotReadyError(f"partition {where.partition} of {where.topic} has no leader")
        place: asyncio.Future[StoredAt] = self._loop.create_future()
        self._waiting[node].append((where, data, place))
        if node not in self._carriers:
            self._carriers[node] = asyncio.create_task(self._carry(node))
        return await place

    async def _carry(self, node: int) -> None:
        """Sends requests to a broker until no batch waits for it. A batch that nobody waits for any more is dropped."""
        waiting = self._waiting[node]
        try:
            while waiting:
                await asyncio.sleep(0)  # what is handed over in the same turn of the loop goes along
                taken: dict[TopicPartition, tuple[bytes, asyncio.Future[StoredAt]]] = {}
                size = 0
                while waiting and size < REQUEST_BYTES:
                    where, data, place = waiting.popleft()
                    if not place.done():
                        taken[where] = data, place
                        size += len(data)
                self._answered[node] = self._loop.create_future()
                trouble: Exception = errors.KafkaError("no answer")
                try:
                    await self._request(node, taken)
                except Exception as error:
                    trouble = error
                for _, place in taken.values():
                    if not place.done():
                        place.set_exception(trouble)
                self._answered.pop(node).set_result(None)
                for _ in range(TURNS):
                    await asyncio.sleep(0)
        finally:
            del self._carriers[node]

    async def _request(self, node: int, taken: Mapping[TopicPartition, tuple[bytes, asyncio.Future[StoredAt]]]) -> None:
        """Sends one request, and tells each batch its answer. Raises `KafkaError`; those without an answer are in doubt then."""
        topics: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for where, (data, _) in taken.items():
            topics[where.topic].append((where.partition, data))
        patience = int(self._settings.request_timeout * 1000)
        answer = await self._client.send(node, ProduceRequest(None, -1, patience, list(topics.items())))
        for topic, partitions in answer.topics:
            for partition, code, offset, time_ms, *_ in partitions:
                _, place = taken[TopicPartition(topic, partition)]
                if place.done():
                    continue
                if code and code != errors.DuplicateSequenceNumber.errno:
                    place.set_exception(errors.for_code(code)())
                else:
                    place.set_result(StoredAt(offset, time_ms))


async def _closed(client: Any) -> None:
    with contextlib.suppress(Exception):  # nothing is owed to it
        await asyncio.wait_for(client.close(), CLOSE_TIME)


def policy_of(error: Exception) -> DeliveryPolicy:
    """Returns what to do about the failure of an attempt."""
    if isinstance(error, POISON):
        return DeliveryPolicy.POISON
    return DeliveryPolicy.REFUSED if isinstance(error, REFUSED) else DeliveryPolicy.RETRY
