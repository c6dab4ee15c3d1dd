"""A payload as a frame: builds its events one by one, as the publisher asks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

import msgspec
import orjson
from headrace_common.record import native
from headrace_common.record.contract import DETERMINISTIC, Attribute, Reason
from headrace_common.record.event import Envelope, Part, Reject, deterministic_id, rfc3339_ms, source
from headrace_common.record.json_object import SHORT, Fault, JsonObject, utc
from headrace_common.session.interface import AT_ONCE, SMALL, Frame, Pause, Peer, Ticket, paused, singly
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_courier.wire import Payload, entry

PROTOCOL: Final = "courier"
OVERHEAD: Final = 1024
"""Bytes of memory that a payload takes beyond its entries."""

_LEFT_AND_LENGTH: Final = struct.Struct(">III").pack
_KEY_BYTES: Final = 4096
"""Characters of an event's `type`, `path` and `host` up to which the envelope is kept."""

_SOURCE_BYTES: Final = 1024
"""Longest text that is accepted as a host name."""


class CourierAttribute(StrEnum):
    """Keys of attributes that Courier's records alone have."""

    NONCE = "nonce"  # the payload's nonce, 32 hex digits


class CourierFields(msgspec.Struct):
    """The fields that Headrace reads from an event; all others pass through unread."""

    timestamp: str | None = msgspec.field(name="@timestamp", default=None)
    type: str | None = None
    path: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Limits of an event, and of the number of events in a payload. Sizes in bytes."""

    frame_events: int
    event_bytes: int
    depth: int
    subject_bytes: int


class CourierMaker:
    """Builds one connection's events. `memory`: where encoded envelopes are kept, for all connections."""

    def __init__(self, peer: Peer, limits: EventLimits, memory: Memory) -> None:
        self.json = JsonObject(CourierFields, limits.depth)
        self.limits = limits
        self._anonymous = peer.anonymous
        self._identity = peer.identity
        self._memory = memory
        self.unnamed = Envelope(PROTOCOL, source(PROTOCOL, peer.identity), "")

    def envelope(self, fields: CourierFields) -> Envelope:
        """Returns the envelope of an event. Stream: its `type`, else its `path`. Source: the certificate, else its `host`, else
        the address.
        """
        given = (fields.type, fields.path, fields.host)
        size = sum(map(len, filter(None, given)))
        key = None
        if size <= _KEY_BYTES:
            key = (CourierMaker, self._identity, self._anonymous, self.limits.subject_bytes, *given)
            known: Envelope | None = self._memory.get(key)
            if known is not None:
                return known
        identity = self._identity
        if self._anonymous and fields.host and _names(fields.host, _SOURCE_BYTES):
            identity = fields.host
        texts = filter(None, (fields.type, fields.path))
        subject = next((each for each in texts if _names(each, self.limits.subject_bytes)), "")
        made = Envelope(PROTOCOL, source(PROTOCOL, identity), subject)
        if key is not None:
            self._memory.put(key, made, made.size + 4 * size)  # a character takes up to four bytes
        return made

    def origin(self, key: bytes, raw: bytes) -> native.Origin | None:
        """Returns the origin of a key, as `native.Find` does, without an id's beginning: events have the ids of their payload."""
        fields = self.json.read(raw)
        return None if isinstance(fields, Fault) else (self.envelope(fields).pieces, None)


class CourierFrame(Frame):
    """One payload."""

    __slots__ = ("_maker", "_payload", "received_ms", "size", "small", "ticket")

    def __init__(self, payload: Payload, ticket: Ticket, received_ms: int, maker: CourierMaker) -> None:
        self._payload = payload
        self._maker = maker
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = payload.size + OVERHEAD
        self.small = payload.size <= SMALL and len(payload.entries) < AT_ONCE

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole content, inflated, with reason `internal`."""
        payload = self._payload
        raw = b"".join(map(entry, payload.entries)) + payload.tail
        return self._maker.unnamed.reject(Reason.INTERNAL, detail, raw, self._id(payload.count, raw), self._about())

    @override
    def parts(self) -> Iterator[Part | Pause]:
        return singly(self.runs())

    @override
    def runs(self) -> Iterator[Part | Pause | list[Part]]:
        """Yields part i for event i; all events beyond the limit form one more part."""
        core, payload, maker, about = native.core, self._payload, self._maker, self._about()
        entries, limits = payload.entries, (min(maker.limits.event_bytes, SHORT), maker.limits.depth)
        # The id's fields, each as u32 length and bytes. Fields that all events of a payload share come first.
        before = b"".join(map(entry, (PROTOCOL.encode(), payload.nonce)))

        def made(index: int) -> list[Part]:
            left = payload.count - index
            return core.payload(maker.origin, before, about, limits, entries, index, left, core.bytes_at_once)

        yield from native.by_turns(len(entries), made, lambda first, last: self._singly(first, last, before, about))
        if payload.tail:
            index = len(entries)
            detail = f"more than {maker.limits.frame_events:,} events"
            name = self._id(payload.count - index, payload.tail)
            yield maker.unnamed.reject(Reason.TOO_MANY_EVENTS, detail, payload.tail, name, self._about(index))

    def _singly(self, first: int, last: int, before: bytes, about: bytes) -> Iterator[Part | Pause]:
        """Yields the same as `runs`, from `first` up to `last`."""
        payload, maker = self._payload, self._maker
        read, envelope, most = maker.json.read, maker.envelope, maker.limits.event_bytes
        received = orjson.dumps({**orjson.loads(about), Attribute.TIME.value: "received"})
        now = rfc3339_ms(self.received_ms)
        for index, raw in enumerate(islice(payload.entries, first, last), first):
            size = len(raw)
            # Counted from the end: a resend leaves out the acknowledged events at the beginning.
            left = payload.count - index
            name = DETERMINISTIC + blake2b(
                b"".join((before, _LEFT_AND_LENGTH(4, left, size), raw)), digest_size=16
            ).hexdigest().encode()  # fmt: skip
            if size > most:
                fault = Fault(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {most}")
                yield maker.unnamed.reject(*fault, raw, name, self._about(index))
                continue
            found = read(raw) if size <= SHORT else (yield from paused(maker.json.steps(raw)))
            if isinstance(found, Fault):
                better = yield from paused(maker.json.mend(raw, found, most))
                if isinstance(better, Fault):
                    yield maker.unnamed.reject(*better, raw, name, self._about(index))
                    continue
                fields, event = better
                time = utc(fields.timestamp)
                attributes = event.attributes(about if time else received)
                yield envelope(fields).event(name, time or now, event.value, attributes)
                continue
            time = utc(found.timestamp)
            if time is None:
                yield envelope(found).event(name, now, raw, received)
            else:
                yield envelope(found).event(name, time, raw, about)

    def _id(self, left: int, raw: bytes) -> bytes:
        return deterministic_id(PROTOCOL, self._payload.nonce, left.to_bytes(4, "big"), raw)

    def _about(self, index: int | None = None) -> bytes:
        facts: dict[str, Any] = {CourierAttribute.NONCE.value: self._payload.nonce.hex()}
        if index is not None:
            facts[Attribute.INDEX.value] = index
        return orjson.dumps(facts)


def _names(text: str, most: int) -> bool:
    return len(text) <= most and len(text.encode()) <= most
