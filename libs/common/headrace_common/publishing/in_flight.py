"""Frames on their way to one partition: how their events are made, when they are abandoned, and which is next."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

from headrace_common.fairness.scheduler import QUANTUM, FairScheduler
from headrace_common.fairness.workers import FIRST, Account
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.log import RateLimited
from headrace_common.operations.tasks import stood_still
from headrace_common.record.event import Part, Reject
from headrace_common.session.interface import Frame, KeepUntil, Pause, Ticket

NO_DEADLINE: Final = float("inf")
"""The deadline of a frame that is held until it is stored."""

AGAIN: Final = 1.0
"""Seconds until deadlines are looked at again after the process stood still."""

AT_ONCE: Final = 100
"""Frames that are abandoned in one turn of the loop: thousands that came together pass their deadline together."""

NOTHING: Final[Iterator[Part | Pause | list[Part]]] = iter(())


class DeliveryListener(ABC):
    """Learns the outcome of a frame. Its methods must not block or raise."""

    account: Account
    """The CPU time that its frames have used."""

    @abstractmethod
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Learns that the first `stored` parts of the frame are durable. `whole`: these are all; no further call follows."""

    @abstractmethod
    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """Learns that the frame will not be stored. No further call follows."""


class InFlightFrame:
    """A frame on its way to Kafka. Times are those of the event loop, in seconds."""

    __slots__ = (
        "_give_back",
        "abandoned",
        "account",
        "built",
        "cost",
        "deadline",
        "exhausted",
        "frame",
        "growing",
        "grown",
        "halfway",
        "kept",
        "listener",
        "made",
        "received_ms",
        "reserved",
        "runs",
        "small",
        "submitted",
        "ticket",
    )  # fmt: skip

    def __init__(self, frame: Frame, listener: DeliveryListener, submitted: float, deadline: float) -> None:
        """`deadline`: when the frame is abandoned; `NO_DEADLINE`: never."""
        self.frame = frame  # until all of its parts are made: see `finish`
        self.ticket, self.kept = frame.ticket, frame.kept
        self.listener, self.account = listener, listener.account
        self.submitted = submitted
        self.received_ms = frame.received_ms  # the time of its records
        self.deadline = deadline
        self.small = frame.small
        self.runs = NOTHING if frame.small else frame.runs()
        self.growing = True  # until its first part is built
        self.made: list[Part] = []  # built, but not in a batch yet
        self.halfway = False  # the last slice ended inside a part
        self.built = 0  # parts added to batches so far, over all cycles
        self.exhausted = False  # there are no more parts
        self.abandoned = False
        self.cost = 0.0  # CPU seconds so far
        self.grown = 0
        self.reserved = 0
        self._give_back: Callable[[int], None] | None = None

    # Making its parts

    def make(self, most: int, clock: Callable[[], float], until: float, log: RateLimited) -> list[Part]:
        """Makes its next parts: `most`, or more if the last come as one run. Returns an empty list if none are left, or if the
        slice ended inside a part, which `halfway` says.
        """
        made: list[Part] = []
        self.halfway = False
        try:
            for part in self.runs:
                if isinstance(part, Pause):
                    if clock() >= until:
                        self.halfway = True
                        break
                    continue
                if isinstance(part, list):
                    made += part
                else:
                    made.append(part)
                if len(made) >= most:
                    break
        except Exception as error:
            made.append(self.spoiled(error, log))  # after the parts that were made before
        return made

    def at_once(self, log: RateLimited) -> list[Part] | None:
        """Makes all parts of a small frame. None: it takes more work than its size suggests."""
        try:
            return self.frame.at_once()
        except Exception as error:
            return [self.spoiled(error, log)]

    def grow(self, log: RateLimited) -> Pause | list[Part]:
        """Makes its first parts, or the next step of growing before these. An empty list: it has none."""
        try:
            found = next(self.runs, [])
        except Exception as error:
            return [self.spoiled(error, log)]
        return found if isinstance(found, Pause | list) else [found]

    def spoiled(self, error: Exception, log: RateLimited) -> Reject:
        """Returns the whole frame, as received, as what replaces its remaining parts after a bug in Headrace."""
        log.exception("building a frame's events failed", ticket=self.ticket)
        self.runs = NOTHING
        return self.frame.spoiled(f"{type(error).__name__}: {error}")

    def enlarge(self) -> None:
        """Has it built like a large frame, since it takes more work. None of its parts may be in a batch yet."""
        self.small = False
        self.restart()

    def restart(self) -> None:
        """Discards the parts built so far. None of them may be in a batch yet."""
        assert not self.built
        self.runs = self.frame.runs()
        self.grown = 0
        self.shrink(0)

    def finish(self) -> None:
        """Notes that there are no more parts, and drops the bytes of the message: the frame may wait for Kafka for minutes."""
        self.exhausted, self.runs = True, NOTHING
        del self.frame

    # What it reserves

    def reserve(self, size: int, give_back: Callable[[int], None]) -> None:
        """Records a reservation of `size` bytes for the frame's growth. It replaces an earlier one."""
        self.shrink(0)
        self.reserved, self._give_back = size, give_back

    def shrink(self, to: int) -> None:
        """Gives back the reservation beyond `to` bytes."""
        if self._give_back is not None and self.reserved > to:
            self._give_back(self.reserved - to)
            self.reserved = to


