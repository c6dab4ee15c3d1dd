"""Health and metrics over HTTP, the same for every part: ``/livez``, ``/readyz``, ``/metrics`` and a status page."""

from __future__ import annotations

import asyncio
import contextlib
import html
import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.metrics import Catalogue
from headrace_common.operations.settings import OpsSettings

MOST_OPEN: Final = 64
"""Open connections; of more, the oldest leaves. A probe or a scrape takes one for milliseconds; other files are for clients."""

OPS_BACKLOG: Final = 32
"""Connections that the kernel holds for us: fewer than MOST_OPEN, so that those of one turn do not drive each other out."""

ANSWER_TIME: Final = 20.0
"""Seconds for one connection from its beginning to the last byte of its answer. Each connection has one answer."""

HEAD_BYTES: Final = 16 << 10
"""Bytes of a request's head. What follows it is not looked at."""


class HttpAnswer(NamedTuple):
    """An answer. It names no software and no version."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Health(Protocol):
    """A part's report on itself. Must not block."""

    def live_problems(self) -> list[str]:
        """Returns why the process should be restarted; empty when it is alive. Independent of Kafka."""

    def ready_problems(self) -> list[str]:
        """Returns why the process is not ready; empty when it is."""

    def notes(self) -> list[str]:
        """Returns lines of `/readyz` that an operator should read although the process is ready."""

    def status(self) -> dict[str, str]:
        """Returns the rows of the status page."""

    def collect(self) -> None:
        """Updates the gauges before they are read."""


class OpsServer:
    """Serves one part's `Health` over HTTP."""

    def __init__(self, settings: OpsSettings, service: str, health: Health, metrics: Catalogue) -> None:
        self._settings = settings
        self._service = service
        self._health = health
        self._metrics = metrics
        self._open: dict[asyncio.StreamWriter, None] = {}  # in the order in which they have come
        self._server: asyncio.Server | None = None
        self._pages: Final[Mapping[str, Callable[[], HttpAnswer]]] = {
            "/": self._page,
            "/livez": self._live,
            "/readyz": self._ready,
            "/metrics": self._exposition,
        }
        self.port = 0

    async def start(self) -> None:
        """Listens. Raises `ConfigError` if the address is in use."""
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        try:
            listening = socket.create_server((host, port), family=family, backlog=OPS_BACKLOG, dualstack_ipv6=both)
        except OSError as error:
            raise ConfigError(f"OPS__PORT {port}: {error.strerror or error}") from error
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listening, backlog=OPS_BACKLOG, limit=HEAD_BYTES)

    async def stop(self) -> None:
        """Stops listening, and ends each connection that has no answer yet."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_OPEN:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits for the last byte
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(ANSWER_TIME):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        method = ""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, version = head.partition(b"\r\n")[0].decode("ascii").split(" ")
            if not version.startswith("HTTP/1."):
                raise ValueError
        except asyncio.LimitOverrunError:
            answer = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError:
            answer = _refusal(HTTPStatus.BAD_REQUEST)
        else:
            page = self._pages.get(target.partition("?")[0])
            if method not in ("GET", "HEAD"):
                answer = _refusal(HTTPStatus.NOT_IMPLEMENTED)
            else:
                answer = _refusal(HTTPStatus.NOT_FOUND) if page is None else page()
        said = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        )
        return said.encode() + (b"" if method == "HEAD" else answer.body)

    def _live(self) -> HttpAnswer:
        return _verdict(self._health.live_problems())

    def _ready(self) -> HttpAnswer:
        return _verdict(self._health.ready_problems(), self._health.notes())

    def _exposition(self) -> HttpAnswer:
        self._health.collect()
        return HttpAnswer(HTTPStatus.OK, self._metrics.exposition(), "text/plain; version=0.0.4; charset=utf-8")

    def _page(self) -> HttpAnswer:
        live, ready = self._health.live_problems(), self._health.ready_problems()
        rows = {
            "live": "yes" if not live else "; ".join(live),
            "ready": "; ".join([*(ready or ["yes"]), *self._health.notes()]),
            **self._health.status(),
        }
        cells = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items())
        text = (
            f"<!doctype html><title>{self._service}</title><h1>headrace {self._service}</h1>"
            f"<table>{cells}</table><p><a href=/metrics>metrics</a></p>"
        )
        return HttpAnswer(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8")


def _verdict(problems: list[str], notes: Sequence[str] = ()) -> HttpAnswer:
    lines = [*(problems or ["ok"]), *notes]
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return HttpAnswer(status, "".join(f"{line}\n" for line in lines).encode())


def _refusal(status: HTTPStatus) -> HttpAnswer:
    """Returns an answer that only says its status."""
    return HttpAnswer(status, f"{status.value} {status.phrase}\n".encode())
