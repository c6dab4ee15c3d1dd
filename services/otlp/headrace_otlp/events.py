"""A request as a frame: builds its events one by one, as the publisher asks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from enum import StrEnum
from hashlib import sha256
from typing import Final

import orjson
from google.protobuf.json_format import MessageToJson
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import (
    FRAME_PREFIX,
    Envelope,
    FrameIds,
    Part,
    Reject,
    deterministic_id,
    hash_slowly,
    rfc3339,
    rfc3339_ms,
    source,
    unique_frame_ids,
)
from headrace_common.record.json_text import noted, object_of
from headrace_common.session.interface import SMALL, Frame, Peer, Run, Ticket
from headrace_common.session.json_events import RECEIVED, is_name
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from typing_extensions import override

from headrace_otlp.logs import INFLATERS, JSON, PROTOBUF, ContentError, Group, cut, message_of, protobuf_of, wrapped
from headrace_otlp.values import Plain
from headrace_otlp.wire import Request

NAME: Final = "otlp"
OVERHEAD: Final = 16 << 10
"""Bytes of memory that a request takes beyond its body, with what came behind it."""

INSTANCES: Final = ("service.instance.id", "host.name", "host.id", "k8s.pod.name", "k8s.pod.uid", "container.id")
"""Attributes of a resource that say which process or machine it is (OpenTelemetry's semantic conventions)."""
COARSE: Final = 1_000_000
"""Nanoseconds of JavaScript's clock, the coarsest: a process may say the same twice at one time, so a resend is a second row."""


class OtlpAttribute(StrEnum):
    """Keys of attributes that OTLP's records alone have, in quarantine."""

    ENCODING = "encoding"  # the media type of the content, which is a request's body
    COMPRESSION = "compression"  # its content coding; empty if it has none


class RequestFrame(Frame):
    """A request's log records: part i for record i. A body that cannot be understood is one reject."""

    __slots__ = ("_limits", "_peer", "_refused", "_rejected", "_request", "received_ms", "size", "small", "ticket")

    def __init__(self, request: Request, ticket: Ticket, received_ms: int, peer: Peer, limits: LimitSettings) -> None:
        self._request = request
        self._peer = peer
        self._limits = limits
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = len(request.body) + OVERHEAD
        self.small = len(request.body) <= SMALL
        self._refused = ""
        self._rejected: Counter[str] = Counter()

    def answer(self) -> None:
        """Sets the request's answer, once all parts are stored."""
        request, made = self._request, ExportLogsServiceResponse()
        if self._refused:
            request.fail(400, self._refused)
            return
        if self._rejected:
            reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(self._rejected.items()))
            made.partial_success.rejected_log_records = self._rejected.total()
            made.partial_success.error_message = f"in quarantine: {reasons}"
        request.respond(200, made.SerializeToString() if request.encoding == PROTOBUF else MessageToJson(made).encode())

    @override
    def runs(self) -> Iterator[Run]:
        self._refused = ""
        self._rejected.clear()
        try:
            groups, digest = yield from self._groups()
        except ContentError as error:
            self._refused = f"in quarantine: {error.reason.value}: {error}"
            yield self._whole(error.reason, str(error))
            return
        named = FrameIds(deterministic_id(NAME, self._peer.certificate, digest)[:FRAME_PREFIX])
        ids, index = (named, unique_frame_ids()), 0
        for group in groups:
            maker = _GroupEvents(group, self._peer, self._limits, rfc3339_ms(self.received_ms), ids)
            for record in group.records:
                part = maker.part(bytes(record), index)
                if isinstance(part, Reject):
                    self._rejected[part.reason.value] += 1
                yield part
                index += 1

    def _groups(self) -> Generator[int, None, tuple[list[Group], bytes]]:
        """Returns the groups, and the SHA-256 of the inflated body. Raises `ContentError`."""
        request, limits, digest = self._request, self._limits, sha256()
        content = request.body
        if request.coding:
            inflated = bytearray()
            try:
                for piece in INFLATERS[request.coding](content, limits.inflated_bytes):
                    inflated += piece
                    yield len(piece)
            except ProtocolError as error:
                reason = Reason.INFLATED_LIMIT if error.limit else Reason.COMPRESSION
                raise ContentError(reason, str(error)) from error
            content = bytes(inflated)
        yield from hash_slowly(digest.update, content)
        sent = len(content)
        if request.encoding == JSON:
            content = yield from protobuf_of(content)
        groups = yield from cut(content, limits.frame_events)
        if not groups and sent > len(b"{}"):
            raise ContentError(Reason.BAD_RECORD, "no log record")  # traces, say, or an older form
        repeated = sum((len(each.resource) + len(each.scope)) * len(each.records) for each in groups)
        if (size := len(content) + repeated) > limits.inflated_bytes:
            detail = f"events of {size} bytes, LIMITS__INFLATED_BYTES {limits.inflated_bytes}"
            raise ContentError(Reason.INFLATED_LIMIT, detail)
        return groups, digest.digest()

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the body as received, with reason `internal`."""
        return self._whole(Reason.INTERNAL, detail)

    def _whole(self, reason: Reason, detail: str) -> Reject:
        request = self._request
        about = {OtlpAttribute.ENCODING.value: request.encoding, OtlpAttribute.COMPRESSION.value: request.coding}
        envelope = Envelope(NAME, source(NAME, self._peer.identity), "")
        name = deterministic_id(NAME, self._peer.certificate, request.body)
        return envelope.reject(reason, detail, request.body, name, orjson.dumps(about))


class _GroupEvents:
    """What the events of a group share. A resource or scope that cannot be understood is a fault of each of its records.

    `ids`: those of events that are the same when they are sent again, and those of others.
    """

    def __init__(
        self, group: Group, peer: Peer, limits: LimitSettings, now: bytes, ids: tuple[FrameIds, FrameIds]
    ) -> None:
        self._group, self._limits, self._now = group, limits, now
        self._named, self._unnamed = ids
        self._about, self._tail = Plain(), b""
        self._problem: tuple[Reason, str] | None = None
        try:
            names = self._read()
        except ContentError as error:
            names, self._problem = {}, (error.reason, f"its resource or scope: {error}")
        self._is_named = peer.certified or any(map(names.get, INSTANCES))  # the same bytes from elsewhere are not its
        host, stream = names.get("host.name", ""), names.get("service.name", "")
        identity = host if host and peer.anonymous and is_name(host) else peer.identity
        self._envelope = Envelope(NAME, source(NAME, identity), stream if is_name(stream) else "")

    def _read(self) -> dict[str, str]:
        """Reads resource and scope. Returns the resource's attributes that are texts."""
        group, most = self._group, self._limits.event_bytes
        if (size := len(group.resource) + len(group.scope)) > most:
            raise ContentError(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {most}")
        logs, scoped = message_of(ResourceLogs, group.resource), message_of(ScopeLogs, group.scope)
        resource = self._about.message(logs.resource, logs.schema_url)
        self._tail = b'"resource":%b,"scope":%b}' % (resource, self._about.message(scoped.scope, scoped.schema_url))
        return {each.key: each.value.string_value for each in reversed(logs.resource.attributes)}

    def part(self, raw: bytes, index: int) -> Part:
        """Makes a record's event, or its reject."""
        most = self._limits.event_bytes
        try:
            if len(raw) > most:
                raise ContentError(Reason.OVERSIZED, f"{len(raw)} bytes, LIMITS__EVENT_BYTES {most}")
            if self._problem is not None:
                raise ContentError(*self._problem)
            record = message_of(LogRecord, raw)
            plain = Plain()
            value = plain.message(record)
            value = value[:-1] + (b"," if value != b"{}" else b"") + self._tail
            nanoseconds = record.time_unix_nano or record.observed_time_unix_nano
            attributes = None if nanoseconds else RECEIVED
            if notes := plain.notes | self._about.notes:
                before = [attributes[1:-1]] if attributes else []
                attributes = object_of([*before, *noted(tuple(sorted(notes)), self._alone(raw))])
            if (size := len(value) + len(attributes or b"")) > most:
                raise ContentError(Reason.OVERSIZED, f"{size} bytes as an event, LIMITS__EVENT_BYTES {most}")
        except ContentError as error:
            about = {OtlpAttribute.ENCODING.value: PROTOBUF, Attribute.INDEX.value: index}
            name = self._named(index)
            return self._envelope.reject(error.reason, str(error), self._alone(raw), name, orjson.dumps(about))
        is_fine = record.time_unix_nano % COARSE or record.observed_time_unix_nano % COARSE
        name = self._named(index) if is_fine and self._is_named else self._unnamed(index)
        time = rfc3339(*divmod(nanoseconds, 10**9)) if nanoseconds else self._now
        return self._envelope.event(name, time, value, attributes)

    def _alone(self, raw: bytes) -> bytes:
        """Returns a body with this record alone."""
        return wrapped(self._group.resource, self._group.scope, [raw])
