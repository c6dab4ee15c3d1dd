"""Messages to records: an event, or the message as it came for quarantine. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

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

from headrace_logjam.wire import BodyLimits, Meta, Request, decode_meta, inflate, joined

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


Item = TypeVar("Item")


class RecordMaker(ABC, Generic[Item]):
    """Makes the records of messages, of producers or of devices."""

    def __init__(self, limits: BodyLimits) -> None:
        self._json = JsonObject(BodyFields, limits.depth)
        self._limits = limits
        self._envelopes = Memory(ENVELOPES_BYTES)

    @abstractmethod
    def make(self, item: Item, received_ms: int) -> Generator[Pause, None, Part]:
        """Returns the event of a message, or its reject. Never raises for any message."""

    @abstractmethod
    def spoiled(self, items: Sequence[Item], detail: str) -> Reject:
        """Returns messages as one reject: each as u32 length and the bytes that a reject of it alone would keep."""

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
            return Fault(Reason.OVERSIZED if error.limit else Reason.COMPRESSION, str(error))
        fields = json.read(raw) if len(raw) <= SHORT else (yield from paused(json.steps(raw)))
        if isinstance(fields, Fault):
            mended = yield from paused(json.mend(raw, fields, limits.event))
            return mended if isinstance(mended, Fault) else BodyContent(raw, *mended)
        return BodyContent(raw, fields, MendedJson(raw, b""))


PASSING: Final = frozenset((Reason.OVERSIZED, Reason.TOO_DEEP))
"""Reasons for which a sound message is no event: with other settings it would be one."""


class ProducerMessage(NamedTuple):
    """A producer's message and where it came from."""

    request: Request
    address: str


class ProducerMaker(RecordMaker[ProducerMessage]):
    """Makes the events of producers' messages."""

    @override
    def make(self, item: ProducerMessage, received_ms: int) -> Generator[Pause, None, Part]:
        request, address = item
        if request.problem:
            return self._reject(item, Reason.BAD_MESSAGE, request.problem)
        app_env, topic, body, frame = request.frames
        meta = decode_meta(frame)
        found = yield from self.read(meta, body)
        if isinstance(found, Fault):
            return self._reject(item, *found)
        raw, fields, event = found
        name = deterministic_id(PROTOCOL, app_env, topic, raw) if fields.named else unique_id()
        time = event_time(fields, meta.created_ms)
        envelope = self.envelope(address, app_env, topic)
        attributes = event.attributes(None if time else _RECEIVED)
        return envelope.event(name, time or rfc3339_ms(received_ms), event.value, attributes)

    @override
    def spoiled(self, items: Sequence[ProducerMessage], detail: str) -> Reject:
        return self._reject(items[0], Reason.INTERNAL, detail, joined([joined(each.request.frames) for each in items]))

    def _reject(self, item: ProducerMessage, reason: Reason, detail: str, raw: bytes | None = None) -> Reject:
        """Returns the message for quarantine, each of its frames as u32 length and bytes; or `raw`, in its name."""
        frames = item.request.frames
        names = [frame[:_SUBJECT].decode(errors="replace") for frame in frames[:2]]
        envelope = Envelope(PROTOCOL, source(PROTOCOL, item.address), "/".join(names))
        return envelope.reject(reason, detail, joined(frames) if raw is None else raw, unique_id())


@dataclass(eq=False)
class MessagesFrame(Frame, Generic[Item]):
    """Messages of one application that were read together. Part i is item i."""

    items: Sequence[Item]
    ticket: Ticket
    received_ms: int
    size: int
    maker: RecordMaker[Item]
    ordering_key: bytes
    acknowledged: bool
    kept: KeepUntil
    refused: set[int] = field(default_factory=set)
    """The messages that can never be events, as far as their parts have been made."""

    @override
    def parts(self) -> Iterator[Part | Pause]:
        """See `headrace_common.session.interface.Frame.parts`."""
        for index, item in enumerate(self.items):
            part = yield from self.maker.make(item, self.received_ms)
            if isinstance(part, Reject) and part.reason not in PASSING:
                self.refused.add(index)
            yield part

    @override
    def spoiled(self, detail: str) -> Reject:
        return self.maker.spoiled(self.items, detail)
