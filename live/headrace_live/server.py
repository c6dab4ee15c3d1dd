"""The page over HTTP: read-only, for this machine alone unless told otherwise, and without content from elsewhere."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from headrace_live.service import LiveService

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
STATIC: Final = Path(__file__).with_name("static")
FILES: Final = ("page.css", "page.js", "icon.svg")


def allowed_names(host: str, names: Sequence[str]) -> frozenset[str] | None:
    """Return which names a request may ask for, without port; None: any.

    A page of another site that gives its own name our address (DNS rebinding) asks for that name, and is refused.
    """
    given = frozenset(name.strip().lower() for name in names if name.strip())
    if is_loopback(host):
        return LOOPBACK_NAMES | given
    return given or None


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    return name.strip("[]").lower().removesuffix(".")


class LiveServer:
    """Serves one `LiveService`."""

    def __init__(self, service: LiveService, names: frozenset[str] | None) -> None:
        self._service = service
        self._names = names

    def application(self) -> web.Application:
        """Return the routes. All are GET; HEAD is answered as well."""
        app = web.Application(middlewares=[self._guard])
        for path in ("/", *(f"/{name}" for name in FILES)):
            app.router.add_get(path, self._file)
        app.router.add_get("/state.json", self._state)
        app.router.add_get("/livez", self._live)
        app.router.add_get("/readyz", self._live)
        app.on_response_prepare.append(_set_headers)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._names is not None and name_of(request.host) not in self._names:
            return web.Response(
                status=421,
                text="This page answers only to the names that it was told: localhost, or those of --allow-host.\n",
            )
        return await handler(request)

    async def _file(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(STATIC / (request.path.removeprefix("/") or "page.html"))

    async def _state(self, request: web.Request) -> web.Response:
        try:
            since = float(request.query.get("since", 0))
        except ValueError:
            raise web.HTTPBadRequest(text="since: expected Unix time in seconds.\n") from None
        return web.Response(body=self._service.state(since), content_type="application/json")

    async def _live(self, _: web.Request) -> web.Response:
        problem = self._service.failed()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.pop("Server", None)
