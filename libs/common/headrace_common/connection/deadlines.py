"""The phases of a connection and all its time limits, as pure functions of a few times.

A connection only moves forwards through its phases:

=========  =============================================  ==========================================================
phase      reads                                          left when
=========  =============================================  ==========================================================
OPEN       yes, as the budgets allow                      the peer ends, an error, age, the service stops
LINGERING  yes: the peer may have sent bytes without asking   1 s of silence, at most 5 s
           for an acknowledgement, or its first bytes;
           or its first frame waits for an answer
SETTLING   no                                             all frames are stored and acknowledged and all questions
                                                          answered, or a frame is abandoned
DRAINING   yes, and discards, so that no RST destroys     the peer ends, or 5 s
           the last bytes we wrote
CLOSED     no
=========  =============================================  ==========================================================

The limits that end a phase:

==========  ============================  =======================================================================
limit       in                            due
==========  ============================  =======================================================================
UNREAD      any phase but CLOSED          WRITE_TIME after the peer stopped reading our bytes
LINGERED    LINGERING                     LINGER_SILENCE after its last byte; LINGER_TIME after it began
DRAINED     DRAINING                      DRAIN_TIME after it began
FRAME_TIME  OPEN, reading, half a frame   LIMITS__FRAME_TIME after the frame began, plus 1 s for each 8 KiB; while the
                                          budget is crowded, at most LIMITS__FRAME_TIME after its last byte
AGE         OPEN, reading, between        LIMITS__CONNECTION_AGE, with jitter, after the connection began
            frames
==========  ============================  =======================================================================

A silent peer costs a place until a newcomer needs it: a connection may make way (`headrace_common.connection.places`).

FRAME_TIME does not run while this process does not read (`ConnectionTimes.shift`). After a pause of the whole process, each
limit is checked once more. AGE never applies to a peer that has sent something without asking for an acknowledgement, nor while
that is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from math import inf
from typing import Final

from headrace_common.session.interface import Status

LINGER_SILENCE: Final = 1.0
LINGER_TIME: Final = 5.0
DRAIN_TIME: Final = 5.0
WRITE_TIME: Final = 60.0
"""Seconds that a peer may stop reading our bytes once the buffers are full."""

FRAME_TIME_BYTES: Final = 8192
"""Bytes for which an unfinished frame earns one more second."""


class Phase(IntEnum):
    """A connection's phase, as the module's first table explains."""

    OPEN = 0
    LINGERING = 1
    SETTLING = 2
    DRAINING = 3
    CLOSED = 4


class Limit(Enum):
    """A time limit, as the module's second table explains."""

    UNREAD = auto()
    LINGERED = auto()
    DRAINED = auto()
    FRAME_TIME = auto()
    AGE = auto()


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Limits in seconds; 0 means none. `age` includes this connection's jitter."""

    frame: float
    age: float


@dataclass(slots=True)
class ConnectionTimes:
    """When the events on a connection happened, in monotonic seconds."""

    born: float
    last_byte: float
    frame_began: float
    frame_bytes: int = 0
    unread_since: float | None = None
    """When the peer stopped reading our bytes."""
    phase_until: float = inf
    """When a phase that has a limit ends."""

    @classmethod
    def at(cls, now: float) -> ConnectionTimes:
        """Returns those of a connection that begins at `now`."""
        return cls(now, now, now)

    def frame_begins(self) -> None:
        """Begins a frame with the latest bytes."""
        self.frame_began, self.frame_bytes = self.last_byte, 0

    def shift(self, seconds: float) -> None:
        """Excludes the `seconds` in which we did not read: they do not count against the peer."""
        self.frame_began += seconds
        self.last_byte += seconds


@dataclass(slots=True)
class Situation:
    """The state on which the limits depend besides time."""

    phase: Phase
    reading: bool
    partial: bool
    """Part of a frame has arrived, or bytes that are not parsed yet."""
    behind: bool
    """Bytes wait to be parsed."""
    crowded: bool
    """Unfinished frames have used up their share of the budget."""
    session: Status


def next_due(situation: Situation, clocks: ConnectionTimes, limits: TimeLimits) -> float | None:
    """Returns when the first limit could be due. None: no limit applies."""
    return min((due for due, _, _ in _rules(situation, clocks, limits)), default=None)


def passed(situation: Situation, clocks: ConnectionTimes, limits: TimeLimits, now: float) -> Limit | None:
    """Returns the most urgent limit that the connection has passed."""
    over = (limit for due, limit, applies in _rules(situation, clocks, limits) if applies and now >= due)
    return next(over, None)


def old_from(clocks: ConnectionTimes, limits: TimeLimits) -> float:
    """Returns when the connection reaches its age limit. It then ends between two frames and acknowledges its pending frames."""
    return clocks.born + limits.age if limits.age > 0 else inf


def _rules(situation: Situation, clocks: ConnectionTimes, limits: TimeLimits) -> Iterator[tuple[float, Limit, bool]]:
    """Yields the limits of the module's second table, the most urgent first: when each is due, and whether it applies now. It may
    apply later without an event that sets the timer.
    """
    phase, session, partial = situation.phase, situation.session, situation.partial
    if phase is Phase.CLOSED:
        return
    if clocks.unread_since is not None:
        yield clocks.unread_since + WRITE_TIME, Limit.UNREAD, True
    if phase is Phase.LINGERING:
        yield clocks.last_byte + LINGER_SILENCE, Limit.LINGERED, not situation.behind
        yield clocks.phase_until, Limit.LINGERED, True
    elif phase is Phase.DRAINING:
        yield clocks.phase_until, Limit.DRAINED, True
    elif phase is Phase.OPEN and situation.reading:
        if partial:
            earned = clocks.frame_bytes / FRAME_TIME_BYTES
            yield clocks.frame_began + limits.frame + earned, Limit.FRAME_TIME, True
            # A silent frame may use up the time that its bytes have earned only while it blocks no other connection.
            yield clocks.last_byte + limits.frame, Limit.FRAME_TIME, situation.crowded
        if limits.age and not (session.unacknowledgeable or session.undecided):
            yield old_from(clocks, limits), Limit.AGE, not partial
