"""A receiver of any protocol of streams, which stores in memory: alone, or as a server in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from headrace_cli.verbs.explain import heard, session_of
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.encoding import decode

from tests.segment.instant import InstantStore

HOST = "127.0.0.1"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """A session with the default settings. `stored` and `rejected`: parts of the last input; `over`: it takes no more."""

    def __init__(self, protocol: str) -> None:
        self.session = session_of(protocol)
        self.stored: list[bytes] = []
        self.rejected = 0
        self.over = False
        self._store = InstantStore()

    def feed(self, data: bytes, now_ms: int) -> bytes:
        """Returns its answers."""
        self.stored, self.rejected, said = [], 0, b""
        try:
            for kind, value in heard(self.session, data, now_ms):
                if kind == "question":
                    self.session.answered(value.ticket, self._store.answer(value))
                elif kind == "answer":
                    said += value
                else:
                    self.rejected += kind == "quarantine"
                    self.stored += [value] if kind == "event" else []
        except ProtocolError:
            self.over = True
        return said


class Stored:
    """A server that is a receiver's own session, and answers while nothing holds its storage. `meanwhile`: what it says then."""

    def __init__(self, protocol: str, held: Callable[[], bool] = lambda: False, meanwhile: bytes = b"") -> None:
        self.protocol, self.held, self.meanwhile = protocol, held, meanwhile
        self.events: list[bytes] = []
        self.connections = 0

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(decode(event)[0]) for event in self.events]

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        receiver = Receiver(self.protocol)
        while not receiver.over and (data := await reader.read(65_536)):
            answer = receiver.feed(data, time.time_ns() // 1_000_000)
            if self.held():
                writer.write(self.meanwhile)
            while self.held() and receiver.stored:  # noqa: ASYNC110  (a command of the shell ends it)
                await asyncio.sleep(0.01)
            self.events += receiver.stored
            writer.write(answer)


@contextlib.contextmanager
def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve each connection until the block ends; gives the server's address."""
    loop = asyncio.new_event_loop()

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await serve(reader, writer)
            await writer.drain()
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(each, HOST, 0, ssl=tls))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
