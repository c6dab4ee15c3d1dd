"""One pump for each partition of the events topic: it takes what waits, sends one batch, awaits one answer, and reports.

Nothing lingers: what arrives while a batch is under way makes the next one, and a round that holds a whole frame leaves when
the pump would have to wait for its turn to make more. All that is acknowledged passes `_report`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from itertools import islice
from typing import Final, cast

from headrace_common.batch import Lot
from headrace_common.budget import Growth, GrowthPool
from headrace_common.consignment import Consignment
from headrace_common.delivery import Delivery
from headrace_common.errors import DeliveryError
from headrace_common.event import Part, Reject
from headrace_common.lines import Lines
from headrace_common.log import Log
from headrace_common.metrics import ReceiverMetrics
from headrace_common.producer import ProducerSource
from headrace_common.round import Round, records, refusal
from headrace_common.turns import FIRST, QUANTUM, TURN, Turns

LOOK: Final = 8
"""Parts between two looks at the clock."""

LONG_BATCH: Final = 512 << 10
"""Bytes of a round behind which a frame beyond its quantum waits for the next: others of its partition wait for one round."""

LARGE: Final = 4 << 10
"""Bytes of an event after which the clock is looked at behind each."""


class Step(Enum):
    """How a slice of work on a frame ended."""

    WHOLE = "all of it is in the round"
    FULL = "the round is full"
    LATER = "the slice is over"
    PARKED = "it waits for memory"


class Pump:
    """Carries frames to one partition. `run` ends only by cancellation; any other end is a bug and fails liveness."""

    def __init__(
        self,
        partition: int,
        topics: tuple[str, str],
        source: ProducerSource,
        delivery: Delivery,
        turns: Turns,
        growth: Growth,
        metrics: ReceiverMetrics,
        log: Log,
    ) -> None:
        self.partition = partition
        self._events, self._quarantine = topics
        self._source = source
        self._delivery = delivery
        self._turns = turns
        self._growth = growth
        self._metrics = metrics
        self._log = log
        self._lines = Lines(turns)
        self._pending: OrderedDict[Consignment, None] = OrderedDict()  # all that is neither stored nor given up
        self._parked: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Future[None] | None = None
        self._delivering = False
        self._arrived = asyncio.Event()
        self.idle = asyncio.Event()  # nothing waits and nothing is under way
        self.idle.set()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self.last_stored = self._clock()
        self.clock_refused: float | None = None

    @property
    def waiting(self) -> int:
        """Frames that are not stored yet."""
        return len(self._pending)

    def oldest(self) -> float | None:
        """When the frame that waits longest was submitted."""
        return next(iter(self._pending)).submitted if self._pending else None

    def submit(self, consignment: Consignment) -> None:
        """Takes a frame. Its receipt hears of it later, never from within this call."""
        self._pending[consignment] = None
        self._lines.add(consignment)
        self._arrived.set()
        self.idle.clear()

    async def run(self) -> None:
        """Works for ever."""
        try:
            while True:
                if not self._lines:
                    self._arrived.clear()
                    if not self._pending:
                        self.idle.set()
                    await self._arrived.wait()
                sent = Round(Lot(self._events, self.partition, self._source.batch_bytes), self._source.batch_bytes)
                await self._fill(sent)
                await self._deliver(sent)
        finally:
            self._turns.withdraw(self)
            for task in self._parked:
                task.cancel()

    def _report(self, sent: Round) -> None:
        """The only place that says "stored": of a frame that has nothing in the lot nor among the rejects any more, as
        Kafka has answered for all that it had there.
        """
        assert not len(sent.lot)
        left = {owner for owner, _ in sent.rejects}
        for consignment in [each for each in sent.consignments if each not in left]:
            del sent.consignments[consignment]
            if consignment.dead:
                continue
            if consignment.exhausted:
                consignment.shrink(0)
                del self._pending[consignment]
            consignment.receipt.settled(consignment.frame.ticket, consignment.built, consignment.exhausted)

    async def _deliver(self, sent: Round) -> None:
        """Returns when all is stored; frames that will not be are dead then, and their receipts know."""
        while sent.living():
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
            sent.rejects += [(owner, refusal(record)) for record, owner in refused]
            sent.lot.clear()
        self._report(sent)
        if sent.rejects:
            async for lot in self._quarantine_lots(sent.rejects):
                if await self._delivery.store(lot, sent.deadline(), self._max_quarantine_bytes):
                    raise DeliveryError("Kafka refuses a quarantine record", retriable=False)
            stored, sent.rejects = sent.rejects, []
            for _, reject in stored:
                self._metrics.events_quarantined.labels(reject.reason.value).inc()
            self._report(sent)

    def _stored(self, lot: Lot, events: int) -> None:
        self.last_stored = self._clock()
        self.clock_refused = None
        self._metrics.events_stored.inc(events)

    def _give_up(self, sent: Round, error: DeliveryError) -> None:
        """Refused for good: all of the round. Too late: those whose deadline has passed."""
        if error.clock:
            self.clock_refused = self._clock()
        now = self._clock()
        for consignment in sent.living():
            if not error.retriable or now >= consignment.deadline:
                self._abandon(consignment, error)

    def _abandon(self, consignment: Consignment, error: DeliveryError) -> None:
        consignment.dead = True
        consignment.shrink(0)
        self._lines.remove(consignment)
        del self._pending[consignment]
        consignment.receipt.abandoned(consignment.frame.ticket, error)

    # Making what is sent

    def urgency(self) -> float:
        """See `headrace_common.turns.Worker`."""
        return FIRST if self._delivering else self._lines.urgency()

    def granted(self) -> None:
        """See `headrace_common.turns.Worker`."""
        assert self._turn is not None
        if not self._turn.done():
            self._turn.set_result(None)

    async def _next_turn(self) -> None:
        self._turn = asyncio.get_running_loop().create_future()
        self._turns.ask(self)
        await self._turn
        self._turns.granted()

    async def _fill(self, sent: Round) -> None:
        """Takes parts of frames until the round is full, or nothing waits, or what waits has to wait for a turn."""
        lines = self._lines
        while lines:
            if not self._turns.take(self):
                if sent.whole:
                    return
                await self._next_turn()
            consignment = lines.next()
            if self._clock() >= consignment.deadline:
                self._abandon(consignment, DeliveryError("KAFKA__ACK_DEADLINE has passed", retriable=True))
                continue
            self._turns.begin(consignment.account)
            step = self._take(consignment, sent)
            consignment.cost += self._turns.end(consignment.account)
            if step is Step.WHOLE:
                lines.remove(consignment)
                sent.whole = True
            elif step is Step.PARKED:
                lines.park()
            else:
                lines.later(consignment)
                if step is Step.FULL or (consignment.cost >= QUANTUM and sent.size >= LONG_BATCH):
                    return

    def _take(self, consignment: Consignment, sent: Round) -> Step:
        """Moves the frame's parts into the round until the slice is over, the round is full or the frame is exhausted."""
        clock, until = self._clock, self._turns.until
        if consignment.growing:
            step = self._grow(consignment, until)
            if step is not None:
                return step
        made, consignment.made = consignment.made or self._make(consignment, 1), []
        while made:
            added = sent.add(made, consignment)
            if added:
                sent.consignments[consignment] = None
                if not consignment.built and type(made[0]) is bytes:
                    consignment.receipt.began(consignment.frame.ticket, made[0])
                consignment.built += added
            if added < len(made):
                consignment.made = made[added:]
                return Step.FULL
            look = LOOK if len(made[-1]) < LARGE else 1
            over = clock() >= until
            made = self._make(consignment, 1 if over else look)
            if over and made:  # one ahead: of a frame all of which is in the round it is known that it is whole
                consignment.made = made
                return Step.LATER
        consignment.exhausted = True
        sent.consignments[consignment] = None
        return Step.WHOLE

    def _grow(self, consignment: Consignment, until: float) -> Step | None:
        """Lets the frame inflate, up to its first part; None when that is made, or it has none."""
        found: Part | int | None
        while True:
            try:
                found = next(consignment.parts, None)
            except Exception as error:
                found = self._spoiled(consignment, error)
            if not isinstance(found, int):
                break
            wanted = self._growth.pool(consignment.grown + found, consignment.reserved) if found else None
            if wanted is not None:
                pool, size = wanted
                taken = pool.take(size)
                if not taken:
                    consignment.restart()
                    self._park(consignment, pool, size)
                    return Step.PARKED
                consignment.reserve(taken, pool.give_back)
            consignment.grown += found
            if self._clock() >= until:
                return Step.LATER
        consignment.growing = False
        consignment.shrink(consignment.grown)
        consignment.parts = filter(None, consignment.parts)  # without the pauses: it is the clock that makes them
        consignment.made = [] if found is None else [found]
        return None

    def _park(self, consignment: Consignment, pool: GrowthPool, size: int) -> None:
        """Waits for memory, while others of this partition go on."""

        async def wait() -> None:
            consignment.reserve(await pool.reserve(size), pool.give_back)
            self._lines.back(consignment)
            self._arrived.set()

        task = asyncio.create_task(wait())
        self._parked.add(task)
        task.add_done_callback(self._parked.discard)

    def _make(self, consignment: Consignment, most: int) -> list[Part]:
        """The frame's next parts, at most so many; none: there are no more."""
        made: list[Part] = []
        try:
            made.extend(islice(cast("Iterator[Part]", consignment.parts), most))
        except Exception as error:
            made.append(self._spoiled(consignment, error))  # behind what `extend` has taken already
        return made

    def _spoiled(self, consignment: Consignment, error: Exception) -> Reject:
        """A bug of ours: what is left of the frame is replaced by all of it, as it came."""
        self._log.exception("building a frame's events failed", ticket=consignment.frame.ticket)
        consignment.parts = iter(())
        return consignment.frame.spoiled(f"{type(error).__name__}: {error}")

    async def _quarantine_lots(self, rejects: list[tuple[Consignment, Reject]]) -> AsyncIterator[Lot]:
        """The rejects' records, a batch at a time. Making them takes turns, like all long work."""
        assert self._source.quarantine is not None
        topic = self._source.quarantine
        turns, until = self._turns, self._clock() + TURN
        partition = self.partition % topic.partitions
        limit = min(self._source.batch_bytes, topic.max_message_bytes * 3 // 4)
        lot = Lot(topic.name, partition, limit)
        for owner, reject in rejects:
            turns.begin(owner.account)
            for record in records(reject, limit):
                if record and not lot.add(record, owner):
                    turns.end(owner.account)
                    yield lot
                    turns.begin(owner.account)
                    lot = Lot(topic.name, partition, limit)
                    lot.add(record, owner)
                if self._clock() >= until:
                    turns.end(owner.account)
                    self._delivering = True
                    await self._next_turn()
                    self._delivering = False
                    until = turns.until
                    turns.begin(owner.account)
            turns.end(owner.account)
        yield lot

    def _max_event_bytes(self) -> int:
        assert self._source.events is not None
        return self._source.events.max_message_bytes

    def _max_quarantine_bytes(self) -> int:
        assert self._source.quarantine is not None
        return self._source.quarantine.max_message_bytes
