"""Frames that were handed out and are not acknowledged yet, in order. Pure."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace_common.session.interface import Ticket

T = TypeVar("T")


@dataclass(slots=True)
class LedgerEntry(Generic[T]):
    """A frame that was handed out. `note`: what its acknowledgement needs. `stored`: how many of its parts are durable."""

    note: T
    stored: int = 0
    whole: bool = False


class Ledger(Generic[T]):
    """Keeps frames in the order in which they were handed out. They are stored in any order and leave oldest first."""

    def __init__(self) -> None:
        self._tickets = itertools.count()
        self.entries: OrderedDict[Ticket, LedgerEntry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, note: T) -> Ticket:
        """Adds a frame that is handed out now. Returns its ticket."""
        ticket = next(self._tickets)
        self.entries[ticket] = LedgerEntry(note)
        return ticket

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Records how much of a frame is durable, as in `Session.stored`."""
        entry = self.entries[ticket]
        entry.stored, entry.whole = stored, whole

    def oldest(self) -> LedgerEntry[T] | None:
        """Returns the frame to acknowledge next. None: nothing is pending."""
        return next(iter(self.entries.values()), None)

    def pop_whole(self) -> LedgerEntry[T] | None:
        """Removes and returns the oldest frame if all of it is durable. None: no whole frame may be acknowledged now."""
        for oldest in self.entries.values():
            if not oldest.whole:
                return None
            self.entries.popitem(last=False)
            return oldest
        return None
