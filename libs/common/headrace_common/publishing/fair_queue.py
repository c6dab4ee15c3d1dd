"""The frames that wait for one pump: one ordered queue per connection, and which frame is next."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque

from headrace_common.fairness.scheduler import FIRST, QUANTUM, Account, FairScheduler
from headrace_common.publishing.in_flight_frame import InFlightFrame


class FairQueue:
    """Small frames are first come, first served, one of each connection at a time. Beside them, the next frame comes from the
    connection that has used the least CPU time; once begun, it stays current for its quantum.
    """

    def __init__(self, scheduler: FairScheduler) -> None:
        self._scheduler = scheduler
        self._queues: dict[Account, deque[InFlightFrame]] = {}
        self._small: OrderedDict[Account, None] = OrderedDict()  # queues whose first frame is small, in order
        self._heap: list[tuple[float, int, Account]] = []  # the other queues whose first frame can continue
        self._order = itertools.count()
        self._current: InFlightFrame | None = None
        self._parked: set[Account] = set()  # their first frame cannot continue

    def __bool__(self) -> bool:
        """Whether a frame can continue."""
        return self._current is not None or bool(self._small) or bool(self._heap)

    def virtual_time(self) -> float:
        """CPU seconds that the next frame's account has used. If nothing waits any more, its pump shall learn that at once."""
        if self._current is not None or not self:
            return FIRST
        return self._scheduler.small.used if self._small_is_next() else self._heap[0][0]

    def goes_on(self) -> bool:
        """Whether another small frame is next."""
        return self._current is None and self._small_is_next()

    def add(self, in_flight: InFlightFrame) -> None:
        """Queues a frame behind the other frames of its connection."""
        account = in_flight.account
        queue = self._queues.get(account)
        if queue is None:
            self._queues[account] = deque((in_flight,))
            if not in_flight.small:
                self._scheduler.enter(account)
            self._lead(in_flight)
        else:
            queue.append(in_flight)

    def next(self) -> InFlightFrame:
        """The frame to continue with. Unless it is small, it becomes the current one."""
        if self._current is None:
            if self._small_is_next():
                return self._queues[next(iter(self._small))][0]
            self._current = self._queues[heapq.heappop(self._heap)[-1]][0]
        return self._current

    def later(self, in_flight: InFlightFrame) -> None:
        """The frame of `next` is not finished. It stays current while its quantum lasts."""
        if in_flight.cost >= QUANTUM:
            self._current = None
            self._push(in_flight)

    def enlarge(self, in_flight: InFlightFrame) -> None:
        """The small frame of `next` takes more work than its size lets expect."""
        self._forget(in_flight.account)
        in_flight.enlarge()
        self._scheduler.enter(in_flight.account)
        self._lead(in_flight)

    def park(self) -> None:
        """The current frame cannot continue until `back` is called for it."""
        assert self._current is not None
        self._parked.add(self._current.account)
        self._current = None

    def back(self, in_flight: InFlightFrame) -> None:
        """A parked frame can continue."""
        self._parked.discard(in_flight.account)
        self._scheduler.enter(in_flight.account)
        self._push(in_flight)

    def remove(self, in_flight: InFlightFrame) -> None:
        """Removes a finished or abandoned frame. Does nothing unless it is the first of its queue: `next` shows it later."""
        account = in_flight.account
        queue = self._queues.get(account)
        if queue is None or queue[0] is not in_flight:
            return
        queue.popleft()
        if in_flight.small:
            self._forget(account)
        else:
            self._scheduler.long -= 1
            if in_flight is self._current:
                self._current = None
            elif account in self._parked:
                self._parked.discard(account)
            else:
                self._heap = [entry for entry in self._heap if entry[-1] is not account]
                heapq.heapify(self._heap)
        if queue:
            self._lead(queue[0])
        else:
            del self._queues[account]

    def _small_is_next(self) -> bool:
        return bool(self._small) and (not self._heap or self._scheduler.small.used <= self._heap[0][0])

    def _lead(self, in_flight: InFlightFrame) -> None:
        """`in_flight` is now the first frame of its account."""
        account, scheduler = in_flight.account, self._scheduler
        if in_flight.small:
            if not scheduler.sharing:
                scheduler.enter(scheduler.small)
            scheduler.sharing += 1
            self._small[account] = None
        else:
            scheduler.long += 1
            self._push(in_flight)

    def _push(self, in_flight: InFlightFrame) -> None:
        """Queues an account whose first frame is `in_flight`, which is not small."""
        heapq.heappush(self._heap, (in_flight.account.used, next(self._order), in_flight.account))

    def _forget(self, account: Account) -> None:
        del self._small[account]
        self._scheduler.sharing -= 1
