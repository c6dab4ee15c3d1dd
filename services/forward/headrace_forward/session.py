"""One Forward client's conversation, pure.

===========  ==================================  ==========================================================================
stage        reads                               left when
===========  ==================================  ==========================================================================
LOGIN        one PING; only with a shared key    it is accepted; it is refused (PONG with the reason, then close); timeout
START        the first byte; without a login     always: the byte decides the codec of the whole connection
MESSAGES     messages of that codec; after a     the peer closes; the stream becomes invalid
             login, msgpack
===========  ==================================  ==========================================================================

When all of a message with a `chunk` is durable, the session answers ``{"ack": chunk}``, in the order of arrival. A message
without a chunk gets no answer. No other reply exists, and no negative one: an invalid stream closes the connection.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.record import native
from headrace_common.record.event import source
from headrace_common.session.interface import SMALL_PARTS, ByteSession, Frame, Peer, Status, Ticket
from headrace_common.session.ledger import Ledger
from typing_extensions import override

from headrace_forward.entries.ids import PROTOCOL
from headrace_forward.entries.option import Option
from headrace_forward.entries.option import read as msgpack_option
from headrace_forward.events.message import ForwardFrame, MadeFrame, MessageFrame
from headrace_forward.events.origin import Origin
from headrace_forward.handshake import NONCE_BYTES, Handshake
from headrace_forward.json_form import FIRST, JsonDecoder, JsonFrame
from headrace_forward.json_form import read_option as json_option
from headrace_forward.settings import ForwardSection
from headrace_forward.wire import ACK_KEY, ForwardDecoder

PING_ELEMENTS = 6
PING = b"\xa4PING"
NOW = 0.0
UNINVITED = "the client sends a login without a handshake: FORWARD__SHARED_KEY is not set"
"""A topic must not hold its digests, and its client would wait for ever."""
NAME_BYTES = 255
"""Longest name in a login that becomes the source: it goes into a header of every event. A host name has at most 253 bytes."""


_RESTING: Final = Status()
"""The status between two messages, the usual one. A module name, since making a status costs time with each frame."""


class ForwardSession(ByteSession):
    """Messages in, acknowledgements out. With a shared key, it reads nothing but a login until that is accepted."""

    def __init__(self, peer: Peer, limits: LimitSettings, forward: ForwardSection) -> None:
        self._peer = peer
        self._forward = forward
        whose = source(PROTOCOL, peer.identity)
        self._origin = Origin(whose, peer.certificate, limits, forward.tag_bytes, forward.option_bytes)
        self._decoder: ForwardDecoder | JsonDecoder | None = None
        entries = min(SMALL_PARTS, limits.frame_events)
        self._most = (forward.chunk_bytes, forward.option_bytes, limits.event_bytes, limits.depth, entries)
        self._handshake_replies: deque[bytes] = deque()
        self._handshake: Handshake | None = None
        self._deadline: float | None = None
        if (key := forward.shared_key) is not None:
            self._handshake = Handshake(key, forward, os.urandom(NONCE_BYTES), os.urandom(NONCE_BYTES))
            self._handshake_replies.append(self._handshake.helo())
            self._deadline = NOW  # so that a tick tells it the time
            self._decoder = ForwardDecoder(forward.handshake_bytes)
        self._ready: list[Frame] = []
        self._pending: Ledger[bytes | None] = Ledger()  # each message's reply; None if its client asked for none
        self._asks: bool | None = None  # all messages have asked for an acknowledgement; None: there was none

    # Decides which acknowledgements may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Notes what Kafka has stored of a message. Only one that is stored whole may be acknowledged."""
        self._pending.stored(ticket, stored, whole)

    @override
    def outgoing(self) -> bytes:
        """Returns the acknowledgement of the oldest message, if that is durable. Skips durable messages that asked for none."""
        if self._handshake_replies:
            return self._handshake_replies.popleft()
        pending = self._pending
        while pending.entries and (oldest := pending.pop_whole()) is not None:
            if oldest.note is not None:
                return oldest.note
        return b""

    # Bytes to messages

    @override
    def receive(self, data: bytes, now_ms: int) -> bool | None:
        known, decoder = self._origin.known, self._decoder
        if known is None or not isinstance(decoder, ForwardDecoder) or not decoder.may_be_whole(data):
            self._receive(data, now_ms)
            return None
        # A message was taken before: these are no login.
        if (made := native.core.whole(data, known, self._most)) is not None:
            events, size, chunk = made
            decoder.passed(data)
            self._ready.append(MadeFrame(events, size, self._pending.add(ACK_KEY + chunk), now_ms))
            return True
        self._receive(data, now_ms)
        return self.status() is _RESTING

    def _receive(self, data: bytes, now_ms: int) -> None:
        if self._decoder is None:
            if not data:
                return
            self._decoder = (JsonDecoder if data[0] in FIRST else ForwardDecoder)(self._origin.limits.frame_bytes)
        decoder = self._decoder
        if isinstance(decoder, JsonDecoder):
            for text in decoder.receive(data):
                if bytes(text.elements[0]) == b'"PING"' and bytes(text.elements[1][:1]) == b'"':
                    raise decoder.fault(UNINVITED)
                self._take(JsonFrame, text, json_option(text, self._forward.option_bytes), now_ms)
            return
        try:
            for message in decoder.receive(data):
                if self._handshake is not None:
                    self._log_in(self._handshake, message.raw, decoder)
                elif len(message.elements) == PING_ELEMENTS and message.element(0) == PING:
                    raise decoder.fault(UNINVITED)
                else:
                    self._take(ForwardFrame, message, msgpack_option(message), now_ms)
        except ProtocolError as error:
            raise self._unlogged(error) from None

    def _take(self, kind: type[MessageFrame], message: object, option: Option, now_ms: int) -> None:
        """Takes a message, unless its chunk is too long to send back: without an answer, its client must not send more."""
        if option.chunk is not None and len(option.chunk) > self._forward.chunk_bytes:
            assert self._decoder is not None
            raise self._decoder.fault("the chunk is too long", "FORWARD__CHUNK_BYTES")
        self._asks = self._asks is not False and option.reply is not None
        ticket = self._pending.add(option.reply)
        self._ready.append(kind(message, option, ticket, now_ms, self._origin))

    def _log_in(self, handshake: Handshake, ping: bytes, decoder: ForwardDecoder) -> None:
        """Answers a PING. Raises `ProtocolError` if it is refused."""
        answer = handshake.answer(ping)
        self._handshake_replies.append(answer.pong)
        if answer.refusal is not None:
            raise decoder.fault(f"login refused: {answer.refusal}")
        decoder.frame_bytes = self._origin.limits.frame_bytes
        self._handshake = self._deadline = None
        if answer.hostname and not self._peer.certified:  # a certificate takes precedence
            named = self._peer.anonymous and len(answer.hostname.encode()) <= NAME_BYTES
            identity = answer.hostname if named else self._peer.identity
            self._origin.source, self._origin.name = source(PROTOCOL, identity), answer.hostname.encode()

    @override
    def eof(self) -> None:
        """Takes a client that closes without a byte for a heartbeat, not for a fault."""
        if self._decoder is not None and self._decoder.partial_bytes():
            raise self._unlogged(self._decoder.fault("the stream ends inside a message"))

    def _unlogged(self, error: ProtocolError) -> ProtocolError:
        """Returns the error; that of a login without its bytes, since it is logged."""
        if self._handshake is not None:
            error.sample = b""
            error.limit = error.limit and "FORWARD__HANDSHAKE_BYTES"
        return error

    # Time

    @override
    def deadline(self) -> float | None:
        """Returns the deadline of the login. Forward has no keep-alives, so nothing else falls due."""
        return self._deadline

    @override
    def tick(self, now: float) -> None:
        if self._deadline == NOW:
            self._deadline = now + self._origin.limits.handshake_time
        elif self._deadline is not None and now >= self._deadline:
            self._deadline = None
            raise ProtocolError("the login took too long", limit="LIMITS__HANDSHAKE_TIME", offset=0)

    @override
    def status(self) -> Status:
        """Returns its state. It is busy while many tiny messages or entries wait; inflating happens while the parts are built."""
        decoder, partial_bytes, busy = self._decoder, 0, False
        if decoder is not None:
            partial_bytes, busy = decoder.partial_bytes(), decoder.busy
        if self._asks and not (partial_bytes or busy):
            return _RESTING
        return Status(
            partial_bytes=partial_bytes, busy=busy, unacknowledgeable=not self._asks and self._handshake is None
        )
