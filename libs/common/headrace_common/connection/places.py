"""Decides which connection leaves for a newcomer where all places are taken: the one idle for longest that is owed nothing. Pure.

It connects again and loses nothing: what it has sent as a whole is answered, and what it has not it sends again. So no crowd
shuts others out, whether silent from the beginning, after a first event, or inside a frame. A client that asks for no
acknowledgement may lose what is on its way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_LOOKED_AT: Final = 64
"""Connections that are looked at for one newcomer at most: thousands may wait for Kafka, and each turn of the loop is short."""


@dataclass(eq=False, slots=True)
class Place:
    """A connection's place. `leave` closes it; `is_owed`: frames of its client are pending, or questions, or bytes to parse."""

    leave: Callable[[], None]
    peer: str
    is_owed: Callable[[], bool] = lambda: False


class Places:
    """The places that are taken, of `most`, the longest idle first. Each call takes the same time, however many they are."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: OrderedDict[Place, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, place: Place) -> None:
        """Adds a connection that has come."""
        self._taken[place] = None

    def heard(self, place: Place) -> None:
        """Notes that its client has sent bytes."""
        if place in self._taken:
            self._taken.move_to_end(place)

    def give_back(self, place: Place) -> None:
        """Removes a connection that is gone. Further calls do nothing."""
        self._taken.pop(place, None)

    def make_way(self) -> Place | None:
        """Removes and returns the connection that leaves for a newcomer. None: refuse it, since those looked at are owed an
        answer; they are not looked at again before all others.
        """
        for _ in range(min(MOST_LOOKED_AT, len(self._taken))):
            place = next(iter(self._taken))
            if not place.is_owed():
                del self._taken[place]
                return place
            self._taken.move_to_end(place)
        return None
