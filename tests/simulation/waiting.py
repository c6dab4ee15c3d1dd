"""How long small frames wait for a turn of the scheduler, behind the long work of others."""

from __future__ import annotations

from collections.abc import Callable

from headrace_common.fairness.scheduler import DEBT, QUANTUM, FairScheduler, Slices
from headrace_common.fairness.workers import Account
from headrace_common.publishing.in_flight import FairQueue, InFlightFrame


def most(pumps: int) -> float:
    """Returns for how many seconds long frames may be worked on before the first of a pump's small frames, beyond what small
    frames are charged meanwhile.

    Their account returns at most `DEBT` above the active ones, and comes before those that are a quantum below. By then each
    pump goes on with a frame until that has had its quantum, to the end of a slice, of a step, and of a second frame at most.
    """
    return DEBT + QUANTUM + pumps * 2 * QUANTUM


class WatchedScheduler(FairScheduler):
    """Calls `late` with the seconds for which a small frame has waited, when they are too many."""

    def __init__(self, late: Callable[[float], None], *, cpu: Callable[[], float]) -> None:
        super().__init__(cpu=cpu)
        self.late = late
        self.queues: list[WatchedQueue] = []

    def end(self, account: Account) -> float:
        spent = super().end(account)
        working = [queue for queue in self.queues if queue._current is not None and queue._current.account is account]
        if working:  # and it is not parsed, which is bounded in each turn of the loop
            asking = {worker._virtual_time for worker in self._queue.others if isinstance(worker, Slices)}
            for queue in self.queues:
                if queue in working or queue.virtual_time in asking:
                    queue.waits(spent)
        return spent

    def small_built(self, cost: float) -> None:
        before = self.small.used
        super().small_built(cost)
        for queue in self.queues:
            queue.waits(before - self.small.used)


class WatchedQueue(FairQueue):
    """Knows how long its first small frame waits."""

    def __init__(self, scheduler: WatchedScheduler) -> None:
        super().__init__(scheduler)
        self._watched = scheduler
        self._passed = 0.0
        self._since: dict[Account, float] = {}
        scheduler.queues.append(self)

    def waits(self, seconds: float) -> None:
        """Long frames have taken `seconds` while this queue could have had its turn."""
        self._passed += seconds
        if self._small:
            waited = self._passed - self._since[next(iter(self._small))]
            if waited > most(len(self._watched.queues)):
                self._watched.late(waited)

    def _lead(self, in_flight: InFlightFrame) -> None:
        self._since[in_flight.account] = self._passed
        super()._lead(in_flight)
