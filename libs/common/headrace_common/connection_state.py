"""The states of a connection. Its life is a line of states that is only walked forwards:

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


class State(IntEnum):
    """See the module's table."""

    OPEN = 0
    LINGERING = 1
    SETTLING = 2
    DRAINING = 3
    CLOSED = 4
