"""Messages to records: an event, or the message as it came for quarantine. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import (
    FIRST_SECOND,
    LAST_SECOND,
    Envelope,
    Part,
    Reject,
    deterministic_id,
    rfc3339_ms,
    source,
    unique_id,
)
from headrace_common.record.json_object import SHORT, Fault, JsonObject, utc
from headrace_common.record.windows_1252 import MendedJson
from headrace_common.session.interface import Frame, KeepUntil, Pause, Ticket, paused
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_logjam.wire import INFLATED_BYTES, BodyLimits, Meta, Request, decode_meta, inflate, joined

PROTOCOL: Final = "logjam"
OVERHEAD: Final = 512
"""Bytes that a message costs beyond its frames."""

ENVELOPES_BYTES: Final = 2 << 20
"""Bytes of envelopes that a socket keeps: of a thousand senders and streams, whose names clients choose."""

_RECEIVED: Final = orjson.dumps({Attribute.TIME.value: "received"})
_SUBJECT: Final = 256
"""Longest part of a broken message's name that names its stream."""


NOTHING: Final = msgspec.Raw(b"null")
NAMELESS: Final = (b"null", b'""')
"""Ids that name no request, as JSON."""


class LogjamAttribute(StrEnum):
    """Keys of attributes that Logjam's records alone have."""

    CREATED = "created"  # when the message was made, by the device's clock, Unix time in milliseconds


class BodyFields(msgspec.Struct):
    """The fields that are read of a body; all others go through unread."""

    started_ms: int | None = None
    started_at: str | None = None
    request_id: msgspec.Raw = NOTHING
    uuid: msgspec.Raw = NOTHING

    @property
    def named(self) -> bool:
        """Whether it has an id of its own."""
        return bytes(self.request_id) not in NAMELESS or bytes(self.uuid) not in NAMELESS


class MessagePart(NamedTuple):
    """The part of a message. `refused`: it is no event, and can never be one."""

    part: Part
    refused: bool


def event_time(fields: BodyFields, created_ms: int) -> bytes | None:
    """Returns the time of an event: `started_ms`, else `started_at`, else when its meta says that it was made; else None.

    A `started_at` without a zone is UTC.
    """
    started, text = fields.started_ms, fields.started_at
    if started is not None and (found := _instant(started)) is not None:
        return found
    if text is not None and (found := utc(text) or utc(f"{text}Z")) is not None:
        return found
    return _instant(created_ms)


def _instant(milliseconds: int) -> bytes | None:
    if milliseconds and FIRST_SECOND <= milliseconds // 1000 <= LAST_SECOND:
        return rfc3339_ms(milliseconds)
    return None


class BodyContent(NamedTuple):
    """A body: its JSON as it was sent, the fields read of it, and its event."""

    raw: bytes
    fields: BodyFields
    event: MendedJson


class BodyReader:
    """Reads the bodies of messages, of producers and of devices."""

    def __init__(self, limits: BodyLimits) -> None:
        self._json = JsonObject(BodyFields, limits.depth)
        self._limits = limits
        self._envelopes = Memory(ENVELOPES_BYTES)

    def envelope(self, sender: str, app_env: bytes, topic: bytes) -> Envelope:
        """Returns the envelope of the events of a sender, an address or an endpoint, in one stream."""
        key = sender, app_env, topic
        known: Envelope | None = self._envelopes.get(key)
        if known is None:
            known = self.new_envelope(*key)
            self._envelopes.put(key, known, known.size + sum(map(len, key)))
        return known

    def new_envelope(self, sender: str, app_env: bytes, topic: bytes) -> Envelope:
        """Makes it."""
        return Envelope(PROTOCOL, source(PROTOCOL, sender), (app_env + b"/" + topic).decode(errors="replace"))

    def read(self, meta: Meta, body: bytes) -> Generator[Pause, None, BodyContent | Fault]:
        """Returns the event that a body is, or why it is none."""
        json, limits = self._json, self._limits
        try:
            raw = yield from paused(inflate(meta.compression, body, limits))
        except ProtocolError as error:
            larger = Reason.INFLATED_LIMIT if error.limit == INFLATED_BYTES else Reason.OVERSIZED
            return Fault(larger if error.limit else Reason.COMPRESSION, str(error))
        fields = json.read(raw) if len(raw) <= SHORT else (yield from paused(json.steps(raw)))
        if isinstance(fields, Fault):
            mended = yield from paused(json.mend(raw, fields, limits.event))
            return mended if isinstance(mended, Fault) else BodyContent(raw, *mended)
        return BodyContent(raw, fields, MendedJson(raw, b""))


