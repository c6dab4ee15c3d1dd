"""A connection: bytes over TCP and TLS, or messages over ZeroMQ, with one interface."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import zmq
import zmq.asyncio
from headrace_logjam.client import MESSAGE_FRAMES
from headrace_logjam.wire import joined, split
from zmq.utils.monitor import parse_monitor_message, recv_monitor_message

from headrace_cli.wire.target import RefusedError, Target, over_zeromq

_READ: Final = 65_536


class StreamChannel:
    """TCP, with or without TLS. `read` returns nothing when the server has closed it; `abort` ends it at once."""

    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams

    async def read(self) -> bytes:
        return await self._reader.read(_READ)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


class MessageChannel:
    """The same as a DEALER. What is read and written is messages as `headrace_logjam.wire.joined` makes them.

    It does not connect again by itself: answers carry no id, so events lost with the old connection would be taken for accepted.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._context = zmq.asyncio.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.setsockopt(zmq.RECONNECT_IVL, -1)
        self._monitor = self._dealer.get_monitor_socket()
        self._written: deque[bytes] = deque()
        self._ended: asyncio.Task[None] | None = None

    async def open(self, seconds: float) -> None:
        """Connect. Raises `OSError`, `TimeoutError`, `RefusedError`."""
        try:
            async with asyncio.timeout(seconds):
                host = f"[{self._target.host}]" if ":" in self._target.host else self._target.host
                self._dealer.setsockopt(zmq.IPV6, ":" in self._target.host)
                self._dealer.connect(f"tcp://{host}:{self._target.port}")
                while not await self._greeted():
                    pass
        except BaseException:
            self.abort()
            raise
        self._ended = asyncio.create_task(self._end())

    async def _greeted(self) -> bool:
        """Return whether ZeroMQ's next event is that it may send. Raises `RefusedError`, `ConnectionRefusedError`."""
        told = await recv_monitor_message(self._monitor)
        event = told["event"]
        if event in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
            raise RefusedError("refuses us, perhaps for want of a key")
        if event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_DISCONNECTED):
            raise RefusedError("ends the connection at its beginning: it speaks other keys, or no ZeroMQ")
        if event in (zmq.EVENT_CLOSED, zmq.EVENT_CONNECT_RETRIED):
            raise ConnectionRefusedError
        return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)

    async def _end(self) -> None:
        """Wait for the connection's end."""
        while True:
            parts = await self._monitor.recv_multipart()
            if parse_monitor_message(parts)["event"] in (zmq.EVENT_DISCONNECTED, zmq.EVENT_MONITOR_STOPPED):
                return

    async def read(self) -> bytes:
        assert self._ended is not None
        reading = asyncio.ensure_future(self._dealer.recv_multipart())
        try:
            await asyncio.wait({reading, self._ended}, return_when="FIRST_COMPLETED")
            return joined(reading.result()) if reading.done() else b""
        finally:
            reading.cancel()

    def write(self, data: bytes) -> None:
        self._written.append(data)

    async def drain(self) -> None:
        while self._written:
            frames = split(self._written.popleft())
            for first in range(0, len(frames), MESSAGE_FRAMES):
                await self._dealer.send_multipart(frames[first : first + MESSAGE_FRAMES])

    def abort(self) -> None:
        if self._dealer.closed:
            return
        if self._ended is not None:
            self._ended.cancel()
        self._dealer.disable_monitor()
        self._monitor.close(0)
        self._dealer.close(0)
        self._context.term()


Channel = StreamChannel | MessageChannel


async def channel_to(target: Target, seconds: float) -> Channel:
    """Connect within `seconds`. Raises `OSError`, `TimeoutError`, `RefusedError`."""
    if not over_zeromq(target.protocol):
        return StreamChannel(await opened(target, seconds))
    channel = MessageChannel(target)
    await channel.open(seconds)
    return channel


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(target: Target, seconds: float) -> Streams:
    """Connect within `seconds`. Raises `OSError`, `TimeoutError`."""
    async with asyncio.timeout(seconds):
        return await asyncio.open_connection(target.host, target.port, ssl=target.tls)
