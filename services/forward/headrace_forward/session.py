"""One Forward client's conversation, pure.

A message with a `chunk` is answered ``{"ack": chunk}`` when all of it is durable, in the order of arrival; a message
without is never answered. There is no other reply, and no negative one: what cannot be trusted is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from headrace_common.errors import ProtocolError
from headrace_common.event import Protocol, source
from headrace_common.inflate import InflateLimits
from headrace_common.session import Frame, Peer, Ticket
from headrace_common.settings import LimitSettings

from headrace_forward import option
from headrace_forward.events import ForwardFrame, Limits
from headrace_forward.settings import ForwardSection
from headrace_forward.wire import SAMPLE, Decoder, Kind, Message, acknowledgement

ZSTD = b"\x28\xb5\x2f\xfd"
PING = b"\xa4PING"
PING_ELEMENTS = 6


@dataclass(slots=True)
class _Pending:
    """A message that was handed out. `reply` is what its client waits for; None when it asked for nothing."""

    reply: bytes | None
    whole: bool = False


class ForwardSession:
    """See `headrace_common.session.Session`."""

    def __init__(self, peer: Peer, limits: LimitSettings, forward: ForwardSection) -> None:
        self._source = source(Protocol.FORWARD, peer.identity)
        self._decoder = Decoder(limits.frame_bytes, limits.frame_events)
        self._limits = Limits(
            limits.frame_events,
            limits.event_bytes,
            InflateLimits(limits.inflated_bytes, limits.ratio),
            limits.depth,
            forward.tag_bytes,
            forward.option_bytes,
        )
        self._chunk_bytes = forward.chunk_bytes
        self._ready: deque[ForwardFrame] = deque()
        self._pending: dict[Ticket, _Pending] = {}  # in order of arrival
        self._next: Ticket = 0
        self._unacknowledgeable = False

    # What decides that an acknowledgement may leave

    def settle(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """The publisher's word. Only a message that is durable as a whole may be acknowledged."""
        if whole:
            self._pending[ticket].whole = True

    def abandon(self, ticket: Ticket) -> None:
        """The message stays at its place, never whole: it and all behind it remain unacknowledged."""

    def outgoing(self) -> bytes:
        """The acknowledgement of the oldest message, if that message is durable; messages that asked for none make way."""
        while self._pending:
            ticket, oldest = next(iter(self._pending.items()))
            if not oldest.whole:
                return b""
            del self._pending[ticket]
            if oldest.reply is not None:
                return oldest.reply
        return b""

    # Bytes to messages

    def receive(self, data: bytes, now_ms: int) -> None:
        """See the seam."""
        for message in self._decoder.receive(data):
            self._accept(message, now_ms)

    def _accept(self, message: Message, now_ms: int) -> None:
        if message.element(0) == PING and len(message.ends) == PING_ELEMENTS:
            # Published or quarantined it would put a login's digests on a topic, and its client would wait for ever.
            raise self._fault(message, "the shared-key handshake is not spoken yet")
        asked = option.read(message)
        if asked.chunk is not None and len(asked.chunk) > self._chunk_bytes:
            raise self._fault(message, "the chunk is too long", "FORWARD__CHUNK_BYTES")
        if asked.signal in (1, 2):
            raise self._fault(message, f"fluent_signal {asked.signal} (metrics, traces) is not spoken yet")
        if message.kind(1) in (Kind.STR, Kind.BIN) and (asked.compressed == "zstd" or message.begins(1, ZSTD)):
            raise self._fault(message, "zstd is not spoken yet")
        reply = None if asked.reply is None else acknowledgement(asked.reply)
        self._unacknowledgeable |= reply is None
        self._pending[self._next] = _Pending(reply)
        self._ready.append(ForwardFrame(message, asked, self._next, now_ms, self._source, self._limits))
        self._next += 1

    def _fault(self, message: Message, problem: str, limit: str | None = None) -> ProtocolError:
        return ProtocolError(problem, limit=limit, offset=message.offset, sample=message.raw[:SAMPLE])

    def frames(self) -> Iterator[Frame]:
        """See the seam."""
        while self._ready:
            yield self._ready.popleft()

    def busy(self) -> bool:
        """A message is inflated while its parts are made, not before."""
        return False

    def eof(self) -> None:
        """See the seam."""
        if self._decoder.held():
            raise self._decoder.cut_off()

    def deadline(self) -> float | None:
        """Forward has no keep-alives: nothing ever falls due."""
        return None

    def tick(self, now: float) -> None:
        """Nothing falls due."""

    def idle(self) -> bool:
        """See the seam."""
        return not self._pending and not self._decoder.held()

    def held(self) -> int:
        """See the seam."""
        return self._decoder.held()

    def unacknowledgeable(self) -> bool:
        """See the seam."""
        return self._unacknowledgeable
