"""OTLP over HTTP/1.1: a client's bytes to requests, and answers to bytes. Pure: no sockets, no clock.

h11 reads requests and writes responses, with a connection of its own for each request, so that a client may send the next before
it has heard of the last. Sources: docs/protocols/otlp.md.
"""

from __future__ import annotations

from collections.abc import Generator
from http import HTTPStatus
from typing import Any, Final, NoReturn

import h11
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.parser import Cost, Parser, Steps, UpTo
from typing_extensions import override

from headrace_otlp.logs import INFLATERS, JSON, PROTOBUF, prefixed

PATH: Final = b"/v1/logs"

HEAD_BYTES: Final = 16 << 10
"""Maximum size of a request's line and headers, as h11 and most servers have it."""

EVENT_WORK: Final = 16 << 10
"""The work of reading a head or a chunk, as inflated bytes that take as long."""

PIECE: Final = 4 << 10
"""Bytes that are read at once where a request may end within them: what is behind it stays in memory until it is answered."""


class Request:
    """A request that was read whole. `encoding`: `PROTOBUF`, `JSON`, or empty for any other; `coding`: its content coding, empty
    if there is none; `answer`: the response, once it is known.
    """

    __slots__ = ("_connection", "answer", "body", "coding", "encoding", "method", "path")

    def __init__(self, connection: h11.Connection, head: h11.Request, body: bytes) -> None:
        self._connection = connection
        headers = dict(head.headers)
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        coding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1")
        self.encoding = kind if kind in (PROTOBUF, JSON) else ""
        self.coding = "" if coding == "identity" else coding
        self.method, self.path = head.method, head.target.partition(b"?")[0]
        self.body = body
        self.answer = b""

    @property
    def last(self) -> bool:
        """Whether the client asked for the end of the conversation behind it."""
        return self._connection.their_state is h11.MUST_CLOSE

    def respond(self, status: int, content: bytes, *more: tuple[str, str]) -> None:
        """Sets the answer."""
        shown = b"" if self.method == b"HEAD" else content
        self.answer = _response(self._connection, status, self.encoding, shown, *more)

    def fail(self, status: int, text: str, *more: tuple[str, str]) -> None:
        """Sets the answer to a request that failed."""
        self.respond(status, _status(text, self.encoding), *more)

    def is_of_logs(self) -> bool:
        """Returns whether it may bring log records. If not, sets the answer."""
        if self.path != PATH:
            self.fail(404, "this server takes logs only, at /v1/logs")
        elif self.method != b"POST":
            self.fail(405, "logs are sent by POST", ("Allow", "POST"))
        elif not self.encoding:
            self.fail(415, f"Content-Type must be {PROTOBUF} or {JSON}")
        elif self.coding and self.coding not in INFLATERS:
            self.fail(415, "an unknown Content-Encoding", ("Accept-Encoding", ", ".join(INFLATERS)))
        return not self.answer


class OtlpDecoder(Parser[Request | bytes]):
    """Decodes a client's bytes, split anywhere, into requests, and interim responses that are their answers.

    `frame_bytes`: maximum size of a body as received, with what frames its chunks.
    """

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
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
        head, body, read, length = None, bytearray(), 0, 0
        while not isinstance(event := self._next(connection), h11.EndOfMessage):
            yield Cost(EVENT_WORK)
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.Request):
                head, read = event, len(connection.trailing_data[0])
                self.held, length = read, self._length(connection, head)
                if connection.they_are_waiting_for_100_continue:
                    yield connection.send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
            else:
                if head is not None:
                    self._limit(connection, read)
                    wanted = length - read if length else PIECE
                elif not (wanted := min(PIECE, HEAD_BYTES - read)):  # however its bytes were split
                    self._refuse(connection, 431, "the head of a request is too large", limit="HEAD_BYTES")
                piece = yield UpTo(wanted)
                read += len(piece)
                self.held += len(piece)
                connection.receive_data(piece)
        assert head is not None
        behind = connection.trailing_data[0]
        self._limit(connection, read - len(behind))
        self.held -= len(behind)
        self.unread(behind)
        request = Request(connection, head, bytes(body))
        yield request
        return request.last

    def _length(self, connection: h11.Connection, head: h11.Request) -> int:
        """Returns the length of the body; 0: it has none, or comes in chunks. Ends the conversation if it is not certain where it
        ends, or if it is too large.
        """
        headers = dict(head.headers)
        length = headers.get(b"content-length")
        if b"transfer-encoding" in headers:
            if length is not None or head.http_version < b"1.1":  # request smuggling (RFC 9112, 6.1)
                self._refuse(connection, 400, "Transfer-Encoding with Content-Length, or before HTTP/1.1")
        elif length is None and head.method == b"POST":
            self._refuse(connection, 411, "a POST without a length")
        self._limit(connection, size := int(length or b"0"))
        return size

    def _limit(self, connection: h11.Connection, size: int) -> None:
        if size > self._frame_bytes:
            self._refuse(connection, 413, "a body that is too large", limit="LIMITS__FRAME_BYTES")

    def _next(self, connection: h11.Connection) -> Any:
        try:
            return connection.next_event()
        except h11.RemoteProtocolError as error:
            self._refuse(connection, error.error_status_hint, "not HTTP/1.1")

    def _refuse(self, connection: h11.Connection, status: int, problem: str, limit: str | None = None) -> NoReturn:
        """Ends the conversation with an answer."""
        self.refusal = _response(connection, status, JSON, _status(problem, JSON), ("Connection", "close"))
        raise ProtocolError(problem, limit=limit)


def _response(connection: h11.Connection, status: int, encoding: str, content: bytes, *more: tuple[str, str]) -> bytes:
    """Returns a response with these further headers."""
    headers = [("Content-Type", encoding or JSON), ("Content-Length", str(len(content))), *more]
    head = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
    events: list[h11.Event] = [head, h11.Data(content), h11.EndOfMessage()]
    return b"".join(connection.send(event) or b"" for event in events)


def _status(text: str, encoding: str) -> bytes:
    """Returns a Status (google/rpc/status.proto) with this message."""
    return prefixed(2, text.encode()) if encoding == PROTOBUF else orjson.dumps({"message": text})


def request(content: bytes, encoding: str, coding: str = "") -> bytes:
    """Makes a request, for clients. `coding`: how `content` is compressed."""
    more = f"Content-Encoding: {coding}\r\n" if coding else ""
    lines = f"Host: headrace\r\nContent-Type: {encoding}\r\nContent-Length: {len(content)}\r\n{more}\r\n"
    return f"POST {PATH.decode()} HTTP/1.1\r\n{lines}".encode() + content