class Pending(OrderedDict[InFlightFrame, None]):
    """The frames that are neither stored nor abandoned, in order, and the timer of their deadlines, which have the same order."""

    def __init__(self, overdue: Callable[[InFlightFrame], None]) -> None:
        """`overdue` abandons a frame whose deadline has passed, and removes it."""
        super().__init__()
        self._overdue = overdue
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self.at = NO_DEADLINE
        """When the timer fires."""
        self._late = False  # it was late the last time

    def oldest(self) -> float | None:
        """Returns when the frame that waits longest was submitted."""
        return next(iter(self)).submitted if self else None

    def renew(self, now_ms: int) -> None:
        """Counts those that are kept until they are stored as received now (Unix time)."""
        for frame in self:
            if frame.kept is KeepUntil.STORED:
                frame.received_ms = now_ms

    def watch(self, deadline: float) -> None:
        """Sets the timer for a pending frame with this deadline."""
        if self.at <= deadline:
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self.at = deadline
        self._expiry = self._loop.call_at(deadline, self._expire)

    def close(self) -> None:
        """Watches no longer."""
        if self._expiry is not None:
            self._expiry.cancel()

    def _expire(self) -> None:
        """Abandons frames whose deadline has passed, at most `AT_ONCE` in a turn of the loop. Their batch goes on: its other
        frames still wait for it.
        """
        now = self._loop.time()
        self._late = stood_still(now, self.at) and not self._late
        self._expiry, self.at = None, NO_DEADLINE
        if self._late:
            self.watch(now + AGAIN)
            return
        waiting = (frame for frame in self if frame.deadline < NO_DEADLINE)
        due = list(itertools.islice(itertools.takewhile(lambda frame: frame.deadline <= now, waiting), AT_ONCE))
        for frame in due:
            self._overdue(frame)
        self.watch(max(now, next((frame.deadline for frame in self if frame.deadline < NO_DEADLINE), NO_DEADLINE)))


class _Place:
    """The place of an account in a heap; empty once `account` is None."""

    __slots__ = ("account", "order", "used")

    def __init__(self, account: Account, order: int) -> None:
        self.account: Account | None = account
        self.used = account.used
        self.order = order

    def __lt__(self, other: _Place) -> bool:
        return (self.used, self.order) < (other.used, other.order)


