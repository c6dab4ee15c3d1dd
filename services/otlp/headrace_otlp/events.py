"""A request as a frame: builds its events one by one, as the publisher asks. Pure."""

from __future__ import annotations

from abc import abstractmethod
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import orjson
from headrace_common.record.contract import Attribute, Note, Reason
from headrace_common.record.event import (
    LAST_SECOND,
    Envelope,
    Part,
    Reject,
    deterministic_id,
    rfc3339,
    rfc3339_ms,
    source,
    unique_id,
)
from headrace_common.record.json_text import noted, object_of
from headrace_common.session.interface import SMALL, SMALL_PARTS, Frame, Peer, Run, Ticket
from headrace_common.session.json_events import RECEIVED, is_name
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from typing_extensions import override

from headrace_otlp.logs import PROTOBUF, ContentError, Group, message_of, wrapped
from headrace_otlp.values import Plain
from headrace_otlp.wire import Body, Logs, Refused, failure, response

NAME: Final = "otlp"
OVERHEAD: Final = 2048
"""Bytes of memory that a request takes beyond its body."""
RECORD_BYTES: Final = 256
"""Those that a log record takes beyond its own."""


INSTANCES: Final = ("service.instance.id", "host.name", "host.id", "k8s.pod.name", "k8s.pod.uid", "container.id")
"""Attributes of a resource that say which process or machine it is (OpenTelemetry's semantic conventions)."""
COARSE: Final = 1_000_000
"""Nanoseconds of the coarsest clock, JavaScript's: with it a process may say the same twice at one time."""


class OtlpAttribute(StrEnum):
    """Keys of attributes that OTLP's records alone have, in quarantine."""

    ENCODING = "encoding"  # the media type of the body
    COMPRESSION = "compression"  # the content coding of the body, if it is as it was received
    RESOURCE = "resource"  # base64 of the record's ResourceLogs without its scopes
    SCOPE = "scope"  # base64 of the record's ScopeLogs without its records


