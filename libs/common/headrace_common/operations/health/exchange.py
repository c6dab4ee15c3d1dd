"""One request of a connection to the operations port and its answer, by h11."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

import h11
from typing_extensions import override

MOST: Final = 16 << 10
"""Bytes of a request that has not ended: with more, it is refused. What follows a request's head is not looked at."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer. It names no software and no version."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def refusal(status: HTTPStatus) -> HttpAnswer:
    """Returns an answer that only says its status."""
    return HttpAnswer(status, f"{status.value} {status.phrase}\n".encode())


class Exchange(asyncio.Protocol):
    """A connection: gives its request to `answer`, writes what that returns, and closes."""

    def __init__(self, answer: Callable[[h11.Request, asyncio.BaseTransport], HttpAnswer]) -> None:
        self._answer = answer
        self._transport = cast("asyncio.Transport", None)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        """Answers once the request is whole, or cannot become so."""
        if self._transport.is_closing():
            return
        self._http.receive_data(data)
        bodiless = False
        try:
            request = self._http.next_event()
        except h11.RemoteProtocolError as error:
            answer = refusal(HTTPStatus(error.error_status_hint))
        else:
            if not isinstance(request, h11.Request):
                return
            answer, bodiless = self._answer(request, self._transport), request.method == b"HEAD"
        headers = {"Content-Type": answer.content_type, "Content-Length": f"{len(answer.body)}", "Connection": "close"}
        status = answer.status
        head = h11.Response(status_code=status.value, reason=status.phrase, headers=list(headers.items()))
        self._transport.write((self._http.send(head) or b"") + (b"" if bodiless else answer.body))
        self._transport.close()
