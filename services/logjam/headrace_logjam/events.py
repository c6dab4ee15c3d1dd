"""Messages to records: an event, or the message as it came for quarantine. Pure."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import msgspec
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Reason
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
from headrace_common.record.json_object import SHORT, Fault, JsonObject, ReadEvent, utc
from headrace_common.session.json_events import RECEIVED
from headrace_common.session.memory import Memory

from headrace_logjam.wire import LogjamMessage, inflate, joined

PROTOCOL: Final = "logjam"
ENVELOPES_BYTES: Final = 2 << 20
"""Bytes of envelopes that a socket keeps: of a thousand senders and streams, whose names clients choose."""

_SUBJECT: Final = 256
"""Longest part of a broken message's name that names its stream."""

NOTHING: Final = msgspec.Raw(b"null")
NAMELESS: Final = (b"null", b'""')
"""Ids that name no request, as JSON."""


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


class RecordMaker:
    """Makes the records of producers' messages."""

    def __init__(self, limits: LimitSettings) -> None:
        self._json = JsonObject(BodyFields, limits.depth)
        self._largest = min(limits.event_bytes, limits.inflated_bytes)
        self._envelopes = Memory(ENVELOPES_BYTES)

    def make(self, message: LogjamMessage, received_ms: int) -> Generator[int, None, Part]:
        """Returns the event of a message, or its reject. Never raises for any message."""
        meta, json, largest = message.meta, self._json, self._largest
        if message.problem or meta is None:
            return self._reject(message, Reason.BAD_MESSAGE, message.problem)
        app_env, topic, body, _ = message.frames
        try:
            raw = yield from inflate(meta.compression, body, largest)
        except ProtocolError as error:
            return self._reject(message, Reason.OVERSIZED if error.limit else Reason.COMPRESSION, str(error))
        fields = json.quick(raw) if len(raw) <= SHORT else None
        event = (yield from json.read(raw, largest)) if fields is None else ReadEvent(fields, raw, b"")
        if isinstance(event, Fault):
            return self._reject(message, *event)
        fields = event.fields
        name = self.name(message, raw if fields.named else None)
        time = event_time(fields, meta.created_ms)
        attributes = event.attributes(self.about(message, received=time is None))
        envelope = self.envelope(message.sender, app_env, topic)
        return envelope.event(name, time or rfc3339_ms(received_ms), event.value, attributes)

    def name(self, message: LogjamMessage, raw: bytes | None) -> bytes:
        """Returns the id of a message. `raw`: its JSON, if that names a request."""
        return unique_id() if raw is None else deterministic_id(PROTOCOL, *message.frames[:2], raw)

    def about(self, message: LogjamMessage, *, received: bool = False) -> bytes | None:
        """Returns the attributes of a message as JSON. `received`: its time is that of the receipt."""
        return RECEIVED if received else None

    def spoiled(self, messages: Sequence[LogjamMessage], detail: str) -> Reject:
        """Returns messages as one reject, in the name of the first: each as u32 length and the bytes that its own would keep."""
        return self._reject(messages[0], Reason.INTERNAL, detail, joined([joined(each.frames) for each in messages]))

    def _reject(self, message: LogjamMessage, reason: Reason, detail: str, whole: bytes | None = None) -> Reject:
        """Returns the message for quarantine, each of its frames as u32 length and bytes; or `whole`, in its name."""
        names = "/".join(frame[:_SUBJECT].decode(errors="replace") for frame in message.frames[:2])
        envelope = Envelope(PROTOCOL, source(PROTOCOL, message.sender), names)
        raw, name = (joined(message.frames), self.name(message, None)) if whole is None else (whole, unique_id())
        return envelope.reject(reason, detail, raw, name, self.about(message))

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
