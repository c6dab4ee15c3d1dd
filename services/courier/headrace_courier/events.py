"""A payload as a frame: builds its events one by one, as the publisher asks."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec
from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import Part, Reject, deterministic_id, id_fields
from headrace_common.record.json_object import Fault
from headrace_common.record.json_text import Bytes
from headrace_common.session.interface import Ticket
from headrace_common.session.json_events import JsonEvents, JsonFrame, is_name
from typing_extensions import override

from headrace_courier.wire import Payload, entry

PROTOCOL: Final = "courier"
OVERHEAD: Final = 1024
"""Bytes of memory that a payload takes beyond its entries."""


class CourierAttribute(StrEnum):
    """Keys of attributes that Courier's records alone have."""

    NONCE = "nonce"  # the payload's nonce, 32 hex digits


class CourierFields(msgspec.Struct):
    """The fields that Headrace reads from an event; all others pass through unread."""

    timestamp: str | None = msgspec.field(name="@timestamp", default=None)
    type: str | None = None
    path: str | None = None
    host: str | None = None


class CourierMaker(JsonEvents[CourierFields]):
    """What the events of one connection share."""

    @override
    def names(self, fields: CourierFields) -> tuple[str | None, str | None]:
        """Stream: its `type`, else its `path`."""
        texts = filter(None, (fields.type, fields.path))
        return fields.host, next(filter(is_name, texts), None)

    @override
    def time(self, fields: CourierFields) -> str | None:
        return fields.timestamp


class CourierFrame(JsonFrame[CourierFields]):
    """One payload: part i for event i."""

    __slots__ = ("_payload",)

    def __init__(self, payload: Payload, ticket: Ticket, received_ms: int, maker: CourierMaker) -> None:
        self._payload = payload
        size = payload.size + OVERHEAD
        super().__init__(maker, ticket, received_ms, size, len(payload.entries), self._about())

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole content, inflated, with reason `internal`."""
        raw = b"".join(map(entry, self._payload.entries))
        return self.maker.envelope().reject(Reason.INTERNAL, detail, raw, self._id(0, raw), self.about)

    @override
    def raws(self, first: int, last: int) -> Iterator[Bytes]:
        return iter(self._payload.entries[first:last])

    @override
    def plain(self, index: int) -> list[Part]:
        payload, core, maker = self._payload, native.core, self.maker
        begun, left = id_fields(PROTOCOL, payload.nonce), self.count - index
        most = core.bytes_at_once
        return core.payload(maker.origin, begun, self.about or b"{}", maker.limits, payload.entries, index, left, most)

    @override
    def name(self, index: int, fields: CourierFields, event: Bytes) -> bytes:
        return self._id(index, self._payload.entries[index])

    @override
    def reject(self, index: int, fault: Fault, raw: Bytes) -> Reject:
        about = self._about(b',"%b":%d' % (Attribute.INDEX.encode(), index))
        return self.maker.envelope().reject(*fault, bytes(raw), self._id(index, raw), about)

    def _id(self, index: int, raw: Bytes) -> bytes:
        # Counted from the end: a resend leaves out the acknowledged events at the beginning.
        left = self.count - index
        return deterministic_id(PROTOCOL, self._payload.nonce, left.to_bytes(4, "big"), raw)

    def _about(self, more: bytes = b"") -> bytes:
        # Not by orjson: what it returns takes 4 KB, and a frame keeps two of these.
        return b'{"%b":"%b"%b}' % (CourierAttribute.NONCE.encode(), self._payload.nonce.hex().encode(), more)
