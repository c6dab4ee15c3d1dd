"""Decides when a client that asks to be admitted may come, so that ZeroMQ's turn of its connections ends. Pure.

libzmq (4.3.5, `fq.cpp`) reads a message of each connection in turn. It adds a new connection at the end of the turn, and forgets
one that has ended only when its turn comes and all is read of it that had arrived: up to 8 KiB of messages, in as many turns.
So where a connection comes for each that leaves, or faster, the turn grows: beside 300 clients that sent 60 KB and came again on
another connection once they were answered, it had 2,200 connections, and four others waited for 140 ms of processor time; beside
16 with one message of 100 KB each, for as long as those went on. Therefore:

==================================================  ==============================================
of the socket                                       there may come
==================================================  ==============================================
all was read, or nothing for a while                all that ask
a connection that was read has ended, and since     one, in its place
a newcomer came `MESSAGES` were read
since a newcomer came a part of a turn was read     one, in the place of the next that ends: clients that stay leave none
==================================================  ==============================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

Question = Sequence[bytes]

MESSAGES: Final = 16
"""Messages that are read for each newcomer, while there are more to read: as many as ZeroMQ keeps of a client. Clients that leave
without having been read would fill the turn, too."""

PART: Final = 4
"""Parts of a turn. Beside clients that stay, four newcomers come in each."""

AT_ONCE: Final = 16
"""Newcomers that may come together after a while without any."""


class Newcomers:
    """The clients that ask to be admitted to one socket."""

    def __init__(self, admit: Callable[[Question], bool]) -> None:
        """`admit` answers a client that asks; it returns False if that has left."""
        self._admit = admit
        self._waiting: deque[Question] = deque()
        self._free = True  # all may come
        self._places = 0  # of connections that have ended, less newcomers; others may have come before one ended
        self._messages = 0  # read since a newcomer came, or more
        self._turn = 0  # connections that the last turn had
        self._seen: set[int] = set()  # connections in this one
        self._seen_messages = 0
        self._still = False  # nothing was read since `pause`

    def ask(self, question: Question) -> None:
        """Admits a client that asks, now or later."""
        self._waiting.append(question)
        self._go_on()

    def read(self, connections: Sequence[int]) -> None:
        """Counts a message of each of these connections, read in that order. There may be more."""
        if self._free:
            self._free = False
            self._places, self._messages, self._turn = 0, AT_ONCE * MESSAGES, 0
        self._still = False
        self._seen.update(connections)
        self._seen_messages += len(connections)
        if self._seen_messages >= 2 * len(self._seen):  # a number may be reused before the old messages are read
            self._turn, self._seen_messages = len(self._seen), 0
            self._seen.clear()
        self._messages = min(self._messages + len(connections), AT_ONCE * self._part())
        self._go_on()

    def ended(self) -> None:
        """Counts the place of an ended connection that had sent something."""
        self._places += 1
        self._go_on()

    def pause(self) -> bool:
        """Admits all if nothing was read since the last call. Returns whether some wait; then call it again."""
        if self._still:
            self.admit_all()
        self._still = True
        return bool(self._waiting)

    def admit_all(self) -> None:
        """Admits all that wait, and later ones until something is read: all was read, or the service ends."""
        self._free = True
        self._go_on()

    def _part(self) -> int:
        """Returns the messages of a part of a turn; at least `MESSAGES`."""
        return max(MESSAGES, max(self._turn, len(self._seen)) // PART)

    def _go_on(self) -> None:
        part = self._part()
        while self._waiting and (self._free or self._messages >= (MESSAGES if self._places > 0 else part)):
            if self._admit(self._waiting.popleft()) and not self._free:
                self._messages = max(0, self._messages - part)
                self._places -= 1
