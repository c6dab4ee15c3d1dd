"""One Courier client's conversation, pure.

====================  =======================================================================================
the client says       we answer
====================  =======================================================================================
HELO, first of all    VERS
HELO later            ????
JDAT, EVNT            ACKN with its nonce and how many of its events, from its start, Kafka has; that number
                      only rises, and ends at the payload's count; payloads in the order of their arrival
PING                  PONG, at once, also while payloads wait
????                  nothing; counted
unknown               ????; counted
====================  =======================================================================================

While anything waits, for Kafka or for its own last bytes, the oldest payload's last ACKN is said again, so that its client's
time-out does not strike: 0 before the first of its events is stored, and while it still arrives. The publisher's deadline
(KAFKA__ACK_DEADLINE) and the arrival's (LIMITS__FRAME_TIME) bound that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headrace_common import __version__
from headrace_common.inflate import InflateLimits
from headrace_common.session import Frame, Peer, Ticket

from headrace_courier.events import CourierFrame, Limits, Maker
from headrace_courier.settings import CourierLimits, CourierSection
from headrace_courier.wire import COMPLAINT, PONG, Decoder, Kind, Payload, acknowledgement, identity

TICK: Final = 1.5
"""Seconds between two looks. Where nothing was said between two of them, the last ACKN is said again: so never more than
twice this apart, which must stay well below 5 s."""

NAME: Final = b"HDRC"
"""Who we are, in VERS: clients log it and nothing else."""


@dataclass(slots=True)
class _Pending:
    """A payload that was handed out. `said`: the last count that its client was told."""

    nonce: bytes
    count: int
    stored: int = 0
    said: int = 0
    whole: bool = False


class CourierSession:
    """See `headrace_common.session.Session`. `ignored` is told of every message that was passed over."""

    def __init__(
        self,
        peer: Peer,
        limits: CourierLimits,
        courier: CourierSection,
        ignored: Callable[[Kind], None] = lambda kind: None,
    ) -> None:
        inflate = InflateLimits(limits.inflated_bytes, limits.ratio)
        self._decoder = Decoder(limits.frame_bytes, limits.frame_events, inflate)
        self._maker = Maker(peer, Limits(limits.frame_events, limits.event_bytes, limits.depth, courier.subject_bytes))
        self._ignored = ignored
        self._replies: list[bytes] = []
        self._ready: deque[CourierFrame] = deque()
        self._pending: dict[Ticket, _Pending] = {}  # in order of arrival
        self._next: Ticket = 0
        self._abandoned = False
        self._now = 0.0  # when `tick` was called last
        self._fresh = False  # since then an ACKN was said, or the first thing began to wait
        self._repeat = False

    # What decides that an acknowledgement may leave

    def settle(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """The publisher's word. Parts are events, but for the last, which may be many: only `whole` covers that."""
        payload = self._pending[ticket]
        payload.stored = payload.count if whole else min(stored, payload.count)
        payload.whole = whole

    def abandon(self, ticket: Ticket) -> None:
        """Nothing is acknowledged from here on, nor is anybody kept waiting for it."""
        self._abandoned = True

    def outgoing(self) -> bytes:
        """All replies that are due. A payload's ACKN waits until those before it are complete."""
        out, self._replies = self._replies, []
        while self._pending and not self._abandoned:
            ticket, oldest = next(iter(self._pending.items()))
            if oldest.whole:
                del self._pending[ticket]
            elif oldest.stored <= oldest.said:
                break
            oldest.said = oldest.stored
            out.append(acknowledgement(oldest.nonce, oldest.said))
            self._fresh, self._repeat = True, False
        if self._repeat:
            self._fresh, self._repeat = True, False
            out += self._keep_alive()
        return b"".join(out)

    def _keep_alive(self) -> list[bytes]:
        for oldest in self._pending.values():
            return [acknowledgement(oldest.nonce, oldest.said)]
        arriving = self._decoder.arriving
        return [] if arriving is None else [acknowledgement(arriving, 0)]

    def _waits(self) -> bool:
        return not self._abandoned and (bool(self._pending) or self._decoder.arriving is not None)

    def deadline(self) -> float | None:
        """See the seam."""
        return self._now + TICK if self._waits() else None

    def tick(self, now: float) -> None:
        """See the seam."""
        self._now = now
        self._repeat = self._waits() and not self._fresh
        self._fresh = False

    # Bytes to payloads

    def receive(self, data: bytes, now_ms: int) -> None:
        """See the seam."""
        waited = self._waits()
        for message in self._decoder.receive(data):
            if type(message) is Payload:
                self._pending[self._next] = _Pending(message.nonce, message.count)
                self._ready.append(CourierFrame(message, self._next, now_ms, self._maker))
                self._next += 1
            elif message is Kind.HELO:
                self._replies.append(identity(b"VERS", __version__, NAME, evnt=True))
            elif message is Kind.PING:
                self._replies.append(PONG)
            else:
                assert isinstance(message, Kind)
                self._ignored(message)
                if message is Kind.UNKNOWN:
                    self._replies.append(COMPLAINT)
        if not waited and self._waits():
            self._fresh = True

    def frames(self) -> Iterator[Frame]:
        """See the seam."""
        while self._ready:
            yield self._ready.popleft()

    def busy(self) -> bool:
        """See the seam."""
        return self._decoder.busy

    def eof(self) -> None:
        """See the seam."""
        if self._decoder.held():
            raise self._decoder.cut_off()

    def farewell(self) -> bytes:
        """A payload that has not arrived as a whole has no event that is stored."""
        return b""

    def idle(self) -> bool:
        """See the seam."""
        return not self._pending and not self._decoder.held()

    def held(self) -> int:
        """See the seam."""
        return self._decoder.held()

    def unacknowledgeable(self) -> bool:
        """Every payload has a nonce: all is acknowledged."""
        return False
