"""One Forward client's conversation, pure.

===========  ==================================  ==========================================================================
stage        reads                               left when
===========  ==================================  ==========================================================================
LOGIN        one PING; only with a shared key    it is right; it is wrong (PONG with the reason, closed); time is up
START        the first byte                      it says which codec the client speaks, for good
MESSAGES     messages of that codec              the peer ends; a byte that cannot be trusted
===========  ==================================  ==========================================================================

A message with a `chunk` is answered ``{"ack": chunk}`` when all of it is durable, in the order of arrival; a message
without is never answered. There is no other reply, and no negative one: what cannot be trusted is closed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgpack
from headrace_common.errors import ProtocolError
from headrace_common.event import Protocol, source
from headrace_common.inflate import InflateLimits
from headrace_common.session import Frame, Peer, Ticket
from headrace_common.settings import LimitSettings

from headrace_forward import json_wire, option
from headrace_forward.events import ForwardFrame, Limits, MessageFrame, Origin
from headrace_forward.handshake import NONCE_BYTES, Handshake, Security
from headrace_forward.json_events import JsonFrame
from headrace_forward.kinds import KINDS, Kind
from headrace_forward.option import Option
from headrace_forward.settings import ForwardSection
from headrace_forward.wire import SAMPLE, Decoder, acknowledgement

PING_ELEMENTS = 6
PINGS = {b"\xa4PING", b'"PING"'}
AT_ONCE = 0.0


@dataclass(slots=True)
class _Pending:
    """A message that was handed out. `reply` is what its client waits for; None when it asked for nothing."""

    reply: bytes | None
    whole: bool = False


class ForwardSession:
    """See `headrace_common.session.Session`. With `security`, nothing but a login is read before that is right."""

    def __init__(
        self,
        peer: Peer,
        limits: LimitSettings,
        forward: ForwardSection,
        security: Security | None = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._peer = peer
        self._origin = Origin(source(Protocol.FORWARD, peer.identity))
        self._settings = limits
        self._decoder: Decoder | json_wire.JsonDecoder | None = None
        self._limits = Limits(
            limits.frame_events,
            limits.event_bytes,
            InflateLimits(limits.inflated_bytes, limits.ratio),
            limits.depth,
            forward.tag_bytes,
            forward.option_bytes,
        )
        self._chunk_bytes = forward.chunk_bytes
        self._handshake_bytes = forward.handshake_bytes
        self._login = bytearray()
        self._read = 0  # bytes of the connection that the decoder is not given
        self._says: deque[bytes] = deque()
        self._handshake: Handshake | None = None
        self._deadline: float | None = None
        if security is not None:
            self._handshake = Handshake(security, peer.address, random(NONCE_BYTES), random(NONCE_BYTES))
            self._says.append(self._handshake.helo())
            self._deadline = AT_ONCE  # to learn what time it is
        self._ready: deque[MessageFrame] = deque()
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
        if self._says:
            return self._says.popleft()
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
        if self._handshake is not None:
            data = self._log_in(self._handshake, data)
        if self._decoder is None:
            if not data:
                return
            limits = self._settings
            if data[0] in json_wire.FIRST:
                self._decoder = json_wire.JsonDecoder(limits.frame_bytes, self._read)
            else:
                self._decoder = Decoder(limits.frame_bytes, limits.frame_events, self._read)
        if isinstance(self._decoder, Decoder):
            for message in self._decoder.receive(data):
                if len(message.ends) == PING_ELEMENTS and message.element(0) in PINGS:
                    raise self._uninvited(message.offset)
                asked = option.read(message)
                reply = None if asked.reply is None else acknowledgement(asked.reply)
                self._check(asked, message.offset, message.raw)
                self._hand_out(ForwardFrame(message, asked, self._next, now_ms, self._origin, self._limits), reply)
        else:
            for text in self._decoder.receive(data):
                if text.elements and len(text.elements) == PING_ELEMENTS and text.elements[0] in PINGS:
                    raise self._uninvited(text.offset)
                wanted = json_wire.read_option(text)
                reply = None if wanted.reply is None else json_wire.acknowledgement(wanted.reply)
                self._check(wanted, text.offset, text.raw)
                self._hand_out(JsonFrame(text, wanted, self._next, now_ms, self._origin, self._limits), reply)

    def _hand_out(self, frame: MessageFrame, reply: bytes | None) -> None:
        self._unacknowledgeable |= reply is None
        self._pending[self._next] = _Pending(reply)
        self._ready.append(frame)
        self._next += 1

    def _check(self, asked: Option, offset: int, raw: bytes) -> None:
        """A chunk that is too long to be sent back: its client cannot be answered, so it is not listened to."""
        if asked.chunk is not None and len(asked.chunk) > self._chunk_bytes:
            limit = "FORWARD__CHUNK_BYTES"
            raise ProtocolError("the chunk is too long", limit=limit, offset=offset, sample=raw[:SAMPLE])

    def _uninvited(self, offset: int) -> ProtocolError:
        """Published or quarantined it would put a login's digests on a topic, and its client would wait for ever."""
        return ProtocolError("a login, but there is no handshake: FORWARD__SHARED_KEY is not set", offset=offset)

    def _log_in(self, handshake: Handshake, data: bytes) -> bytes:
        """What follows the login; nothing until it is complete. Raises `ProtocolError` when it is refused."""
        self._login += data
        end = self._login_end()
        if end is None:
            return b""
        answer = handshake.answer(bytes(self._login[:end]))
        self._says.append(answer.pong)
        if answer.refusal is not None:
            raise self._refused(answer.refusal)
        rest = bytes(self._login[end:])
        self._login.clear()
        self._read = end
        self._handshake = self._deadline = None
        if answer.hostname and self._peer.identity == self._peer.address:  # a certificate's word counts for more
            self._origin = Origin(source(Protocol.FORWARD, answer.hostname))
        return rest

    def _login_end(self) -> int | None:
        """Where the PING ends; None when it is not complete."""
        if not self._login:
            return None
        if KINDS[self._login[0]] is not Kind.ARRAY:
            return 1  # the answer to anything else is the same
        unpacker = msgpack.Unpacker(max_buffer_size=0, read_size=self._handshake_bytes)
        unpacker.feed(self._login[: self._handshake_bytes])
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            if len(self._login) >= self._handshake_bytes:
                raise self._refused("the login is too large", "FORWARD__HANDSHAKE_BYTES") from None
            return None
        except (msgpack.UnpackException, ValueError):
            return 1
        return int(unpacker.tell())

    def _refused(self, reason: str, limit: str | None = None) -> ProtocolError:
        """What is logged of a login: never its bytes."""
        self._login.clear()
        return ProtocolError(f"login refused: {reason}", limit=limit, offset=0)

    def frames(self) -> Iterator[Frame]:
        """See the seam."""
        while self._ready:
            yield self._ready.popleft()

    def busy(self) -> bool:
        """Much was received at once: tiny messages or entries. Inflating is no part of it: that is done with the parts."""
        return self._decoder is not None and self._decoder.paused

    def eof(self) -> None:
        """See the seam. A client that never said a word is a heartbeat."""
        if self._login:
            raise self._refused("the stream ends inside it")
        if self._decoder is not None and self._decoder.held():
            raise self._decoder.cut_off()

    # Time

    def deadline(self) -> float | None:
        """When the login must be there. Forward has no keep-alives: nothing else ever falls due."""
        return self._deadline

    def tick(self, now: float) -> None:
        """See the seam."""
        if self._deadline == AT_ONCE:
            self._deadline = now + self._settings.handshake_time
        elif self._deadline is not None and now >= self._deadline:
            self._deadline = None
            raise ProtocolError("no login in time", limit="LIMITS__HANDSHAKE_TIME", offset=0)

    def farewell(self) -> bytes:
        """A message is acknowledged as a whole or not at all."""
        return b""

    def idle(self) -> bool:
        """See the seam."""
        return not self._pending and not self.held()

    def held(self) -> int:
        """See the seam."""
        return len(self._login) + (0 if self._decoder is None else self._decoder.held())

    def unacknowledgeable(self) -> bool:
        """See the seam."""
        return self._unacknowledgeable
