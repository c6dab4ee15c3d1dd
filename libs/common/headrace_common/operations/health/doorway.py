"""The connections of the operations port: few, short, and asking for a name that is known."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Collection
from typing import Final

from headrace_common.operations.health.crowd import Crowd, UnprovenConnection
from headrace_common.operations.tasks import full_name, own_name

CONNECTIONS: Final = 64
"""Open connections. A probe or a scrape takes one, for milliseconds; the rest of the file descriptors is for clients."""

BACKLOG: Final = 32
"""Connections that the kernel holds for us: fewer than CONNECTIONS, so that those of one turn do not drive each other out."""

TIME: Final = 20.0
"""Seconds for one connection from its beginning to the last byte of its answer. Each connection has one answer."""

ACCEPT_PAUSE: Final = 0.1

_INSIDE: Final = (".svc", ".svc.cluster.local", ".localhost", ".internal", ".local")
"""Ends of names that cannot be registered on the internet: such a name cannot lead a browser here from another's page."""


def is_known(host: str, names: Collection[str]) -> bool:
    """Returns whether a request may ask for `host`, the value of its Host header: an address, a name without a dot, one of a
    cluster's or of `names`. Any other may come from a page that has led a browser here (DNS rebinding).
    """
    name, _, port = host.rpartition(":")
    name = (
        (name if port.isdigit() and (host.startswith("[") or name.count(":") == 0) else host).lower().removesuffix(".")
    )
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        return True
    return "." not in name or name.endswith(_INSIDE) or name in names


def own_names() -> frozenset[str]:
    """Returns the names of this machine."""
    return frozenset(name.lower() for name in (own_name(), full_name()))


class Doorway:
    """Accepts connections and closes those that take too long."""

    def __init__(self, names: Collection[str]) -> None:
        """`names`: that a request may ask for, beside addresses and the names of this machine."""
        self._names = own_names() | {name.strip().lower() for name in names if name.strip()}
        self._crowd = Crowd()
        self._unproven: dict[asyncio.BaseTransport, UnprovenConnection] = {}
        self._open: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    def knows(self, hosts: Collection[str]) -> bool:
        """Returns whether a request may ask for `hosts`, the values of its Host headers: a page's always has one."""
        return all(is_known(host, self._names) for host in hosts)

    def prove(self, transport: asyncio.BaseTransport) -> None:
        """Notes that a whole request has come from there: it does not leave for a newcomer."""
        if (who := self._unproven.pop(transport, None)) is not None:
            self._crowd.remove(who)

    def open(self, host: str, port: int, server: Callable[[], asyncio.BaseProtocol]) -> int:
        """Listens and returns the port. `server` makes the protocol of a connection. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._socket, server), name="operations port")
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stops listening, and ends each connection that has no answer yet."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        if self._socket is not None:
            self._socket.close()
        for transport, timer in self._open.items():
            timer.cancel()
            if not transport.is_closing():
                transport.abort()
        self._open.clear()

    async def _accept(self, listening: socket.socket, server: Callable[[], asyncio.BaseProtocol]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError:  # out of file descriptors, or the client has already gone
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            if not self._has_room(loop.time()):
                client.close()
                continue
            with contextlib.suppress(OSError):
                transport, _ = await loop.connect_accepted_socket(server, client)
                self._enter(transport, loop)

    def _has_room(self, now: float) -> bool:
        for transport in [each for each in self._open if each.is_closing()]:
            self._forget(transport)
        for who in self._crowd.leaving(len(self._open), CONNECTIONS, now):
            who.leave()
        return len(self._open) < CONNECTIONS

    def _enter(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        def leave() -> None:
            transport.abort()
            self._forget(transport)

        self._unproven[transport] = newcomer = UnprovenConnection(leave, "", loop.time())
        self._crowd.enter(newcomer)
        self._open[transport] = loop.call_later(TIME, transport.abort)

    def _forget(self, transport: asyncio.Transport) -> None:
        self.prove(transport)
        timer = self._open.pop(transport)
        if not transport.get_write_buffer_size():  # else its answer has not left, and may never
            timer.cancel()
