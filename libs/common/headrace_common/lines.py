"""The frames that wait for one pump: a line for each connection, which keeps its order, and who is next."""

from __future__ import annotations

import heapq
import itertools
from collections import deque

from headrace_common.consignment import Consignment
from headrace_common.turns import FIRST, QUANTUM, Account, Turns


class Lines:
    """Next is the head of the line whose connection has used least; a frame that was begun is current for its quantum."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines: dict[Account, deque[Consignment]] = {}
        self._heap: list[tuple[float, int, Account]] = []  # of the lines whose head can go on
        self._order = itertools.count()
        self._current: Consignment | None = None

    def __bool__(self) -> bool:
        """Whether there is one that can go on."""
        return self._current is not None or bool(self._heap)

    def urgency(self) -> float:
        """What the connection that is next has used; there is one."""
        return FIRST if self._current is not None else self._heap[0][0]

    def add(self, consignment: Consignment) -> None:
        """A frame, behind those of its connection."""
        account = consignment.account
        line = self._lines.get(account)
        if line is None:
            self._lines[account] = deque((consignment,))
            self._turns.enter(account)
            self._push(account)
        else:
            line.append(consignment)

    def next(self) -> Consignment:
        """The frame to go on with, which is current from now on."""
        if self._current is None:
            self._current = self._lines[heapq.heappop(self._heap)[-1]][0]
        return self._current

    def later(self, consignment: Consignment) -> None:
        """The current frame is not done: it stays current while its quantum lasts."""
        if consignment.cost >= QUANTUM:
            self._current = None
            self._push(consignment.account)

    def park(self) -> None:
        """The current frame cannot go on until it is back."""
        self._current = None

    def back(self, consignment: Consignment) -> None:
        """A frame that was parked can go on."""
        self._turns.enter(consignment.account)
        self._push(consignment.account)

    def remove(self, consignment: Consignment) -> None:
        """A frame is done with, or given up; nothing happens if it is the head of no line, nor if it is parked."""
        account = consignment.account
        line = self._lines.get(account)
        if line is None or line[0] is not consignment:
            return
        line.popleft()
        if consignment is self._current:
            self._current = None
            if line:
                self._push(account)
        elif not line:
            self._heap = [entry for entry in self._heap if entry[-1] is not account]
            heapq.heapify(self._heap)
        if not line:
            del self._lines[account]

    def _push(self, account: Account) -> None:
        heapq.heappush(self._heap, (account.used, next(self._order), account))
