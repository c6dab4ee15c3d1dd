"""Health and metrics over HTTP, the same for every part: ``/livez``, ``/readyz``, ``/metrics`` and a status page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.health.doorway import Doorway
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
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listens. Raises `ConfigError` if the address is in use."""
        app = web.Application(middlewares=[self._doorway.guard])
        app.router.add_get("/", self._page)
        app.router.add_get("/livez", self._live)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._exposition)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            self.port = self._doorway.open(self._settings.host, self._settings.port, self._runner.server)
        except OSError as error:
            await self.stop()
            raise ConfigError(f"OPS__PORT {self._settings.port}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Stops listening."""
        await self._doorway.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _live(self, _: web.Request) -> web.Response:
        return _verdict(self._health.live_problems())

    async def _ready(self, _: web.Request) -> web.Response:
        return _verdict(self._health.ready_problems(), self._health.notes())

    async def _exposition(self, _: web.Request) -> web.Response:
        self._health.collect()
        return web.Response(
            body=self._metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _page(self, _: web.Request) -> web.Response:
        live, ready = self._health.live_problems(), self._health.ready_problems()
        rows = {
            "live": "yes" if not live else "; ".join(live),
            "ready": "; ".join([*(ready or ["yes"]), *self._health.notes()]),
            **self._health.status(),
        }
        cells = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items())
        return web.Response(
            text=f"<!doctype html><title>{self._service}</title><h1>headrace {self._service}</h1>"
            f"<table>{cells}</table><p><a href=/metrics>metrics</a></p>",
            content_type="text/html",
        )


def _verdict(problems: list[str], notes: Sequence[str] = ()) -> web.Response:
    lines = [*(problems or ["ok"]), *notes]
    return web.Response(status=503 if problems else 200, text="".join(f"{line}\n" for line in lines))