PASSING: Final = frozenset((Reason.INFLATED_LIMIT, Reason.OVERSIZED, Reason.TOO_DEEP))
"""Reasons for which a sound message is no event: with other settings it would be one."""


class ProducerMaker(BodyReader):
    """Makes the events of producers' messages."""

    def make(self, request: Request, address: str, received_ms: int) -> Generator[Pause, None, MessagePart]:
        """Returns the event of a message from `address`, or its reject. Never raises for any message."""
        if request.problem:
            return MessagePart(self.reject(request, address, Reason.BAD_MESSAGE, request.problem), True)
        app_env, topic, body, frame = request.frames
        meta = decode_meta(frame)
        found = yield from self.read(meta, body)
        if isinstance(found, Fault):
            return MessagePart(self.reject(request, address, *found), found.reason not in PASSING)
        raw, fields, event = found
        name = deterministic_id(PROTOCOL, app_env, topic, raw) if fields.named else unique_id()
        time = event_time(fields, meta.created_ms)
        envelope = self.envelope(address, app_env, topic)
        attributes = event.attributes(None if time else _RECEIVED)
        return MessagePart(envelope.event(name, time or rfc3339_ms(received_ms), event.value, attributes), False)

    def reject(self, request: Request, address: str, reason: Reason, detail: str, raw: bytes | None = None) -> Reject:
        """Returns the message for quarantine, each of its frames as u32 length and bytes; or `raw`, in its name."""
        names = [frame[:_SUBJECT].decode(errors="replace") for frame in request.frames[:2]]
        envelope = Envelope(PROTOCOL, source(PROTOCOL, address), "/".join(names))
        return envelope.reject(reason, detail, joined(request.frames) if raw is None else raw, unique_id())


class ProducerMessage(NamedTuple):
    """A producer's message and where it came from."""

    request: Request
    address: str


class ProducerFrame(Frame):
    """Messages of one application that were read together. Part i is message i."""

    def __init__(
        self,
        messages: Sequence[ProducerMessage],
        ticket: Ticket,
        received_ms: int,
        size: int,
        maker: ProducerMaker,
        *,
        ordering_key: bytes,
        answered: bool,
    ) -> None:
        """`size`: bytes of all messages. `answered`: their senders want an answer, and learn of a loss by it."""
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = size
        self.ordering_key = ordering_key
        self.acknowledged = answered
        self.kept = KeepUntil.DEADLINE if answered else KeepUntil.STORED
        self.refused: set[int] = set()
        """The messages that can never be events, as far as their parts have been made."""
        self.messages = messages
        self._maker = maker

    @override
    def parts(self) -> Iterator[Part | Pause]:
        """See `headrace_common.session.interface.Frame.parts`."""
        for index, message in enumerate(self.messages):
            part, refused = yield from self._maker.make(message.request, message.address, self.received_ms)
            if refused:
                self.refused.add(index)
            yield part

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns all its messages: each as u32 length and the bytes that a reject of it alone would keep."""
        first = self.messages[0]
        raw = joined([joined(message.request.frames) for message in self.messages])
        return self._maker.reject(first.request, first.address, Reason.INTERNAL, detail, raw)