class RequestFrame(Frame):
    """A request that is stored, in whatever form, and then answered."""

    __slots__ = ("_body", "_peer", "last", "received_ms", "size", "small", "ticket")

    def __init__(self, body: Body, ticket: Ticket, received_ms: int, peer: Peer) -> None:
        self._body = body
        self._peer = peer
        self.last = body.last
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = len(body.content) + OVERHEAD
        self.small = False

    @abstractmethod
    def answer(self) -> bytes:
        """Returns the response, once all parts are stored."""

    def unavailable(self, seconds: int) -> bytes:
        """Returns the response for a request that is not stored yet."""
        text, more = "not stored yet: send it again", f"Retry-After: {seconds}\r\n"
        return failure(503, text, self._body.encoding, last=True, more=more)

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the body, inflated if it was understood, with reason `internal`."""
        return self._whole(Reason.INTERNAL, detail)

    def _whole(self, reason: Reason, detail: str) -> Reject:
        body, about = self._body, {OtlpAttribute.ENCODING.value: self._body.encoding}
        if body.coding and not isinstance(body, Logs):
            about[OtlpAttribute.COMPRESSION.value] = body.coding
        envelope = Envelope(NAME, source(NAME, self._peer.identity), "")
        name = deterministic_id(NAME, _certified(self._peer), body.content)
        return envelope.reject(reason, detail, body.content, name, orjson.dumps(about))


class RefusedFrame(RequestFrame):
    """A body that cannot be understood: all of it goes to quarantine."""

    __slots__ = ("_detail", "_reason")

    def __init__(self, body: Refused, ticket: Ticket, received_ms: int, peer: Peer) -> None:
        super().__init__(body, ticket, received_ms, peer)
        self._reason, self._detail = body.reason, body.detail

    @override
    def runs(self) -> Iterator[Run]:
        yield self._whole(self._reason, self._detail)

    @override
    def answer(self) -> bytes:
        text = f"in quarantine: {self._reason.value}: {self._detail}"
        return failure(400, text, self._body.encoding, last=self.last)


class LogsFrame(RequestFrame):
    """Log records: part i for record i."""

    __slots__ = ("_logs", "_rejected", "depth", "event_bytes")

    def __init__(self, logs: Logs, ticket: Ticket, received_ms: int, peer: Peer, event_bytes: int, depth: int) -> None:
        """`event_bytes`, `depth`: limits of an event."""
        super().__init__(logs, ticket, received_ms, peer)
        self._logs, self.event_bytes, self.depth = logs, event_bytes, depth
        self.size += RECORD_BYTES * logs.count
        self.small = self.size <= SMALL and logs.count < SMALL_PARTS
        self._rejected: Counter[str] = Counter()

    @override
    def answer(self) -> bytes:
        encoding, made = self._logs.encoding, ExportLogsServiceResponse()
        if rejected := self._rejected.total():
            made.partial_success.rejected_log_records = rejected
            reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(self._rejected.items()))
            made.partial_success.error_message = f"in quarantine: {reasons}"
        if encoding == PROTOBUF:
            content = made.SerializeToString()
        else:
            about = {"rejectedLogRecords": str(rejected), "errorMessage": made.partial_success.error_message}
            content = orjson.dumps({"partialSuccess": about} if rejected else {})
        return response(200, content, encoding, last=self.last)

    @override
    def runs(self) -> Iterator[Run]:
        self._rejected.clear()
        index = 0
        for group in self._logs.groups:
            maker = _GroupEvents(self, group)
            for record in group.records:
                part = maker.part(index, bytes(record))
                if isinstance(part, Reject):
                    self._rejected[part.reason.value] += 1
                yield part
                index += 1


class _GroupEvents:
    """What the events of a group share."""

    def __init__(self, frame: LogsFrame, group: Group) -> None:
        self._logs, self._group = frame._logs, group
        self._most, self._depth = frame.event_bytes, frame.depth
        self._now = rfc3339_ms(frame.received_ms)
        self._notes: set[Note] = set()
        self._problem: ContentError | None = None
        self._tail = b""
        self._is_named = False  # the same bytes from elsewhere are not its
        host = stream = ""
        try:
            host, stream = self._read()
        except ContentError as error:
            self._problem = ContentError(error.reason, f"its resource or scope: {error}")
        peer = frame._peer
        identity = host if host and peer.anonymous and is_name(host) else peer.identity
        self._certified = _certified(peer)
        self._is_named = self._is_named or peer.certified
        self._envelope = Envelope(NAME, source(NAME, identity), stream if is_name(stream) else "")

    def _read(self) -> tuple[str, str]:
        """Reads resource and scope. Returns the host and the service."""
        group, encoding, depth = self._group, self._logs.encoding, self._depth
        resources = message_of(ResourceLogs, group.resource, encoding)
        scopes = message_of(ScopeLogs, group.scope, encoding)
        about_resource, about_scope = Plain(depth), Plain(depth)
        self._tail = b'"resource":%b,"scope":%b}' % (about_resource.resource(resources), about_scope.scope(scopes))
        self._notes = about_resource.notes | about_scope.notes
        self._is_named = any(_text(resources.resource, each) for each in INSTANCES)
        return _text(resources.resource, "host.name"), _text(resources.resource, "service.name")

    def part(self, index: int, raw: bytes) -> Part:
        """Makes a record's event, or its reject."""
        most, number = self._most, index.to_bytes(4, "big")
        logs = self._logs
        name = deterministic_id(NAME, self._certified, logs.digest, number, raw)
        try:
            if len(raw) > most:
                raise ContentError(Reason.OVERSIZED, f"{len(raw)} bytes, LIMITS__EVENT_BYTES {most}")
            if self._problem is not None:
                raise self._problem
            record = message_of(LogRecord, raw, logs.encoding)
            plain = Plain(self._depth)
            value = plain.record(record)
            value = value[:-1] + (b"," if len(value) > 2 else b"") + self._tail
            nanoseconds = record.time_unix_nano or record.observed_time_unix_nano
            attributes = None if nanoseconds else RECEIVED
            if notes := plain.notes | self._notes:
                before = [attributes[1:-1]] if attributes else []
                alone = wrapped(self._group.resource, self._group.scope, [raw], logs.encoding)
                attributes = object_of([*before, *noted(tuple(sorted(notes)), alone)])
            if (size := len(value) + len(attributes or b"")) > most:
                raise ContentError(Reason.OVERSIZED, f"{size} bytes as an event, LIMITS__EVENT_BYTES {most}")
        except ContentError as error:
            return self._envelope.reject(error.reason, str(error), raw, name, self._about(index))
        is_fine = record.time_unix_nano % COARSE or record.observed_time_unix_nano % COARSE
        if not (is_fine and self._is_named):  # another event may have the same bytes: in doubt a resend is a second row
            name = unique_id()
        return self._envelope.event(name, _rfc3339(nanoseconds) if nanoseconds else self._now, value, attributes)

    def _about(self, index: int) -> bytes:
        group = self._group
        return orjson.dumps(
            {
                OtlpAttribute.ENCODING.value: self._logs.encoding,
                Attribute.INDEX.value: index,
                OtlpAttribute.RESOURCE.value: b64encode(group.resource).decode(),
                OtlpAttribute.SCOPE.value: b64encode(group.scope).decode(),
            }
        )


def _rfc3339(nanoseconds: int) -> bytes:
    """A time has at most 64 bits: it is before the year 2555."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    assert seconds < LAST_SECOND
    return rfc3339(seconds, fraction)


def _certified(peer: Peer) -> bytes:
    """Returns the subject of its certificate: its address may be another when it sends again."""
    return peer.identity.encode() if peer.certified else b""


def _text(resource: Any, key: str) -> str:
    """Returns the text of an attribute; empty if there is none."""
    return next((str(each.value.string_value) for each in resource.attributes if each.key == key), "")
