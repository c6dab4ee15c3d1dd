"""The crowds of `benchmarks.crowds`: what each sends, over the clients' side of each protocol that the tests have."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from headrace_courier.wire import identity, jdat
from headrace_logjam.client import TOPIC
from headrace_logjam.wire import BodyCompression, Meta, compress, encode_meta
from headrace_lumberjack.wire import compressed, json_frame, window

from tests.contract import courier, forward, logjam, lumberjack, segment
from tests.contract.dialect import Can, Dialect, values

DIALECTS: Final[dict[str, Dialect]] = {
    "forward": forward.ForwardDialect(),
    "lumberjack": lumberjack.LumberjackDialect(),
    "courier": courier.CourierDialect(),
    "logjam": logjam.LogjamDialect(),
    "segment": segment.TodayDialect(),
}
LONG_TEXT: Final = b'{"x":"' + b"a" * (60 << 20) + b'"}'
DEEP: Final = {"deep": [orjson.loads(b"[" * 60 + b"]" * 60)] * 800}


@dataclass
class Target:
    """The target of a crowd. `started`: set it once the crowd is there."""

    dialect: Dialect
    address: tuple[str, int]
    ops: int
    connections: int
    tls: ssl.SSLContext | None = None
    started: Any = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "localhost" if self.tls else None
        reader, writer = await asyncio.open_connection(*self.address, ssl=self.tls, server_hostname=name)
        await self.dialect.greet(reader, writer)
        return reader, writer

    async def crowd(self, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        return [await self.connect() for _ in range(count)]

    def frame(self, **more: Any) -> bytes:
        return self.dialect.conversation().frame(values(1, **more))


def _large(name: str) -> bytes:
    """60 KB of many small events, as dear to look through as the protocol allows."""
    if name == "lumberjack":
        documents = [orjson.dumps(value) for value in values(700)]
        return window(len(documents)) + b"".join(json_frame(1 + n, text) for n, text in enumerate(documents))
    if name == "courier":
        return identity(b"HELO", "2.12.0", b"LCOR") + jdat(bytes(16), map(orjson.dumps, values(750)), level=0)
    return DIALECTS[name].conversation().frame(values(350 if name == "logjam" else 790))


def _bomb(name: str) -> bytes:
    """A frame that grows as far as the protocol's compression can make it."""
    if name == "forward":
        return forward.ForwardConversation().packed(gzip.compress(bytes(256 << 20), 9), compressed="gzip")
    if name == "lumberjack":
        return window(1) + compressed(json_frame(1, LONG_TEXT), 9)
    if name == "courier":
        return identity(b"HELO", "2.12.0", b"LCOR") + jdat(bytes(16), [LONG_TEXT], level=9)
    body = compress(BodyCompression.ZLIB, LONG_TEXT)
    return logjam.message([b"", b"shop-production", TOPIC, body, encode_meta(Meta(BodyCompression.ZLIB))])


async def _silent(to: Target) -> None:
    """6,000 connections of one address, more than its share, that send nothing; who is closed comes again."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*to.address)
                await reader.read(1)
                writer.close()
            await asyncio.sleep(1)

    crowd = [asyncio.create_task(one()) for _ in range(6000)]
    await asyncio.sleep(2)
    to.started.set()
    await asyncio.gather(*crowd)


async def _again(to: Target, count: int, data: bytes) -> None:
    """Each connection sends `data`, hears something, and sends it again on another connection; all of the first at once."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(data)
                await asyncio.wait_for(reader.read(100), 60)
            writer.close()
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    reader, writer = await to.connect()
                    break
                await asyncio.sleep(0.1)

    crowd = await to.crowd(count)
    to.started.set()
    await asyncio.gather(*(one(*each) for each in crowd))


async def _burst(to: Target) -> None:
    """300 connections with 60 KB each at once, again and again."""
    await _again(to, 300, _large(to.dialect.name))


async def bombs(to: Target) -> None:
    """16 connections with 4 bombs each, without waiting for an answer."""
    bomb = _bomb(to.dialect.name)
    await _again(to, 16, bomb if to.dialect.name == "courier" else bomb * 4)


async def _nested(to: Target) -> None:
    """16 connections with events of 100 KB that are nested 60 deep."""
    await _again(to, 16, to.frame(**DEEP))


async def _drips(to: Target) -> None:
    """200 connections whose frames arrive a byte at a time, 4,000 bytes a second in all."""
    crowd = await to.crowd(200)
    to.started.set()
    for byte in to.frame(text="x" * 10_000):
        for _, writer in crowd:
            writer.write(bytes((byte,)))
        await asyncio.sleep(0.05)


