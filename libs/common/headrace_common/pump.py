"""One pump for each partition of the events topic: it takes what waits, sends one batch, awaits one answer, and reports.

Nothing lingers: what arrives while a batch is under way makes the next one. All that is acknowledged passes `_report`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, cast

from headrace_common.batch import Lot
from headrace_common.budget import GrowthPool
from headrace_common.consignment import Consignment
from headrace_common.delivery import Delivery
from headrace_common.errors import DeliveryError
from headrace_common.event import HEADERS, Reason, Reject
from headrace_common.inflate import SLICE
from headrace_common.log import Log
from headrace_common.metrics import ReceiverMetrics
from headrace_common.producer import ProducerSource
from headrace_common.record import decode

TURN: Final = 0.004
"""Seconds of building after which the event loop turns."""

LOOK: Final = 32
"""Parts between two looks at the clock."""


REJECT_OVERHEAD: Final = 1024
"""Bytes that a reject costs beyond its own while its round is under way: a frame may hold a hundred thousand tiny ones."""


class Round:
    """What one turn of a pump sends: a batch of events, and the rejects that stand between them."""

    def __init__(self, lot: Lot, limit: int) -> None:
        self.lot = lot
        self.rejects: list[tuple[Consignment, Reject]] = []
        self.consignments: list[Consignment] = []
        self._room = limit

    def reject(self, part: Reject, owner: Consignment) -> bool:
        """Adds a reject; False when there are enough of them."""
        if self._room <= 0:
            return False
        self.rejects.append((owner, part))
        self._room -= len(part.raw) + len(part.attributes) + REJECT_OVERHEAD
        return True

    def deadline(self) -> float:
        """When the first of its frames has waited too long."""
        return min(c.deadline for c in self.consignments if not c.dead)


class Pump:
    """Carries frames to one partition. `run` ends only by cancellation; any other end is a bug and fails liveness."""

    def __init__(
        self,
        partition: int,
        topics: tuple[str, str],
        source: ProducerSource,
        delivery: Delivery,
        pool: GrowthPool,
        inflated_bytes: int,
        metrics: ReceiverMetrics,
        log: Log,
    ) -> None:
        self.partition = partition
        self._events, self._quarantine = topics
        self._source = source
        self._delivery = delivery
        self._pool = pool
        self._inflated_bytes = inflated_bytes
        self._metrics = metrics
        self._log = log
        self._queue: deque[Consignment] = deque()
        self._round: Round | None = None
        self._arrived = asyncio.Event()
        self.idle = asyncio.Event()  # nothing waits and nothing is under way
        self.idle.set()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self.last_stored = self._clock()
        self.clock_refused: float | None = None

    @property
    def waiting(self) -> int:
        """Frames that are not stored yet."""
        return len(self._queue) + (len(self._round.consignments) if self._round else 0)

    def oldest(self) -> float | None:
        """When the frame that waits longest was submitted."""
        if self._round is not None and self._round.consignments:
            return self._round.consignments[0].submitted
        return self._queue[0].submitted if self._queue else None

    def submit(self, consignment: Consignment) -> None:
        """Takes a frame. Its receipt hears of it later, never from within this call."""
        self._queue.append(consignment)
        self._arrived.set()
        self.idle.clear()

    async def run(self) -> None:
        """Works for ever."""
        while True:
            if not self._queue:
                self._arrived.clear()
                self.idle.set()
                await self._arrived.wait()
            self._round = Round(Lot(self._events, self.partition, self._source.batch_bytes), self._source.batch_bytes)
            await self._fill(self._round)
            await self._deliver(self._round)
            self._report(self._round)
            self._round = None

    def _report(self, sent: Round) -> None:
        """The only place that says "stored". It runs after `_deliver`, which returns only when Kafka has answered for
        every record of the round's living frames, on either topic.
        """
        for consignment in sent.consignments:
            if consignment.dead:
                continue
            if consignment.exhausted:
                consignment.shrink(0)
            consignment.receipt.settled(consignment.frame.ticket, consignment.built, consignment.exhausted)

    async def _deliver(self, sent: Round) -> None:
        """Returns when all is stored; frames that will not be are dead then, and their receipts know."""
        while any(not consignment.dead for consignment in sent.consignments):
            try:
                await self._store(sent)
            except DeliveryError as error:
                self._give_up(sent, error)
                sent.lot.drop_dead()
                sent.rejects = [(owner, reject) for owner, reject in sent.rejects if not owner.dead]
            else:
                return

    async def _store(self, sent: Round) -> None:
        if len(sent.lot):
            refused = await self._delivery.store(sent.lot, sent.deadline(), self._max_event_bytes)
            self._stored(sent.lot, len(sent.lot) - len(refused))
            sent.rejects += [(owner, _refusal(record)) for record, owner in refused]
            sent.lot.clear()
        if sent.rejects:
            async for lot in self._quarantine_lots(sent.rejects):
                if await self._delivery.store(lot, sent.deadline(), self._max_quarantine_bytes):
                    raise DeliveryError("Kafka refuses a quarantine record", retriable=False)
            stored, sent.rejects = sent.rejects, []
            for _, reject in stored:
                self._metrics.events_quarantined.labels(reject.reason.value).inc()

    def _stored(self, lot: Lot, events: int) -> None:
        self.last_stored = self._clock()
        self.clock_refused = None
        self._metrics.events_stored.inc(events)

    def _give_up(self, sent: Round, error: DeliveryError) -> None:
        """Refused for good: all of the round. Too late: those whose deadline has passed."""
        if error.clock:
            self.clock_refused = self._clock()
        now = self._clock()
        for consignment in sent.consignments:
            if not consignment.dead and (not error.retriable or now >= consignment.deadline):
                self._abandon(consignment, error)

    def _abandon(self, consignment: Consignment, error: DeliveryError) -> None:
        consignment.dead = True
        consignment.shrink(0)
        if self._queue and self._queue[0] is consignment:
            self._queue.popleft()
        consignment.receipt.abandoned(consignment.frame.ticket, error)

    async def _fill(self, sent: Round) -> None:
        """Takes frames until the round is full or none waits."""
        while self._queue:
            consignment = self._queue[0]
            if self._clock() >= consignment.deadline:
                self._abandon(consignment, DeliveryError("KAFKA__ACK_DEADLINE has passed", retriable=True))
                continue
            sent.consignments.append(consignment)
            try:
                await self._take(consignment, sent)
            except Exception as error:
                self._log.exception("building a frame's events failed", ticket=consignment.frame.ticket)
                consignment.parts = iter([consignment.frame.spoiled(f"{type(error).__name__}: {error}")])
                await self._take(consignment, sent)
            if not consignment.exhausted:
                return
            self._queue.popleft()

    async def _take(self, consignment: Consignment, sent: Round) -> None:
        """Moves the frame's parts into the round until it is full or the frame is exhausted."""
        clock, looked = self._clock, self._clock()
        add, reject, count = sent.lot.add, sent.reject, 0
        for piece in consignment.pieces():
            if type(piece) is int:
                if consignment.must_reserve(piece) and len(sent.consignments) > 1:
                    # Others of this round may hold reservations: they go first, so that nobody waits for himself.
                    consignment.spill = piece
                    return
                await consignment.grow(piece, self._pool, self._inflated_bytes)
                await asyncio.sleep(0)
                looked = clock()
                continue
            fits = add(piece, consignment) if type(piece) is bytes else reject(cast("Reject", piece), consignment)
            if not fits:
                consignment.spill = piece
                return
            if not consignment.built:
                consignment.shrink(consignment.grown)
                if type(piece) is bytes:
                    consignment.receipt.began(consignment.frame.ticket, piece)
            consignment.built += 1
            count += 1
            if not count % LOOK and clock() - looked > TURN:
                await asyncio.sleep(0)
                looked = clock()
        consignment.exhausted = True

    async def _quarantine_lots(self, rejects: list[tuple[Consignment, Reject]]) -> AsyncIterator[Lot]:
        assert self._source.quarantine is not None
        topic = self._source.quarantine
        partition = self.partition % topic.partitions
        limit = min(self._source.batch_bytes, topic.max_message_bytes * 3 // 4)
        lot = Lot(topic.name, partition, limit)
        for owner, reject in rejects:
            async for record in _records(reject, limit):
                if not lot.add(record, owner):
                    yield lot
                    lot = Lot(topic.name, partition, limit)
                    lot.add(record, owner)
        yield lot

    def _max_event_bytes(self) -> int:
        assert self._source.events is not None
        return self._source.events.max_message_bytes

    def _max_quarantine_bytes(self) -> int:
        assert self._source.quarantine is not None
        return self._source.quarantine.max_message_bytes


async def _records(reject: Reject, limit: int) -> AsyncIterator[bytes]:
    """The reject's numbered parts. Hashing is sliced, like all long work."""
    rest = limit - 4096 - len(reject.attributes) - len(reject.subject) - len(reject.detail)
    size = max(
        limit // 4, rest
    )  # with large attributes a record may be above `limit`, but there are not a thousand of them
    state = hashlib.sha256()
    for start in range(0, len(reject.raw), SLICE):
        state.update(reject.raw[start : start + SLICE])
        await asyncio.sleep(0)
    sha256 = state.hexdigest().encode()
    pieces = max(1, -(-len(reject.raw) // size))
    for number in range(pieces):
        value = reject.raw[number * size : (number + 1) * size]
        yield reject.record(value, number + 1, pieces, sha256)
        await asyncio.sleep(0)


def _refusal(record: bytes) -> Reject:
    """An event that Kafka refused for its content, as a reject: its value, with the rest of it in the attributes."""
    value, pairs = decode(record)
    headers = {key: text.decode("utf-8", "replace") for key, text in pairs}
    return Reject(
        Reason.REFUSED,
        "Kafka refused this record",
        value,
        headers["ce_type"].split(".")[1],
        headers["ce_source"],
        headers["ce_subject"],
        headers["ce_id"].encode(),
        (headers.get(HEADERS[7]) or "{}").encode(),
    )
