"""A request's body, in protobuf or JSON, cut into its log records, and these as messages. Pure.

The body is an ExportLogsServiceRequest (opentelemetry/proto/collector/logs/v1/logs_service.proto): resources, in each scopes, in
each log records. It is cut without reading the records: each is read by itself, so that memory follows one of them, one that
cannot be read concerns no other, and its bytes are known.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import orjson
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from headrace_common.record.contract import Reason

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"

STEP: Final = 256
"""Fields of the outer messages that are read between two pauses."""

MOST_OBJECTS: Final = 1_000_000
"""Braces that a JSON body may open: each record that it is cut into takes memory, however small it is."""

RESOURCE_SCOPES: Final = 2
SCOPE_RECORDS: Final = 2
"""Numbers of fields: `ResourceLogs.scope_logs` and `ScopeLogs.log_records`."""

_HEX: Final = re.compile("(?:[0-9a-fA-F]{2})*", re.ASCII)

DETAIL: Final = 256
"""Letters of what is said of a fault, which may quote the content."""

M = TypeVar("M", bound=Message)


class ContentError(ValueError):
    """Content that cannot be understood. `reason`: that of quarantine."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail[:DETAIL])
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Group:
    """The log records of one scope of one resource, each as it was received.

    `resource`, `scope`: what ResourceLogs and ScopeLogs have besides: an encoded message without its list.
    """

    resource: bytes
    scope: bytes
    records: Sequence[bytes | memoryview | msgspec.Raw]

    @property
    def size(self) -> int:
        """Bytes that each of its events repeats."""
        return len(self.resource) + len(self.scope)


# Protobuf


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Returns a number of at most 64 bits, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ContentError(Reason.BAD_ENCODING, "a broken number")


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields each field of a message: its number, 0 if it has no length in front; where it begins; where its content begins and
    where it ends.
    """
    while at < end:
        begin = at
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            stop = at + size
        elif kind == 0:
            _, stop = _varint(data, at, end)
        elif kind in (1, 5):
            stop = at + (8 if kind == 1 else 4)
        else:
            raise ContentError(Reason.BAD_ENCODING, f"a field of type {kind}")
        if stop > end or not number:
            raise ContentError(Reason.BAD_ENCODING, "a field that does not end, or has no number")
        yield number if kind == 2 else 0, begin, at, stop
        at = stop


def cut_protobuf(body: bytes, most: int) -> Generator[int, None, list[Group]]:
    """Returns the groups of a body; yields how many fields it has read. Raises `ContentError`, also if it has more than `most`
    records, or resources and scopes.
    """
    data, left, steps = memoryview(body), most, 0
    groups: list[Group] = []
    for number, _, at, stop in _fields(data, 0, len(data)):
        if number != 1:
            continue
        scopes: list[tuple[int, int]] = []
        resource = bytearray()
        for field, begin, inner, end in _fields(data, at, stop):
            steps += 1
            if field == RESOURCE_SCOPES:
                scopes.append((inner, end))
            else:
                resource += data[begin:end]
            if steps % STEP == 0:
                yield STEP
        head = bytes(resource)
        for inner, end in scopes:
            records: list[memoryview] = []
            scope = bytearray()
            for field, begin, first, last in _fields(data, inner, end):
                steps += 1
                if field == SCOPE_RECORDS:
                    records.append(data[first:last])
                else:
                    scope += data[begin:last]
                if len(records) > left:
                    raise _too_many(most)
                if steps % STEP == 0:
                    yield STEP
            groups.append(Group(head, bytes(scope), records))
            left -= max(1, len(records))
        left -= not scopes
        if left < 0:
            raise _too_many(most)
    return groups


def _too_many(most: int) -> ContentError:
    return ContentError(Reason.TOO_MANY_EVENTS, f"more than LIMITS__FRAME_EVENTS ({most}) log records")


# JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

_NO_JSON: Final = msgspec.Raw(b"null")


class _ScopeJson(msgspec.Struct, rename="camel"):
    scope: msgspec.Raw = _NO_JSON
    schema_url: msgspec.Raw = _NO_JSON
    log_records: list[msgspec.Raw] | None = None


class _ResourceJson(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = _NO_JSON
    schema_url: msgspec.Raw = _NO_JSON
    scope_logs: list[_ScopeJson] | None = None


class _BodyJson(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceJson] | None = None


_decode_json: Final = msgspec.json.Decoder(_BodyJson).decode


def cut_json(body: bytes, most: int) -> list[Group]:
    """Returns the groups of a body. Raises `ContentError`, as `cut_protobuf`. It is one call: some ms for each megabyte."""
    if body.count(b"{") > MOST_OBJECTS:
        raise ContentError(Reason.TOO_MANY_EVENTS, f"more than {MOST_OBJECTS} objects")
    try:
        found = _decode_json(body)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ContentError(Reason.BAD_ENCODING, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ContentError(Reason.BAD_JSON, str(error)) from error
    groups: list[Group] = []
    count = 0
    for resource in found.resource_logs or ():
        head = b'{"resource":%b,"schemaUrl":%b}' % (bytes(resource.resource), bytes(resource.schema_url))
        for scope in resource.scope_logs or ():
            records = scope.log_records or []
            count += max(1, len(records))
            if count > most:
                raise _too_many(most)
            about = b'{"scope":%b,"schemaUrl":%b}' % (bytes(scope.scope), bytes(scope.schema_url))
            groups.append(Group(head, about, records))
    return groups


# Both


def message_of(kind: type[M], raw: bytes, encoding: str) -> M:
    """Reads a message of one of the two encodings. Raises `ContentError`."""
    try:
        if encoding == PROTOBUF:
            found: M = kind.FromString(raw)
            return found
        value = orjson.loads(raw)
        if not isinstance(value, dict):
            raise ContentError(Reason.BAD_RECORD, "no JSON object")
        for name in ("traceId", "spanId"):
            if value.get(name):
                value[name] = _of_hex(value[name])
        made: M = ParseDict(value, kind(), ignore_unknown_fields=True)
        return made
    except orjson.JSONDecodeError as error:
        raise ContentError(Reason.BAD_JSON, str(error)) from error
    except (DecodeError, ParseError, RecursionError, TypeError, AttributeError) as error:
        raise ContentError(Reason.BAD_RECORD, str(error)) from error


def _of_hex(text: Any) -> str:
    """Returns the base64, which protobuf's JSON has, of the hexadecimal that OTLP's has."""
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        raise ContentError(Reason.BAD_RECORD, "an id that is not hexadecimal")
    return base64.b64encode(bytes.fromhex(text)).decode()


def wrapped(resource: bytes, scope: bytes, records: Sequence[bytes], encoding: str) -> bytes:
    """Makes a body of records of one group: `resource` and `scope` are as `Group` has them."""
    if encoding == JSON:
        scoped = _with_list(scope, b"logRecords", b",".join(records))
        return b'{"resourceLogs":[%b]}' % _with_list(resource, b"scopeLogs", scoped)
    inner = scope + b"".join(prefixed(SCOPE_RECORDS, each) for each in records)
    return prefixed(1, resource + prefixed(RESOURCE_SCOPES, inner))


def _with_list(about: bytes, name: bytes, items: bytes) -> bytes:
    """Returns a JSON object with one member more, of these items."""
    return b'%b"%b":[%b]}' % (about[:-1] + b"," * (len(about) > 2) if about else b"{", name, items)


def prefixed(number: int, content: bytes) -> bytes:
    """Returns a field of protobuf that has its length in front."""
    size, length = len(content), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes((number << 3 | 2, *length)) + content
