"""The phases of a connection and all its time limits: pure rules of a few times.

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
CLOSED     no                                             the peer has read our bytes, or 5 s
=========  =============================================  ==========================================================

The limits that end a phase:

==========  ============================  =======================================================================
limit       in                            due
==========  ============================  =======================================================================
UNREAD      any phase but CLOSED          WRITE_TIME after the peer stopped reading our bytes
LINGERED    LINGERING                     LINGER_SILENCE after its last byte; LINGER_TIME after it began
DRAINED     DRAINING, CLOSED              DRAIN_TIME after it began
FRAME_TIME  OPEN, reading, half a frame   LIMITS__FRAME_TIME after the frame began, plus 1 s for each 8 KiB, and at most
                                          LIMITS__FRAME_TIME after its last byte
AGE         OPEN, reading, between        LIMITS__CONNECTION_AGE, with jitter, after the connection began
            frames
==========  ============================  =======================================================================

A silent peer costs a place until a newcomer needs it: a connection may make way (`headrace_common.connection.places`).

FRAME_TIME does not run while this process does not read (`Lifetime.shift`). AGE never applies to a peer that has sent something
without asking for an acknowledgement, nor while that is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum
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
    """A time limit, as the module's second table explains. Its value is the metric's label of a connection that it closes."""

    UNREAD = "deaf"
    LINGERED = "drain"
    DRAINED = ""
    FRAME_TIME = "protocol_error"
    AGE = "age"


class Lifetime:
    """A connection's phase, and when the events on it happened, in monotonic seconds."""

    __slots__ = (
        "_frame_time", "frame_began", "frame_bytes", "last_byte", "old_from", "phase", "phase_until", "unread_since",
    )  # fmt: skip

    def __init__(self, born: float, frame_time: float, age: float) -> None:
        """`frame_time`: LIMITS__FRAME_TIME; `age`: LIMITS__CONNECTION_AGE with this connection's jitter, 0: none."""
        self._frame_time = frame_time
        self.phase = Phase.OPEN
        self.phase_until = inf
        """When a phase that has a limit ends."""
        self.last_byte = self.frame_began = born
        self.frame_bytes = 0
        self.unread_since: float | None = None
        """When the peer stopped reading our bytes."""
        self.old_from = born + age if age else inf
        """When it reaches its age limit. It then ends between two frames and acknowledges its pending frames."""

    def enter(self, phase: Phase, until: float = inf) -> None:
        """Enters `phase`, unless it is in a later one, for the time up to `until`."""
        self.phase, self.phase_until = max(self.phase, phase), until

    def frame_begins(self) -> None:
        """Begins a frame with the latest bytes."""
        self.frame_began, self.frame_bytes = self.last_byte, 0

    def shift(self, seconds: float) -> None:
        """Excludes the `seconds` in which we did not read: they do not count against the peer."""
        self.frame_began += seconds
        self.last_byte += seconds

    def rules(
        self, session: Status, *, reading: bool, partial: bool, behind: bool
    ) -> Iterator[tuple[float, Limit, bool]]:
        """Yields the limits of the module's second table, the most urgent first: when each is due, and whether it applies now.
        It may apply later without an event that sets a timer.

        `partial`: part of a frame has arrived, or bytes that are not parsed yet; `behind`: bytes wait to be parsed.
        """
        phase = self.phase
        if self.unread_since is not None and phase is not Phase.CLOSED:
            yield self.unread_since + WRITE_TIME, Limit.UNREAD, True
        if phase is Phase.LINGERING:
            yield self.last_byte + LINGER_SILENCE, Limit.LINGERED, not behind
            yield self.phase_until, Limit.LINGERED, True
        elif phase >= Phase.DRAINING:
            yield self.phase_until, Limit.DRAINED, True
        elif phase is Phase.OPEN and reading:
            if partial:
                earned = self.frame_began + self.frame_bytes / FRAME_TIME_BYTES
                yield min(earned, self.last_byte) + self._frame_time, Limit.FRAME_TIME, True
            if self.old_from < inf and not session.unacknowledgeable:
                yield self.old_from, Limit.AGE, not partial
