"""The client of each protocol, and how it compresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace_common.protocol import installed
from headrace_common.session.client import Client, Compression

from headrace_cli.errors import CommandError

CLIENTS: Final[Mapping[str, type[Client]]] = {
    protocol.name: protocol.client() for protocol in installed() if protocol.client is not None
}
ASKED: Final[Mapping[str, type[Client]]] = {name: client for name, client in CLIENTS.items() if client.elsewhere}
"""What `conform` speaks."""


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
