"""OTLP over HTTP/1.1: a client's bytes to requests, and answers to bytes. Pure: no sockets, no clock.

h11 reads the head and the chunks of a request; the rest is RFC 9112. Sources: docs/protocols/otlp.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NoReturn

import h11
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.contract import Reason
from headrace_common.session.inflate import inflate_gzip, inflate_zlib, inflate_zstd
from headrace_common.session.parser import Cost, Parser, Steps, UpTo
from typing_extensions import override

from headrace_otlp.logs import JSON, PROTOBUF, ContentError, Group, cut_json, cut_protobuf, prefixed

PATH: Final = b"/v1/logs"
OTHER_SIGNALS: Final = (b"/v1/traces", b"/v1/metrics")

HEAD_BYTES: Final = 16 << 10
"""Maximum size of a request's line and headers, as h11 and most servers have it."""

HEAD_WORK: Final = 48 << 10
"""The work of reading a head, as inflated bytes that take as long."""
CHUNK_WORK: Final = 8 << 10
"""That of a chunk."""
FIELD_WORK: Final = 512
"""That of a field of the outer messages."""

DESCRIPTION_BYTES: Final = 64 << 10
"""Maximum size of a resource and a scope, together: each record that goes to quarantine has them in a header."""

PIECE: Final = 64 << 10
"""Bytes of chunks that are read in one call."""
SLICE: Final = 1 << 20
"""Bytes that are hashed in one call."""

INFLATERS: Final[Mapping[bytes, Callable[[bytes, int], Iterator[bytes]]]] = {
    b"gzip": inflate_gzip,
    b"zstd": inflate_zstd,
    b"deflate": inflate_zlib,
}
"""By content coding (RFC 9110, 8.4.1). `deflate` is a zlib stream."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_CODES: Final = {400: 3, 404: 5, 405: 12, 411: 3, 413: 8, 415: 3, 431: 8, 501: 12, 503: 14}
"""google.rpc.Code by HTTP status."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request that stores nothing. `last`: the client asked for the end of the conversation behind it."""

    answer: bytes
    last: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request, complete. `encoding`: `PROTOBUF` or `JSON`; `coding`: its compression as received."""

    content: bytes
    encoding: str
    coding: str
    last: bool


@dataclass(frozen=True, slots=True)
class Refused(Body):
    """One that cannot be understood; `content` is as received."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Logs(Body):
    """A body with log records. `content` is inflated, and `digest` its SHA-256."""

    digest: bytes
    groups: list[Group]
    count: int


@dataclass(frozen=True, slots=True)
class _Head:
    """What is used of a request's line and headers."""

    method: bytes
    path: bytes
    headers: Mapping[bytes, bytes]
    last: bool

    @property
    def encoding(self) -> str:
        """`PROTOBUF`, `JSON`, or empty for any other."""
        kind = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        return kind if kind in (PROTOBUF, JSON) else ""

    @property
    def coding(self) -> bytes:
        """The content coding; empty: none."""
        coding = self.headers.get(b"content-encoding", b"").strip().lower()
        return b"" if coding == b"identity" else coding


