"""A request's body, in protobuf or JSON, cut into its log records. Pure.

The body is an ExportLogsServiceRequest (opentelemetry/proto/collector/logs/v1/logs_service.proto): resources, in each scopes, in
each log records. It is cut without reading the records: each is read by itself, so that memory follows one of them, and one that
cannot be read concerns no other. One in JSON is read whole.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import orjson
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import BytesValue
from headrace_common.record.contract import Reason
from headrace_common.session.inflate import inflate_gzip, inflate_zlib, inflate_zstd
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"

INFLATERS: Final[Mapping[str, Callable[[bytes, int], Iterator[bytes]]]] = {
    "gzip": inflate_gzip,
    "zstd": inflate_zstd,
    "deflate": inflate_zlib,
}
"""By content coding (RFC 9110, 8.4.1). `deflate` is a zlib stream."""

RESOURCES: Final = 1
SCOPES: Final = 2
RECORDS: Final = 2
"""Numbers of the fields that are lists: of ExportLogsServiceRequest, ResourceLogs and ScopeLogs."""

VARINT: Final = 0
PREFIXED: Final = 2
FIXED: Final = {1: 8, 5: 4}
"""Kinds of fields on the wire: a number, bytes with their length in front, and those of a fixed length."""

STEP: Final = 256
"""Fields that are read between two pauses."""
ITEM_BYTES: Final = 256
"""Bytes of memory that an item of a list takes beyond its own."""

MOST_PIECES: Final = 1_000_000
"""Commas, and braces and brackets that open, in a body in JSON: each record or value takes memory, however small it is."""
JSON_MEMORY: Final = 4
"""Bytes of memory that a byte of JSON takes at most as a text."""

MOST_VALUES: Final = 10_000
"""Values that a log record, a resource or a scope may have: they are read in one call, of some ms."""

DETAIL: Final = 256
"""Letters of what is said of a fault, which may quote the content."""


class ContentError(Exception):
    """Content that cannot be understood. `reason`: that of quarantine."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail[:DETAIL])
        self.reason = reason


class Group(NamedTuple):
    """The log records of one scope of one resource, each in protobuf.

    `resource`, `scope`: what ResourceLogs and ScopeLogs have besides: an encoded message without its list.
    """

    resource: bytes
    scope: bytes
    records: list[memoryview]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Returns a number of at most 64 bits, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ContentError(Reason.BAD_ENCODING, "a broken number")


def _split(
    data: memoryview, number: int, most: int, steps: Iterator[int]
) -> Generator[int, None, tuple[bytes, list[memoryview]]]:
    """Returns a message without the list that is its field `number`, and the items of that list. Raises `ContentError`, also if
    these are more than `most`. `steps` counts what was read of the body.
    """
    besides, items, at = bytearray(), list[memoryview](), 0
    while True:
        if next(steps) % STEP == 0:
            yield STEP * ITEM_BYTES
        if at == len(data):
            return bytes(besides), items
        begin = at
        key, at = _varint(data, at)
        size, kind = 0, key & 7
        if kind == PREFIXED:
            size, at = _varint(data, at)
        elif kind == VARINT:
            _, at = _varint(data, at)
        elif kind in FIXED:
            size = FIXED[kind]
        else:
            raise ContentError(Reason.BAD_ENCODING, f"a field of type {kind}")
        stop = at + size
        if stop > len(data) or key < 8:
            raise ContentError(Reason.BAD_ENCODING, "a field that does not end, or has no number")
        if key == number << 3 | PREFIXED:
            items.append(data[at:stop])
        else:
            besides += data[begin:stop]
        at = stop
        if len(items) > most:
            problem = "more log records, resources and scopes than LIMITS__FRAME_EVENTS"
            raise ContentError(Reason.TOO_MANY_EVENTS, problem)


def cut(body: bytes, most: int) -> Generator[int, None, list[Group]]:
    """Returns the groups of a body of at most `most` log records, resources and scopes. Yields the bytes of memory that it has
    taken, where others may run. Raises `ContentError`.
    """
    groups: list[Group] = []
    steps = count(1)
    _, resources = yield from _split(memoryview(body), RESOURCES, most, steps)
    most -= len(resources)
    for each in resources:
        resource, scopes = yield from _split(each, SCOPES, most, steps)
        most -= len(scopes)
        for one in scopes:
            scope, records = yield from _split(one, RECORDS, most, steps)
            most -= len(records)
            if records:  # else nothing is read of it, or of its resource
                groups.append(Group(resource, scope, records))
    return groups


def protobuf_of(body: bytes) -> Generator[int, None, bytes]:
    """Returns a body that is in JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding) in protobuf. Yields as
    `cut`. It is read in one call: some ms for each megabyte.
    """
    if sum(map(body.count, (b",", b"{", b"["))) > MOST_PIECES:
        raise ContentError(Reason.TOO_MANY_EVENTS, f"more than {MOST_PIECES} values")
    yield JSON_MEMORY * len(body)
    made = ExportLogsServiceRequest()
    try:
        for resource in orjson.loads(body).get("resourceLogs") or ():
            about = _read({key: resource.get(key) for key in ("resource", "schemaUrl")}, made.resource_logs.add())
            yield ITEM_BYTES
            for scope in resource.get("scopeLogs") or ():
                within = _read({key: scope.get(key) for key in ("scope", "schemaUrl")}, about.scope_logs.add())
                yield ITEM_BYTES
                for record in scope.get("logRecords") or ():
                    for name in ("traceId", "spanId", "trace_id", "span_id"):
                        if record.get(name):  # protobuf's own JSON has base64, not hexadecimal
                            record[name] = b64encode(bytes.fromhex(record[name])).decode()
                    _read(record, within.log_records.add())
                    yield ITEM_BYTES
    except orjson.JSONDecodeError as error:
        raise ContentError(Reason.BAD_JSON, str(error)) from error
    except (ParseError, RecursionError, ValueError, TypeError, AttributeError) as error:
        raise ContentError(Reason.BAD_RECORD, str(error)) from error
    encoded: bytes = made.SerializeToString()
    return encoded


def _read(value: Any, message: Message) -> Any:
    if orjson.dumps(value).count(b"{") > 2 * MOST_VALUES:  # an attribute has two
        raise ContentError(Reason.OVERSIZED, f"a record, resource or scope of more than {MOST_VALUES} values")
    return ParseDict(value, message, ignore_unknown_fields=True)


def message_of(kind: type[Message], raw: bytes) -> Any:
    """Reads a message. Raises `ContentError`."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise ContentError(Reason.BAD_RECORD, str(error)) from error


def wrapped(resource: bytes, scope: bytes, records: Sequence[bytes]) -> bytes:
    """Makes a body of records of one group: `resource` and `scope` are as `Group` has them."""
    inner = scope + b"".join(prefixed(RECORDS, each) for each in records)
    return prefixed(RESOURCES, resource + prefixed(SCOPES, inner))


def prefixed(number: int, content: bytes) -> bytes:
    """Returns a field of protobuf that has its length in front."""
    encoded: bytes = BytesValue(value=content).SerializeToString()  # field 1; nothing if it is empty
    return bytes((number << 3 | PREFIXED,)) + (encoded[1:] or b"\0")
