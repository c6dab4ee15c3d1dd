"""A connection to a receiver that is a stream of bytes: TCP, TLS, and Forward's login."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

import msgpack
from headrace_forward.login.handshake import ping, proof_of, read_pong

from headrace_cli.operating.wire.address import RefusedError, Target
from headrace_cli.operating.wire.security import Login

HELO: Final = b"\x92\xa4HELO"
"""What a server of Forward begins with that asks for a login."""
_SALT: Final = 16
_MOST: Final = 64 << 10
_READ: Final = 4096

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(target: Target, seconds: float) -> Streams:
    """Connect, and log in if the target says how, within `seconds`. Raises `OSError`, `TimeoutError`, `RefusedError`."""
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(target.host, target.port, ssl=target.tls)
        try:
            if target.login is not None:
                await _log_in(target.login, reader, writer)
        except BaseException:
            writer.transport.abort()
            raise
    return reader, writer


async def _log_in(login: Login, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    helo, hostname, salt = await _message(reader), socket.gethostname(), os.urandom(_SALT)
    try:
        writer.write(
            ping(helo, login.shared_key, hostname=hostname, salt=salt, user=login.user, password=login.password)
        )
        await writer.drain()
        verdict = read_pong(await _message(reader))
    except ValueError as error:
        raise RefusedError(f"does not log us in: its answer is {error}") from error
    if not verdict.accepted:
        raise RefusedError(f"refuses the login: {verdict.reason}")
    if verdict.proof != proof_of(helo, login.shared_key, verdict.hostname, salt):
        raise RefusedError("does not have the shared key itself")


async def _message(reader: asyncio.StreamReader) -> bytes:
    """The next object of msgpack; the server says nothing behind it until it is answered. Raises `RefusedError`."""
    data = b""
    while len(data) < _MOST:
        piece = await reader.read(_READ)
        if not piece:
            raise RefusedError("closes the connection at the login")
        data += piece
        unpacker = msgpack.Unpacker()
        unpacker.feed(data)
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            continue
        except (ValueError, msgpack.FormatError):
            break
        return data
    raise RefusedError("does not ask for a login as Forward does")
