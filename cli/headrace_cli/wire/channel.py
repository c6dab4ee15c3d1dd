"""A connection: bytes over TCP and TLS, or messages over ZeroMQ, with one interface."""

from __future__ import annotations

import asyncio
from typing import Final

import zmq
import zmq.asyncio
from headrace_logjam.client import MESSAGE_FRAMES
from headrace_logjam.wire import joined, split

from headrace_cli.wire.target import Target, over_zeromq

_READ: Final = 65_536


class StreamChannel:
    """TCP, with or without TLS. `read` returns nothing when the server has closed it; `abort` ends it at once."""

    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams

    async def read(self) -> bytes:
        return await self._reader.read(_READ)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


class MessageChannel:
    """The same as a DEALER. What is read and sent is messages as `headrace_logjam.wire.joined` makes them.

    It does not connect again by itself: answers carry no id, so events lost with the old connection would be taken for accepted.
    Nor does it hear that a connection has ended, or that a server wants a key: then no answer comes.
    """

    def __init__(self, target: Target) -> None:
        self._context = zmq.asyncio.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.setsockopt(zmq.RECONNECT_IVL, -1)
        self._dealer.setsockopt(zmq.IPV6, ":" in target.host)
        host = f"[{target.host}]" if ":" in target.host else target.host
        self._dealer.connect(f"tcp://{host}:{target.port}")

    async def read(self) -> bytes:
        return joined(await self._dealer.recv_multipart())

    async def send(self, data: bytes) -> None:
        frames = split(data)
        for first in range(0, len(frames), MESSAGE_FRAMES):
            await self._dealer.send_multipart(frames[first : first + MESSAGE_FRAMES])

    def abort(self) -> None:
        self._context.destroy(0)


Channel = StreamChannel | MessageChannel


async def channel_to(target: Target, seconds: float) -> Channel:
    """Connect within `seconds`. Raises `OSError`, `TimeoutError`."""
    channel = StreamChannel(await opened(target, seconds))
    if not over_zeromq(target.protocol):
        return channel
    channel.abort()  # ZeroMQ would not say that nothing listens there
    return MessageChannel(target)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(target: Target, seconds: float) -> Streams:
    """Connect within `seconds`. Raises `OSError`, `TimeoutError`."""
    async with asyncio.timeout(seconds):
        return await asyncio.open_connection(target.host, target.port, ssl=target.tls)
