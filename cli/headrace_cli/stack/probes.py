"""Probes: how the supervisor learns whether its children are ready and alive."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Final

from headrace_cli.machine.child import Probe, ProbeResult
from headrace_cli.stack import broker

_TIMEOUT: Final = 2.0
_NATIVE: Final = re.compile(r'headrace_build_info\{[^}]*\bnative="(\w+)"')


def http_probe(host: str, port: int) -> Probe:
    """Return a probe that asks ``/readyz``, and ``/livez`` when that is red.

    No answer means not ready. Only a red ``/livez`` means not live.
    """

    async def probe() -> ProbeResult:
        status, body = await _get(host, port, "/readyz")
        if status == 200:
            return ProbeResult(True)
        if status == 0:
            return ProbeResult(False, "no answer")
        live, said = await _get(host, port, "/livez")
        return ProbeResult(False, said if live == 503 else body, live != 503)

    return probe


def kafka_probe(host: str, port: int) -> Probe:
    """Return a probe that sends the broker a request."""

    async def probe() -> ProbeResult:
        answers = await asyncio.to_thread(broker.answers, host, port, _TIMEOUT)
        return ProbeResult(answers, "" if answers else "no answer")

    return probe


async def native(host: str, port: int) -> str:
    """Return whether a receiver asks the native core: ``on``, ``off``, or nothing if it does not say."""
    found = _NATIVE.search((await _get(host, port, "/metrics"))[1])
    return found[1] if found is not None else ""


async def _get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return the status and the body's text as one line; status 0 when no answer comes in time."""
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
