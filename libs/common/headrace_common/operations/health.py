"""Health and metrics over HTTP, the same for every part: ``/livez``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import Final, Protocol

from headrace_common.operations.metrics import Catalogue
from headrace_common.operations.settings import OpsSettings
from headrace_common.operations.sockets import bound_socket

MOST_OPEN: Final = 64
"""Open connections; of more, the oldest leaves. A probe or a scrape takes one for milliseconds; other files are for clients."""

OPS_BACKLOG: Final = 32
"""Connections that the kernel holds for us: fewer than MOST_OPEN, so that those of one turn do not drive each other out."""

ANSWER_TIME: Final = 20.0
"""Seconds for one connection from its beginning to the last byte of its answer. Each connection has one answer."""

HEAD_BYTES: Final = 16 << 10
"""Bytes of a request's head. What follows it is not looked at."""


class Health(Protocol):
    """A part's report on itself. Must not block."""

    def live_problems(self) -> list[str]:
        """Returns why the process should be restarted; empty when it is alive. Independent of Kafka."""

    def ready_problems(self) -> list[str]:
        """Returns why the process is not ready; empty when it is."""

    def collect(self) -> None:
        """Updates the gauges before they are read, if they are not always current."""
        return


class OpsServer:
    """Serves one part's `Health` over HTTP. An answer names no software and no version."""

    def __init__(self, settings: OpsSettings, health: Health, metrics: Catalogue) -> None:
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._open: dict[asyncio.StreamWriter, None] = {}  # in the order in which they have come
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listens. Raises `ConfigError` if the address is in use."""
        listening = bound_socket(self._settings.host, self._settings.port, "OPS__PORT")
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
            known = version.startswith("HTTP/1.") and method in ("GET", "HEAD")
            status, body = self._page(target.partition("?")[0]) if known else (HTTPStatus.BAD_REQUEST, b"")
        except (asyncio.LimitOverrunError, ValueError):
            status, body = HTTPStatus.BAD_REQUEST, b""
        body = body or f"{status.value} {status.phrase}\n".encode()
        said = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return said.encode() + (b"" if method == "HEAD" else body)

    def _page(self, path: str) -> tuple[HTTPStatus, bytes]:
        if path == "/metrics":
            self._health.collect()
            return HTTPStatus.OK, self._metrics.exposition()
        if path == "/livez":
            problems = self._health.live_problems()
        elif path == "/readyz":
            problems = self._health.ready_problems()
        else:
            return HTTPStatus.NOT_FOUND, b""
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return status, "".join(f"{line}\n" for line in problems or ["ok"]).encode()
