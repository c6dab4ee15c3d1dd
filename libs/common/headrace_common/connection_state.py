"""The states of a connection, and its times in seconds. Its life is a line of states that is only walked forwards:

=========  =============================================  ==========================================================
state      reads                                          left when
=========  =============================================  ==========================================================
OPEN       yes, as the budgets allow                      the peer ends, an error, age, the service stops
LINGERING  yes: the peer asked no acknowledgement for     1 s of silence, at most 5 s
           what may be on its way
SETTLING   no                                             all frames are stored and acknowledged, or one is abandoned
DRAINING   to throw away, so that no RST eats what was    the peer ends, or 5 s
           written last
CLOSED     no
=========  =============================================  ==========================================================
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

LINGER_SILENCE: Final = 1.0
LINGER_TIME: Final = 5.0
DRAIN_TIME: Final = 5.0
WRITE_TIME: Final = 60.0
"""Seconds that a peer may leave unread what we write, once the buffers are full: then it is cut."""

AHEAD: Final = 256 << 10
"""Bytes that are read while what came before waits for its turn. Not to read at all would lose what a client without
acknowledgements sent last: TLS ends a connection that is not read together with what is unread."""

MUCH: Final = 64 << 10
"""Bytes that are not looked at when they arrive, but in a turn: sockets that are always readable bring 256 KiB each and again
each, and looking through that takes milliseconds that nobody else would get."""

FRAME_TIME_BYTES: Final = 8192
"""Each so many bytes of an unfinished frame buy it another second."""

RECHECK: Final = 0.5
"""Seconds until a connection that is due to close, but not idle, is looked at again."""


class State(IntEnum):
    """See the module's table."""

    OPEN = 0
    LINGERING = 1
    SETTLING = 2
    DRAINING = 3
    CLOSED = 4


class Unseen(bytearray):
    """What has arrived and was not looked at yet."""

    def take(self) -> bytes:
        """All of it; none is left."""
        data = bytes(self)
        self.clear()
        return data