async def _deaf(to: Target) -> None:
    """50 connections that send frame after frame and never read."""
    frames = _large(to.dialect.name) * 20

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                deaf = socket.socket()
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                deaf.setblocking(False)
                await asyncio.get_running_loop().sock_connect(deaf, to.address)
                reader, writer = await asyncio.open_connection(sock=deaf, limit=1)
                await to.dialect.greet(reader, writer)
                while True:
                    writer.write(frames)
                    await writer.drain()
            await asyncio.sleep(0.1)

    crowd = [asyncio.create_task(one()) for _ in range(50)]
    to.started.set()
    await asyncio.gather(*crowd)


async def _flood(to: Target) -> None:
    """200 connections that send frame after frame, and read what is said."""

    async def hear(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 16):
            pass

    async def one() -> None:
        large = _large(to.dialect.name) if to.dialect.name in ("lumberjack", "courier") else b""
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await to.connect()
                hearing, conversation = asyncio.create_task(hear(reader)), to.dialect.conversation()
                while not hearing.done():
                    writer.write(large or conversation.frame(values(300)))
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.close()
            await asyncio.sleep(0.1)

    crowd = [asyncio.create_task(one()) for _ in range(200)]
    await asyncio.sleep(1)
    to.started.set()
    await asyncio.gather(*crowd)


async def _heartbeats(to: Target) -> None:
    """UDP heartbeats, as many as one process can send."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect(to.address)
        to.started.set()
        while True:
            with contextlib.suppress(OSError):
                sender.send(b"\0")


async def _half_open(to: Target) -> None:
    """1,000 requests to the operations port that never end; who is closed comes again."""

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(to.address[0], to.ops)
                writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                await reader.read(1)
                writer.close()
            await asyncio.sleep(0.2)

    crowd = [asyncio.create_task(one()) for _ in range(1000)]
    await asyncio.sleep(1)
    to.started.set()
    await asyncio.gather(*crowd)


async def _handshakes(to: Target) -> None:
    """16 clients that do one TLS handshake after the other, beside 1,000 that stop in the middle of one."""
    half = [await asyncio.open_connection(*to.address) for _ in range(1000)]
    for _, writer in half:
        writer.write(bytes.fromhex("1603010200010001fc0303"))

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError, ssl.SSLError):
                _, writer = await to.connect()
                writer.close()

    to.started.set()
    await asyncio.gather(*(one() for _ in range(16)))


async def _many(to: Target) -> None:
    """Connections with one event each, by TLS with 60 KB of events, which stay; `started` once all are acknowledged."""
    room, kept, frame = asyncio.Semaphore(64), [], _large(to.dialect.name) if to.tls else to.frame()

    async def one() -> None:
        async with room:
            reader, writer = await to.connect()
            kept.append(writer)
            writer.write(frame)
            while not await asyncio.wait_for(reader.read(1000), 120):
                raise SystemExit("one of many was closed")

    await asyncio.gather(*(one() for _ in range(to.connections)))
    to.started.set()
    await asyncio.sleep(3600)


WITH_TLS: Final = tuple(name for name, dialect in DIALECTS.items() if Can.TLS in dialect.can)

CROWDS: Final[dict[str, tuple[Callable[[Target], Awaitable[None]] | None, tuple[str, ...]]]] = {
    "nobody": (None, tuple(DIALECTS)),
    "silent": (_silent, tuple(DIALECTS)),
    "burst": (_burst, tuple(DIALECTS)),
    "bombs": (bombs, ("forward", "lumberjack", "courier", "logjam")),
    "nested": (_nested, tuple(DIALECTS)),
    "drips": (_drips, tuple(DIALECTS)),
    "deaf": (_deaf, tuple(DIALECTS)),
    "flood": (_flood, tuple(DIALECTS)),
    "heartbeats": (_heartbeats, ("forward",)),
    "half-open": (_half_open, tuple(DIALECTS)),
    "handshakes": (_handshakes, WITH_TLS),
    "many": (_many, tuple(DIALECTS)),
    "many by TLS": (_many, WITH_TLS),
}
"""Each with the protocols that it can be tried on."""

MANY: Final = ("many", "many by TLS")
"""Crowds whose memory is compared before and after."""

SECURED: Final = ("handshakes", "many by TLS")
"""Crowds that speak TLS."""
