"""A payload as a frame: what it publishes, made one by one while the publisher asks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
import orjson
from headrace_common.event import (
    DETERMINISTIC,
    Attribute,
    Envelope,
    Part,
    Protocol,
    Reason,
    Reject,
    deterministic_id,
    rfc3339_ms,
    source,
)
from headrace_common.json_object import Fault, JsonObject, utc
from headrace_common.session import Peer, Ticket

from headrace_courier.wire import Payload, entry

PROTOCOL: Final = Protocol.COURIER
OVERHEAD: Final = 1024
"""Bytes that a payload costs beyond its entries."""

ENVELOPES: Final = 1024
"""Different streams of one connection whose envelope is kept."""

_LEFT_AND_LENGTH: Final = struct.Struct(">III").pack
_SOURCE_BYTES: Final = 1024
"""Longest host name that is believed to be one."""


class Fields(msgspec.Struct):
    """What is read of an event; everything else goes through unread."""

    timestamp: Any = msgspec.field(name="@timestamp", default=None)
    type: Any = None
    path: Any = None
    host: Any = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What an event may be, and how many a payload may hold: sizes in bytes."""

    frame_events: int
    event_bytes: int
    depth: int
    subject_bytes: int


class Maker:
    """Makes one connection's events."""

    def __init__(self, peer: Peer, limits: Limits) -> None:
        self.read = JsonObject(Fields, limits.depth).read
        self.limits = limits
        self._certified = peer.identity != peer.address
        self._identity = peer.identity
        self._envelopes: dict[tuple[Any, Any, Any], Envelope] = {}
        self.unnamed = Envelope(PROTOCOL, source(PROTOCOL, peer.identity), "")

    def envelope(self, fields: Fields) -> Envelope:
        """Stream: the event's `type`, else its `path`. Source: the certificate, else the event's `host`, else the address."""
        try:
            known = self._envelopes.get((fields.type, fields.path, fields.host))
        except TypeError:  # an object or array in one of them
            known = None
        if known is not None:
            return known
        identity = self._identity
        if not self._certified and self._names(fields.host, _SOURCE_BYTES):
            identity = fields.host
        subject = next(
            (each for each in (fields.type, fields.path) if self._names(each, self.limits.subject_bytes)), ""
        )
        made = Envelope(PROTOCOL, source(PROTOCOL, identity), subject)
        if all(type(each) in (str, type(None)) for each in (fields.type, fields.path, fields.host)):
            if len(self._envelopes) >= ENVELOPES:
                self._envelopes.clear()
            self._envelopes[fields.type, fields.path, fields.host] = made
        return made

    @staticmethod
    def _names(value: object, most: int) -> bool:
        return type(value) is str and 0 < len(value.encode("utf-8", "replace")) <= most


class CourierFrame:
    """One payload. See `headrace_common.session.Frame`."""

    __slots__ = ("_maker", "_payload", "acknowledged", "received_ms", "size", "ticket")

    def __init__(self, payload: Payload, ticket: Ticket, received_ms: int, maker: Maker) -> None:
        self._payload = payload
        self._maker = maker
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = True
        self.size = payload.size + OVERHEAD

    def spoiled(self, detail: str) -> Reject:
        """The whole content, inflated; reason `internal`."""
        payload = self._payload
        raw = b"".join(map(entry, payload.entries)) + payload.tail
        return self._maker.unnamed.reject(Reason.INTERNAL, detail, raw, self._id(payload.count, raw), self._about())

    def parts(self) -> Iterator[Part | int]:
        """See `headrace_common.session.Frame.parts`. Part i is event i; what lies beyond the limit is one part more."""
        payload, maker = self._payload, self._maker
        read, envelope, most = maker.read, maker.envelope, maker.limits.event_bytes
        # The id's fields, each as u32 length and bytes; those that all events of a payload share come first.
        before = b"".join(map(entry, (PROTOCOL.value.encode(), payload.nonce)))
        about = self._about()
        received = orjson.dumps({**orjson.loads(about), Attribute.TIME.value: "received"})
        now = rfc3339_ms(self.received_ms)
        for index, raw in enumerate(payload.entries):
            size = len(raw)
            # Counted from the end: a client that sends again leaves out what was acknowledged at the beginning.
            left = payload.count - index
            name = DETERMINISTIC + blake2b(
                b"".join((before, _LEFT_AND_LENGTH(4, left, size), raw)), digest_size=16
            ).hexdigest().encode()  # fmt: skip
            if size > most:
                fault = Fault(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {most}")
                yield maker.unnamed.reject(*fault, raw, name, self._about(index))
                continue
            found = read(raw)
            if type(found) is Fault:
                yield maker.unnamed.reject(*found, raw, name, self._about(index))
                continue
            assert isinstance(found, Fields)
            time = utc(found.timestamp)
            if time is None:
                yield envelope(found).event(name, now, raw, received)
            else:
                yield envelope(found).event(name, time, raw, about)
        if payload.tail:
            index = len(payload.entries)
            detail = f"more than LIMITS__FRAME_EVENTS ({maker.limits.frame_events}) events"
            name = self._id(payload.count - index, payload.tail)
            yield maker.unnamed.reject(Reason.TOO_MANY_EVENTS, detail, payload.tail, name, self._about(index))

    def _id(self, left: int, raw: bytes) -> bytes:
        return deterministic_id(PROTOCOL, self._payload.nonce, left.to_bytes(4, "big"), raw)

    def _about(self, index: int | None = None) -> bytes:
        facts: dict[str, Any] = {Attribute.NONCE.value: self._payload.nonce.hex()}
        if index is not None:
            facts[Attribute.INDEX.value] = index
        return orjson.dumps(facts)
