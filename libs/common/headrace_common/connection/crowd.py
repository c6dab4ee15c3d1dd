"""Decides which unproven connection leaves for a newcomer: the one silent for longest. Pure.

A connection proves that it is a client's by its first whole frame, request or question. While places are free, an unproven
one keeps its own: its client may have nothing to send yet and ask for no acknowledgement, and would lose its next events into
a connection that was closed meanwhile.

=========================  ==========================================
places taken               a newcomer
=========================  ==========================================
at most half               is taken
more than half             … and one silent for SILENCE leaves
all                        … and the longest silent leaves
all, all have proven       is refused
=========================  ==========================================
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SILENCE: Final = 60.0
"""Seconds that an unproven connection may be silent while more than half of the places are taken."""

MOST_LEAVING: Final = 2
"""How many leave for one newcomer at most: a crowd shrinks, and no turn of the loop is long."""


@dataclass(eq=False, slots=True)
class UnprovenConnection:
    """A connection that has sent no whole frame yet. `leave` closes it; `counted_as` is what its address counts as."""

    leave: Callable[[], None]
    peer: str
    heard: float
    counted_as: str = ""


class Crowd:
    """The unproven connections, the longest silent first. Times are monotonic seconds. Each call takes the same time, however
    many they are.
    """

    def __init__(self) -> None:
        self._silent: OrderedDict[UnprovenConnection, None] = OrderedDict()
        self._of: dict[str, OrderedDict[UnprovenConnection, None]] = {}  # the same by what their addresses count as

    def __len__(self) -> int:
        return len(self._silent)

    def enter(self, newcomer: UnprovenConnection) -> None:
        """Adds a connection that has come."""
        self._silent[newcomer] = None
        self._of.setdefault(newcomer.counted_as, OrderedDict())[newcomer] = None

    def rename(self, who: UnprovenConnection, peer: str, counted_as: str) -> None:
        """Notes the client's address, as a balancer has named it."""
        present = who in self._silent
        self.remove(who)
        who.peer, who.counted_as = peer, counted_as
        if present:
            self.enter(who)

    def heard(self, who: UnprovenConnection, now: float) -> None:
        """Notes that it has sent bytes that are no whole frame."""
        who.heard = now
        if who in self._silent:
            self._silent.move_to_end(who)
            self._of[who.counted_as].move_to_end(who)

    def remove(self, who: UnprovenConnection) -> None:
        """Removes a connection that has proven itself or is gone. Further calls do nothing."""
        if self._silent.pop(who, who) is None:
            of_address = self._of[who.counted_as]
            del of_address[who]
            if not of_address:
                del self._of[who.counted_as]

    def leaving(self, taken: int, places: int, now: float) -> list[UnprovenConnection]:
        """Removes and returns the clients that leave for a newcomer, who is not among the `taken`. If it returns none and all
        places are taken, refuse the newcomer.
        """
        gone: list[UnprovenConnection] = []
        for who in self._silent:
            due = now - who.heard >= SILENCE and 2 * taken > places
            if len(gone) == MOST_LEAVING or not (due or (taken >= places and not gone)):
                break
            gone.append(who)
        for who in gone:
            self.remove(who)
        return gone

    def leaving_of(self, counted_as: str) -> UnprovenConnection | None:
        """Removes and returns the connection that leaves for a newcomer of an address without free places. None: refuse it."""
        found = next(iter(self._of.get(counted_as, ())), None)
        if found is not None:
            self.remove(found)
        return found
