"""One Courier client's conversation, pure.

====================  =======================================================================================
the client sends      we answer
====================  =======================================================================================
HELO, first           VERS
HELO later            ????
JDAT, EVNT            ACKN with its nonce and how many of its first events Kafka has stored; that number only
                      rises, and ends at the payload's count; payloads in the order of their arrival
PING                  PONG, at once, even while payloads wait
????                  nothing; counted
unknown               ????; counted
====================  =======================================================================================

While a payload waits for Kafka or for its own last bytes, the session repeats the oldest payload's last ACKN, so that its
client does not time out. The ACKN counts 0 until the payload's first event is stored, and while it still arrives. The
deadlines for Kafka (KAFKA__ACK_DEADLINE) and for the arrival (LIMITS__FRAME_TIME) bound that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace_common import __version__
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Peer, Ticket
from headrace_common.session.ledger import Ledger
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_courier.events import PROTOCOL, CourierFields, CourierFrame, CourierMaker
from headrace_courier.wire import COMPLAINT, PONG, CourierDecoder, MessageKind, Payload, acknowledgement, identity

TICK: Final = 1.5
"""Seconds between two ticks. If no ACKN was written between them, the last one is repeated: ACKNs are at most twice this
apart, which must stay well below 5 s."""

NAME: Final = b"HDRC"
"""Our name in VERS; clients only log it."""


@dataclass(slots=True)
class _PayloadNote:
    """A payload's acknowledgement: its client waits for `count` events. `reported`: the last count written."""

    nonce: bytes
    count: int
    reported: int = 0


class CourierSession(ByteSession):
    """Payloads in, acknowledgements out. Calls `ignored` for every message that is skipped."""

    def __init__(
        self,
        peer: Peer,
        limits: LimitSettings,
        ignored: Callable[[MessageKind], None] = lambda kind: None,
        memory: Memory | None = None,
    ) -> None:
        """`memory`: that of the service; without it, the session has its own."""
        self._decoder: CourierDecoder = CourierDecoder(limits.frame_bytes, limits.frame_events, limits.inflated_bytes)
        self._maker = CourierMaker(PROTOCOL, peer, CourierFields, limits.event_bytes, limits.depth, memory or Memory())
        self._ignored = ignored
        self._replies: list[bytes] = []
        self._ready: list[Frame] = []
        self._pending: Ledger[_PayloadNote] = Ledger()
        self._now = 0.0  # time of the last `tick`
        self._fresh = False  # since then, an ACKN was written or the first payload began to wait
        self._repeat = False

    # Decides which acknowledgements may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._pending.stored(ticket, stored, whole)

    @override
    def outgoing(self) -> bytes:
        """Returns all due replies. A payload's ACKN waits until the payloads before it are complete."""
        out, self._replies = self._replies, []
        while (oldest := self._pending.oldest()) is not None:
            note, stored = oldest.note, oldest.stored
            if self._pending.pop_whole() is not None:
                stored = note.count
            elif stored <= note.reported:
                break
            if stored > note.reported or not stored:  # all may be stored before it is known to be all
                out.append(acknowledgement(note.nonce, stored))
                self._fresh, self._repeat = True, False
            note.reported = stored
        if self._repeat:
            self._fresh, self._repeat = True, False
            out += self._keep_alive()
        return b"".join(out)

    def _keep_alive(self) -> list[bytes]:
        oldest = self._pending.oldest()
        if oldest is not None:
            return [acknowledgement(oldest.note.nonce, oldest.note.reported)]
        arriving = self._decoder.arriving
        return [] if arriving is None else [acknowledgement(arriving, 0)]

    def _waits(self) -> bool:
        return bool(self._pending) or self._decoder.arriving is not None

    @override
    def deadline(self) -> float | None:
        return self._now + TICK if self._waits() else None

    @override
    def tick(self, now: float) -> None:
        self._now = now
        self._repeat = self._waits() and not self._fresh
        self._fresh = False

    # Bytes to payloads

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        waited = self._waits()
        for message in self._decoder.receive(data):
            if type(message) is Payload:
                ticket = self._pending.add(_PayloadNote(message.nonce, len(message.entries)))
                self._ready.append(CourierFrame(message, ticket, now_ms, self._maker))
            elif message is MessageKind.HELO:
                self._replies.append(identity(b"VERS", __version__, NAME, evnt=True))
            elif message is MessageKind.PING:
                self._replies.append(PONG)
            else:
                assert isinstance(message, MessageKind)
                self._ignored(message)
                if message is MessageKind.UNKNOWN:
                    self._replies.append(COMPLAINT)
        if not waited and self._waits():
            self._fresh = True
