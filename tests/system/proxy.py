"""A TCP proxy that may withhold what one side says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Self

HOST = "127.0.0.1"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Forwards connections to `target`, and speaks `tls` with clients. `answers`: set while what the target says is passed on."""

    def __init__(self, target: tuple[str, int], port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self.port = port
        self._tls = tls
        self.answers = asyncio.Event()
        self.answers.set()
        self.withheld = 0
        """Bytes that the target has said and nobody has heard."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def move(self, port: int) -> None:
        """Ends all connections, and is at another port from now on."""
        await self.__aexit__()
        self.port = port
        await self.__aenter__()

    def cut(self) -> None:
        """Ends all connections; what was withheld is never heard."""
        for task in list(self._tasks):
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._forward((reader, writer), (far_reader, far_writer))
            finally:
                writer.close()
                far_writer.close()

    async def _forward(self, near: Stream, far: Stream) -> None:
        """Passes on what both sides of a connection say, until both have ended."""
        await asyncio.gather(self._questions(near[0], far[1]), self._replies(far[0], near[1]))

    async def _questions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.answers.is_set():
                self.withheld += len(data)
                await self.answers.wait()
            writer.write(data)
            await writer.drain()
        writer.close()
