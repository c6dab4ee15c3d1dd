"""The workers that wait for a slice, and what each has used."""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Final

FIRST: Final = float("-inf")
"""The virtual time of work that must finish before any other begins."""


class Account:
    """CPU seconds that one connection has used, or all connections with their small frames. After a rest, at least the active
    connections' minimum less a quantum, at most `DEBT` more than it.
    """

    __slots__ = ("used",)

    def __init__(self, used: float = 0.0) -> None:
        self.used = used


class Worker(ABC):
    """A connection or pump with long work."""

    @abstractmethod
    def virtual_time(self) -> float:
        """Returns what the scheduler compares when it grants a slice: the worker with the least is next."""

    @abstractmethod
    def granted(self) -> bool:
        """Works in the slice that it has now or, at the latest, in the next loop iteration. Returns whether it has worked."""

    def charged(self) -> Account | None:
        """Returns the account whose use is the worker's virtual time. None: it depends on more, and such workers are few."""
        return None


Entry = tuple[float, int, Worker]
"""A worker that waits: its virtual time as it was read last, and a number, by which those of equal time are in order."""


class WorkerQueue:
    """The workers that wait for a slice: the least virtual time first, among equals in order of arrival.

    Finding the first costs the same however many wait. Workers charged to `shared` form a line. Those with another account are in
    a heap, by their time on arrival; the first one's is read again. Those without one, pumps, are few: each is looked at.
    """

    def __init__(self, shared: Account) -> None:
        self._shared = shared
        self._numbers = itertools.count()
        self._entries: dict[Worker, Entry] = {}  # of those with an account; others in the line and the heap are stale
        self._line: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self.others: dict[Worker, int] = {}
        """Those without an account, and their numbers."""

    def __bool__(self) -> bool:
        return bool(self._entries or self.others)

    def __contains__(self, worker: Worker) -> bool:
        return worker in self._entries or worker in self.others

    def add(self, worker: Worker) -> None:
        """Adds `worker`. If it waits already, it keeps its place, unless its time has changed."""
        account, entry = worker.charged(), self._entries.get(worker)
        if account is None:
            self.others.setdefault(worker, next(self._numbers))
        elif entry is None or self._time(account) != entry[0]:
            self._enter(worker, account, next(self._numbers))

    def remove(self, worker: Worker) -> None:
        """Removes `worker`, if it waits."""
        if self._entries.pop(worker, None) is None:
            self.others.pop(worker, None)

    def least(self) -> float:
        """Returns the least virtual time of a worker here; there must be one."""
        first = self._first()
        times = [worker.virtual_time() for worker in self.others]
        return min(times if first is None else [first[0], *times])

    def turn(self) -> Iterator[Worker]:
        """Removes and yields one worker after the other. Add none meanwhile."""
        others = sorted([(each.virtual_time(), number, each) for each, number in self.others.items()], reverse=True)
        while self:
            first = self._first()
            if others and (first is None or others[-1] < first):
                worker = others.pop()[-1]
                if worker not in self.others:  # removed meanwhile
                    continue
            else:
                assert first is not None
                worker = first[-1]
            self.remove(worker)
            yield worker

    def _first(self) -> Entry | None:
        """Returns the first of those with an account."""
        line, heap = self._line, self._heap
        while line and not self._holds(line[0]):
            line.popleft()
        while heap and not self._holds(heap[0]):
            heapq.heappop(heap)
        found = heap[0] if heap else None
        if line:
            _, number, worker = line[0]
            of_line = (self._shared.used, number, worker)
            return of_line if found is None or of_line < found else found
        return found

    def _holds(self, entry: Entry) -> bool:
        """Returns whether an entry is still right. Enters its worker again if its time has become more."""
        time, number, worker = entry
        if self._entries.get(worker) is not entry:
            return False
        account = worker.charged()
        if account is None or self._time(account) <= time:
            return True
        self._enter(worker, account, number)
        return False

    def _enter(self, worker: Worker, account: Account, number: int) -> None:
        time = self._time(account)
        entry = self._entries[worker] = (time, number, worker)
        if account is self._shared:
            self._line.append(entry)
        else:
            heapq.heappush(self._heap, entry)

    def _time(self, account: Account) -> float:
        return FIRST if account is self._shared else account.used  # the line's own time is read at each look
