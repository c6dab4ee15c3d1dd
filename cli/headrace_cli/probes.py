"""How the supervisor sees whether its children are well."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from headrace_cli import broker
from headrace_cli.child import Health, Probe

_TIMEOUT: Final = 2.0


def http_probe(host: str, port: int) -> Probe:
    """``/readyz``, and ``/livez`` when that is red. No answer means not ready; only a red ``/livez`` means not live."""

    async def probe() -> Health:
        status, body = await _get(host, port, "/readyz")
        if status == 200:
            return Health(True)
        if status == 0:
            return Health(False, "no answer")
        live, said = await _get(host, port, "/livez")
        return Health(False, said if live == 503 else body, live != 503)

    return probe


def kafka_probe(host: str, port: int) -> Probe:
    """Whether the broker answers a request."""

    async def probe() -> Health:
        answers = await asyncio.to_thread(broker.answers, host, port, _TIMEOUT)
        return Health(answers, "" if answers else "no answer")

    return probe


async def _get(host: str, port: int, path: str) -> tuple[int, str]:
    """Status and the body's text in one line; 0 when there is no answer in time."""
    writer = None
    try:
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            answer = await reader.read(65_536)
            while more := await reader.read(65_536):
                answer += more
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), "; ".join(body.decode(errors="replace").split("\n")).strip("; ")
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0, ""
    finally:
        if writer is not None:
            with suppress(OSError):
                writer.close()
