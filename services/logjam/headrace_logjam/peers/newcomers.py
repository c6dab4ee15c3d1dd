"""Decides when a client that asks to be admitted may come, so that ZeroMQ comes round to those who are there. Pure.

libzmq (4.3.5, `fq.cpp`) reads a message of each connection in turn. It adds a new connection at the end of the turn, and forgets
one that has ended only when its turn comes. So where a connection comes for each message that is read, the end moves away as fast
as it is reached, and the connections at the beginning are read no more: beside 16 clients that send 100 KB and come again on
another connection, four others waited for as long as those went on. Therefore:

====================================  ==================================================
of the socket                         there may come
====================================  ==================================================
all was read, or nothing for a while  all who ask
`n` messages were read                one for each `MESSAGES` of them, in order
====================================  ==================================================

The turn then ends after few more messages than there are connections with something to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

Question = Sequence[bytes]

MESSAGES: Final = 16
"""Messages that are read for each newcomer, while there are more to read: as many as ZeroMQ keeps of a client. Those that leave
without having been read would fill the turn, too."""

AT_ONCE: Final = 16
"""Newcomers that may come together, where none has come for a while."""


class Newcomers:
    """Those who ask to be admitted to one socket."""

    def __init__(self, admit: Callable[[Question], bool]) -> None:
        """`admit` answers who asks; it returns False if they have left."""
        self._admit = admit
        self._waiting: deque[Question] = deque()
        self._room = inf
        self._still = False  # nothing was read since `pause`

    def ask(self, question: Question) -> None:
        """Admits who asks, now or later."""
        self._waiting.append(question)
        self._go_on()

    def read(self, messages: int) -> None:
        """`messages` were read of the socket; 0: there are no more."""
        self._still = False
        self._room = min(self._room + messages, AT_ONCE * MESSAGES) if messages else inf
        self._go_on()

    def pause(self) -> bool:
        """Admits all if nothing was read since the last call. Returns whether some wait; then call it again."""
        if self._still:
            self.admit_all()
        self._still = True
        return bool(self._waiting)

    def admit_all(self) -> None:
        """Admits all who wait."""
        self._room = inf
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._room >= MESSAGES:
            if self._admit(self._waiting.popleft()):
                self._room -= MESSAGES
