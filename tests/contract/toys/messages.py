"""A toy of whole messages: one session for all clients, told apart by a routing id, whose end nobody tells it.

Each client is a TCP connection that the toy's own socket cuts into messages. ``python -m tests.contract.toys.messages``.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator

from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.errors import ConfigError, ProtocolError
from headrace_common.operations.settings import ServiceSettings
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import main
from headrace_common.session.interface import Frame, Message, MessageSession, Peer, Reply, Status, Ticket
from headrace_common.session.ledger import Ledger
from typing_extensions import override

from tests.contract.toys.wire import Cutter, ToyFrame, packed

PROTOCOL = "logjam"


class ToyMessages(MessageSession):
    """A ledger for each route with something pending: replies to one client keep their order, clients do not wait."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._tickets: Iterator[Ticket] = iter(range(1 << 62))
        self._ledgers: dict[bytes, Ledger[str]] = {}
        self._routes: dict[Ticket, bytes] = {}
        self._ready: deque[Frame] = deque()
        self._due: deque[bytes] = deque()

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        try:
            document = json.loads(message.parts[0])
            name = document["id"]
        except (ValueError, KeyError, TypeError, IndexError):
            return
        ledger = self._ledgers.setdefault(message.route, Ledger(self._tickets))
        ticket = ledger.add(name)
        self._routes[ticket] = message.route
        self._ready.append(ToyFrame(PROTOCOL, message.address, message.parts[0], ticket, now_ms, self._settings.limits))

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        route = self._routes[ticket]
        self._ledgers[route].stored(ticket, stored, whole)
        if whole:
            self._due.append(route)

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Its client, and what that sent behind it, hears nothing more."""
        self._ledgers.pop(self._routes[ticket], None)

    @override
    def outgoing(self) -> Reply | None:
        while self._due:
            route = self._due[0]
            ledger = self._ledgers.get(route)
            stored = None if ledger is None else ledger.pop_whole()
            if stored is not None:
                return Reply(route, [packed({"ack": stored.note})])
            self._due.popleft()
            if ledger is not None and not len(ledger):
                del self._ledgers[route]
        return None

    @override
    def status(self) -> Status:
        return Status(idle=not self._ledgers)


class ToySocket(Endpoint, MessageSocket):
    """Clients over TCP, behind one session."""

    name = "listen"

    def __init__(self, runtime: Runtime[ServiceSettings]) -> None:
        self._runtime = runtime
        self._clients: dict[bytes, asyncio.StreamWriter] = {}
        self._allowed = asyncio.Event()
        self._allowed.set()
        self._routes = iter(range(1 << 62))
        self._server: asyncio.Server | None = None
        self._connection: MessageConnection | None = None

    @override
    async def bind(self) -> str:
        listen = self._runtime.settings.listen
        try:
            self._server = await asyncio.start_server(self._serve, listen.host, listen.port, start_serving=False)
        except OSError as error:
            raise ConfigError(f"LISTEN {listen.host}:{listen.port}: {error.strerror}") from error
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    @override
    def start(self) -> None:
        session = ToyMessages(self._runtime.settings)
        self._connection = MessageConnection(self._runtime.receiver, Peer("toy", 0, "toy"), session, self)
        self._runtime.tasks.start(self._accept(self._connection), "toy")

    async def _accept(self, connection: MessageConnection) -> None:
        assert self._server is not None
        await self._server.start_serving()
        await connection.closed.wait()

    @override
    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @override
    def send(self, reply: Reply) -> None:
        writer = self._clients.get(reply.route)
        if writer is not None:
            writer.write(b"".join(reply.parts))

    @override
    def read(self, allowed: bool) -> None:
        (self._allowed.set if allowed else self._allowed.clear)()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._connection is not None
        route = next(self._routes).to_bytes(8, "big")
        self._clients[route] = writer
        cutter = Cutter(self._runtime.settings.limits.frame_bytes)
        try:
            while True:
                await self._allowed.wait()
                data = await reader.read(65536)
                if not data:
                    break
                for body in cutter.feed(data):
                    self._connection.received([Message((body,), route, writer.get_extra_info("peername")[0])])
        except (ProtocolError, OSError):
            pass
        finally:
            del self._clients[route]  # the session is not told
            writer.close()


def build(runtime: Runtime[ServiceSettings]) -> Parts:
    return Parts([ToySocket(runtime)])


if __name__ == "__main__":
    main(PROTOCOL, "python -m tests.contract.toys.messages", ServiceSettings, build)
