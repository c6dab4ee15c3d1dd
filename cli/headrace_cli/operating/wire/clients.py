"""The client of each protocol, and how it compresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headrace_common.session.client import Client, Compression
from headrace_courier.client import CourierClient
from headrace_forward.client import ForwardClient
from headrace_logjam.client import LogjamClient
from headrace_lumberjack.client import LumberjackClient
from headrace_segment.client import SegmentClient

from headrace_cli.errors import CommandError

CLIENTS: Final[Mapping[str, type[Client]]] = {
    "courier": CourierClient,
    "forward": ForwardClient,
    "logjam": LogjamClient,
    "lumberjack": LumberjackClient,
    "segment": SegmentClient,
}
ASKED: Final[Mapping[str, Callable[[], Client]]] = {
    name: CLIENTS[name] for name in ("courier", "forward", "lumberjack")
}
"""Protocols of which there are servers that are not ours: `conform` asks these."""


def client_of(protocol: str) -> type[Client]:
    """Returns the client of a protocol. Raises `CommandError` with status 2 if there is no such protocol."""
    if protocol not in CLIENTS:
        raise CommandError(f"{protocol} is no protocol; there is: {', '.join(sorted(CLIENTS))}.", status=2)
    return CLIENTS[protocol]


def compression_of(text: str, protocol: str) -> Compression | None:
    """Reads ``METHOD`` or ``METHOD:LEVEL``; None for an empty text. Raises `CommandError` with status 2."""
    if not text:
        return None
    methods = client_of(protocol).methods
    method, colon, level = text.partition(":")
    if not methods:
        raise CommandError(f"--compression {text}: {protocol} compresses nothing.", status=2)
    if method not in methods:
        raise CommandError(f"--compression {text}: for {protocol} it is one of {', '.join(methods)}.", status=2)
    if not colon:
        return Compression(method)
    levels = methods[method]
    if not levels:
        raise CommandError(f"--compression {text}: {method} has no levels in {protocol}.", status=2)
    if not level.isdecimal() or int(level) not in levels:
        raise CommandError(f"--compression {text}: the level is {levels.start} to {levels.stop - 1}.", status=2)
    return Compression(method, int(level))