class FairQueue:
    """The frames that wait to be taken: one ordered queue for each connection.

    Small frames are first come, first served, one of each connection at a time. Beside them, the next frame comes from the
    connection that has used the least CPU time; once begun, it stays current for its quantum.
    """

    def __init__(self, scheduler: FairScheduler) -> None:
        self._scheduler = scheduler
        self._first: dict[Account, InFlightFrame] = {}  # of each connection
        self._behind: dict[Account, deque[InFlightFrame]] = {}  # the others, of connections with any: most have none
        self._small: OrderedDict[Account, InFlightFrame] = OrderedDict()  # the first frames that are small, in order
        self._heap: list[_Place] = []  # the other queues whose first frame can continue; never an empty place first
        self._places: dict[Account, _Place] = {}  # in it
        self._order = itertools.count()
        self._current: InFlightFrame | None = None
        self._parked: set[Account] = set()  # their first frame cannot continue
        self.paused_since: float | None = None
        """Since when this queue is paused (event loop time)."""

    def __bool__(self) -> bool:
        """Whether a frame can continue."""
        return self._current is not None or bool(self._small) or bool(self._heap)

    def pause(self, now: float) -> None:
        """Pauses this queue until `resume`: its pump waits for Kafka. Its frames take no share meanwhile."""
        self.paused_since = now
        self._scheduler.sharing -= len(self._small)
        self._scheduler.long -= len(self._first) - len(self._small)

    def resume(self) -> None:
        """Learns that frames are taken again."""
        scheduler = self._scheduler
        if self._small and not scheduler.sharing:
            scheduler.enter(scheduler.small)
        self.paused_since = None
        scheduler.sharing += len(self._small)
        scheduler.long += len(self._first) - len(self._small)

    def virtual_time(self) -> float:
        """Returns the CPU seconds of the next frame's account. FIRST for an empty queue, so that its pump runs at once."""
        if self._current is not None or not self:
            return FIRST
        scheduler = self._scheduler
        return scheduler.small.used if self._small_is_next() else scheduler.counted(self._heap[0].used)

    def next_small(self) -> InFlightFrame | None:
        """Returns the frame of `next` if it is small."""
        if self._current is None and (not self._heap or self._small_is_next()):
            for frame in self._small.values():
                return frame
        return None

    def add(self, in_flight: InFlightFrame) -> None:
        """Queues a frame after the other frames of its connection."""
        account = in_flight.account
        if account not in self._first:
            if not in_flight.small:
                self._scheduler.enter(account)
            self._lead(in_flight)
            return
        queue = self._behind.get(account)
        if queue is None:
            queue = self._behind[account] = deque()
        queue.append(in_flight)

    def next(self) -> InFlightFrame:
        """Returns the frame to continue with. Unless it is small, it becomes the current one."""
        if self._current is None:
            if (small := self.next_small()) is not None:
                return small
            account = self._heap[0].account
            assert account is not None
            self._current = self._first[account]
            self._vacate(account)
        return self._current

    def later(self, in_flight: InFlightFrame) -> None:
        """Keeps the frame of `next`, which is not finished, current while its quantum lasts; then queues it."""
        if in_flight.cost >= QUANTUM:
            self._current = None
            self._push(in_flight)

    def enlarge(self, in_flight: InFlightFrame) -> None:
        """Queues the small frame of `next` as a large one: it takes more work than its size lets expect."""
        del self._small[in_flight.account]
        self._scheduler.sharing -= self.paused_since is None
        in_flight.enlarge()
        self._scheduler.enter(in_flight.account)
        self._lead(in_flight)

    def park(self) -> None:
        """Sets the current frame aside until `back` is called for it."""
        assert self._current is not None
        self._parked.add(self._current.account)
        self._current = None

    def back(self, in_flight: InFlightFrame) -> None:
        """Queues a parked frame that can continue."""
        self._parked.discard(in_flight.account)
        self._scheduler.enter(in_flight.account)
        self._push(in_flight)

    def remove(self, in_flight: InFlightFrame) -> None:
        """Removes a finished or abandoned frame. Does nothing unless it is the first of its queue: `next` shows it later."""
        account = in_flight.account
        if self._first.get(account) is not in_flight:
            return
        if in_flight.small:
            del self._small[account]
            self._scheduler.sharing -= self.paused_since is None
        else:
            self._scheduler.long -= self.paused_since is None
            if in_flight is self._current:
                self._current = None
            elif account in self._parked:
                self._parked.discard(account)
            else:
                self._vacate(account)
        queue = self._behind.get(account) if self._behind else None
        if queue is None:
            del self._first[account]
            return
        self._lead(queue.popleft())
        if not queue:
            del self._behind[account]

    def _small_is_next(self) -> bool:
        if not self._small or not self._heap:
            return bool(self._small)
        return self._scheduler.small.used <= self._scheduler.counted(self._heap[0].used)

    def _lead(self, in_flight: InFlightFrame) -> None:
        """Makes `in_flight` the first frame of its account."""
        account, scheduler = in_flight.account, self._scheduler
        self._first[account] = in_flight
        if in_flight.small:
            self._small[account] = in_flight
            if self.paused_since is None:
                if not scheduler.sharing:
                    scheduler.enter(scheduler.small)
                scheduler.sharing += 1
        else:
            scheduler.long += self.paused_since is None
            self._push(in_flight)

    def _push(self, in_flight: InFlightFrame) -> None:
        """Queues an account whose first frame is `in_flight`, which is not small."""
        place = self._places[in_flight.account] = _Place(in_flight.account, next(self._order))
        heapq.heappush(self._heap, place)

    def _vacate(self, account: Account) -> None:
        """Empties the place of an account. Searching the heap for it would take as long as others wait there."""
        self._places.pop(account).account = None
        while self._heap and self._heap[0].account is None:
            heapq.heappop(self._heap)
