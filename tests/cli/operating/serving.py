"""A server in a thread, which says what a test lets it say."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator

HOST = "127.0.0.1"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


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