class OtlpDecoder(Parser[Reply | Body]):
    """Decodes a client's bytes, split anywhere, into requests.

    `frame_bytes`: maximum size of a body as received, with what frames its chunks; `frame_events`: maximum log records of one;
    `inflated_bytes`: most bytes of its content, also of its events with the resource and the scope that each repeats.
    """

    def __init__(self, frame_bytes: int, frame_events: int, inflated_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._frame_events = frame_events
        self._inflated_bytes = inflated_bytes
        self.refusal = b""
        """The answer to what has ended the conversation by a fault."""
        super().__init__()

    @override
    def messages(self) -> Steps:
        last = False
        while not last:
            self.begins()
            last = yield from self._request()  # a generator of its own: nothing of a request is kept behind it
        while True:  # what follows is not read (RFC 9112, 9.6)
            self.begins()
            yield UpTo(PIECE)

    def _request(self) -> Generator[Any, bytes, bool]:
        """Reads and hands out a request. Returns whether it is the last."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES + self._frame_bytes)
        request, buffered = yield from self._head(connection)
        yield Cost(HEAD_WORK)
        head = self._checked(request)
        if head.headers.get(b"expect", b"").lower() == b"100-continue":
            yield Reply(CONTINUE)
        if b"transfer-encoding" in head.headers:
            body = yield from self._chunks(connection, buffered)
        else:
            self.held -= buffered
            self.unread(connection.trailing_data[0])
            body = yield int(head.headers.get(b"content-length", b"0"))
        self.held = len(body)
        if (other := _not_logs(head)) is not None:
            yield other
        else:
            yield (yield from self._body(head, body))
        return head.last

    def _head(self, connection: h11.Connection) -> Generator[Any, bytes, tuple[h11.Request, int]]:
        """Returns a request's line and headers, and how many bytes behind them were read. Reads no more than a head may have, so
        that it is too large or not however its bytes were split.
        """
        left = HEAD_BYTES
        while left:
            piece = yield UpTo(left)
            left -= len(piece)
            self.held += len(piece)
            connection.receive_data(piece)
            event = self._next(connection)
            if isinstance(event, h11.Request):
                return event, len(connection.trailing_data[0])
        self._refuse(431, "the head of a request is too large", limit="HEAD_BYTES")

    def _checked(self, request: h11.Request) -> _Head:
        """Returns what is used of a head. Ends the conversation if it is not certain where the body ends, or if the body is too
        large.
        """
        headers, old = dict(request.headers), request.http_version < b"1.1"
        tokens = [each.strip() for each in headers.get(b"connection", b"").lower().split(b",")]
        last = old or b"close" in tokens
        head = _Head(request.method, request.target.partition(b"?")[0], headers, last)
        chunked, length = b"transfer-encoding" in headers, headers.get(b"content-length")
        if chunked and (old or length is not None):  # request smuggling (RFC 9112, 6.1)
            self._refuse(400, "Transfer-Encoding with Content-Length, or before HTTP/1.1")
        if head.method == b"CONNECT":
            self._refuse(405, "no proxy")
        if head.method == b"POST" and not chunked and length is None:
            self._refuse(411, "a POST without a length")
        if length is not None and int(length) > self._frame_bytes:
            self._refuse(413, f"a body of {int(length)} bytes", limit="LIMITS__FRAME_BYTES")
        return head

    def _chunks(self, connection: h11.Connection, buffered: int) -> Generator[Any, bytes, bytes]:
        """Returns a body that comes in chunks."""
        body, read = bytearray(), buffered
        while True:
            event = self._next(connection)
            if isinstance(event, h11.Data):
                body += event.data
                yield Cost(CHUNK_WORK)
            elif isinstance(event, h11.EndOfMessage):
                rest = connection.trailing_data[0]
                if read - len(rest) > self._frame_bytes:
                    self._too_large()
                self.held -= len(rest)
                self.unread(rest)
                return bytes(body)
            else:
                if read > self._frame_bytes:
                    self._too_large()
                piece = yield UpTo(PIECE)
                read += len(piece)
                self.held += len(piece)
                connection.receive_data(piece)

    def _too_large(self) -> NoReturn:
        self._refuse(413, "a body that is too large", limit="LIMITS__FRAME_BYTES")

    def _next(self, connection: h11.Connection) -> Any:
        try:
            return connection.next_event()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, "not HTTP/1.1")

    def _refuse(self, status: int, problem: str, limit: str | None = None) -> NoReturn:
        """Ends the conversation with an answer."""
        self.refusal = failure(status, problem, JSON, last=True)
        raise ProtocolError(problem, limit=limit)

    def _body(self, head: _Head, body: bytes) -> Generator[Any, bytes, Body]:
        """Inflates a body, hashes it, and cuts it into its records."""
        about = head.encoding, head.coding.decode("latin-1"), head.last
        content, digest = bytearray(), hashlib.sha256()
        inflate = INFLATERS[head.coding] if head.coding else _slices
        try:
            for piece in inflate(body, self._inflated_bytes):
                digest.update(piece)
                content += piece
                self.held = len(body) + len(content)
                yield Cost(max(len(piece), 1 << 17))
        except ProtocolError as error:
            reason = Reason.INFLATED_LIMIT if error.limit else Reason.COMPRESSION
            return Refused(body, *about, reason, str(error))
        whole = bytes(content)
        try:
            if head.encoding == PROTOBUF:
                cutting, groups = cut_protobuf(whole, self._frame_events), None
                while groups is None:
                    try:
                        yield Cost(FIELD_WORK * next(cutting))
                    except StopIteration as done:
                        groups = done.value
            else:
                groups = cut_json(whole, self._frame_events)
                yield Cost(4 * len(whole))
            if (most := max((group.size for group in groups), default=0)) > DESCRIPTION_BYTES:
                raise ContentError(Reason.OVERSIZED, f"a resource and a scope of {most} bytes")
            size = len(whole) + sum(group.size * len(group.records) for group in groups)
            if size > self._inflated_bytes:
                raise ContentError(
                    Reason.INFLATED_LIMIT, f"events of {size} bytes, LIMITS__INFLATED_BYTES {self._inflated_bytes}"
                )
        except ContentError as error:
            return Refused(body, *about, error.reason, str(error))
        count = sum(len(group.records) for group in groups)
        return Logs(whole, *about, digest.digest(), groups, count)


def _slices(body: bytes, _: int) -> Iterator[bytes]:
    return (body[at : at + SLICE] for at in range(0, len(body), SLICE))


def _not_logs(head: _Head) -> Reply | None:
    """Returns the answer to a request that cannot bring log records."""
    more, known = "", b", ".join(INFLATERS)
    if head.path in OTHER_SIGNALS:
        status, text = 404, "this server takes logs only, at /v1/logs"
    elif head.path != PATH:
        status, text = 404, "logs are taken at /v1/logs"
    elif head.method != b"POST":
        status, text, more = 405, "logs are sent by POST", "Allow: POST\r\n"
    elif not head.encoding:
        status, text = 415, f"Content-Type must be {PROTOBUF} or {JSON}"
    elif head.coding and head.coding not in INFLATERS:
        status, text, more = 415, "an unknown Content-Encoding", f"Accept-Encoding: {known.decode()}\r\n"
    else:
        return None
    answer = failure(status, text, head.encoding or JSON, last=head.last, more=more)
    if head.method == b"HEAD":  # it has no body
        answer = answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    return Reply(answer, head.last)


# Answers


def response(status: int, content: bytes, encoding: str, *, last: bool = False, more: str = "") -> bytes:
    """Makes a response. `last`: none follows; `more`: more header lines, each with its end."""
    lines = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {encoding}\r\nContent-Length: {len(content)}\r\n"
    return f"{lines}{more}{'Connection: close' + chr(13) + chr(10) if last else ''}\r\n".encode() + content


def failure(status: int, text: str, encoding: str, *, last: bool = False, more: str = "") -> bytes:
    """Makes the response for a request that failed: a Status (google/rpc/status.proto)."""
    code = _CODES.get(status, 3)
    if encoding == PROTOBUF:
        content = bytes((0x08, code)) + prefixed(2, text.encode())
    else:
        content = orjson.dumps({"code": code, "message": text})
    return response(status, content, encoding, last=last, more=more)


# The client's side


def request(content: bytes, encoding: str, coding: str = "") -> bytes:
    """Makes a request. `coding`: how `content` is compressed."""
    more = f"Content-Encoding: {coding}\r\n" if coding else ""
    lines = f"Host: headrace\r\nContent-Type: {encoding}\r\nContent-Length: {len(content)}\r\n{more}\r\n"
    return f"POST {PATH.decode()} HTTP/1.1\r\n{lines}".encode() + content
