"""One request of a connection to the operations port and its answer: as much of HTTP/1.1 (RFC 9112) as probes and scrapes use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

from typing_extensions import override

MOST: Final = 16 << 10
"""Bytes in which a request must end. None here has a body: what follows the head is not read."""

END: Final = b"\r\n\r\n"

_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `hosts`: the values of its Host headers; a client of HTTP/1.0 sends none."""

    method: str
    path: str
    hosts: tuple[str, ...]

    @classmethod
    def parse(cls, head: bytes) -> Request | None:
        """Returns the request of a head without its last, empty line; None if it is not HTTP."""
        first, *rest = head.split(b"\r\n")
        line, fields = _LINE.fullmatch(first), [_FIELD.fullmatch(field) for field in rest]
        if line is None or None in fields:
            return None
        named = [field.groups() for field in fields if field is not None]
        hosts = tuple(value.strip().decode("latin-1") for name, value in named if name.lower() == b"host")
        return cls(line[1].decode(), line[2].partition(b"?")[0].decode(), hosts)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. It names no software and no version."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    def encoded(self, *, bodiless: bool = False) -> bytes:
        """Returns its bytes. `bodiless`: for HEAD, which asks for the rest."""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: close{END.decode()}"
        )
        return head.encode() + (b"" if bodiless else self.body)


def refusal(status: HTTPStatus) -> Answer:
    """Returns an answer that only says its status."""
    return Answer(status, f"{status.value} {status.phrase}\n".encode())


class Exchange(asyncio.Protocol):
    """A connection: gives its request to `answer`, writes what that returns, and closes."""

    def __init__(self, answer: Callable[[Request, asyncio.BaseTransport], Answer]) -> None:
        self._answer = answer
        self._transport = cast("asyncio.Transport", None)
        self._received = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        """Answers once the request is whole, or cannot become so."""
        if self._transport.is_closing():
            return
        self._received += data
        end = self._received.find(END, 0, MOST)
        if end >= 0:
            request = Request.parse(self._received[:end])
            answer = refusal(HTTPStatus.BAD_REQUEST) if request is None else self._answer(request, self._transport)
            bodiless = request is not None and request.method == "HEAD"
        elif len(self._received) >= MOST:
            answer, bodiless = refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
        else:
            return
        self._transport.write(answer.encoded(bodiless=bodiless))
        self._transport.close()
