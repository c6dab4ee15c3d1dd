"""Health and metrics over HTTP, the same for every part: ``/livez``, ``/readyz``, ``/metrics`` and a status page."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

import h11

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.health.doorway import Doorway
from headrace_common.operations.health.exchange import Exchange, HttpAnswer, refusal
from headrace_common.operations.metrics import Catalogue
from headrace_common.operations.settings import OpsSettings


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
        self._doorway = Doorway(settings.hosts.split(","))
        self._pages: Final[Mapping[str, Callable[[], HttpAnswer]]] = {
            "/": self._page,
            "/livez": self._live,
            "/readyz": self._ready,
            "/metrics": self._exposition,
        }
        self.port = 0

    async def start(self) -> None:
        """Listens. Raises `ConfigError` if the address is in use."""
        try:
            self.port = self._doorway.open(self._settings.host, self._settings.port, partial(Exchange, self._answer))
        except OSError as error:
            raise ConfigError(f"OPS__PORT {self._settings.port}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Stops listening."""
        await self._doorway.close()

    def _answer(self, request: h11.Request, transport: asyncio.BaseTransport) -> HttpAnswer:
        self._doorway.prove(transport)
        if not self._doorway.knows([value.decode("latin-1") for name, value in request.headers if name == b"host"]):
            text = b"This port answers to addresses and to names that it knows; OPS__HOSTS names further ones.\n"
            return HttpAnswer(HTTPStatus.MISDIRECTED_REQUEST, text)
        if request.method not in (b"GET", b"HEAD"):
            return refusal(HTTPStatus.NOT_IMPLEMENTED)
        page = self._pages.get(request.target.decode("ascii").partition("?")[0])
        return refusal(HTTPStatus.NOT_FOUND) if page is None else page()

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
