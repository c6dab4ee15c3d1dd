"""``snippet``: the configuration of a client for the addresses of this stack."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any, Final

from headrace_cli.errors import CommandError
from headrace_cli.operating.snippets import CLIENTS, NAMED, PORTS, Address, Client
from headrace_cli.places import command
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console

_EVERYWHERE: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104  (no address to connect to)


def list_clients() -> int:
    """Print the clients, with the protocol and the port that each speaks."""
    width = max(len(client.name) for client in CLIENTS)
    for client in CLIENTS:
        console.OUT.print(f"{client.name:<{width}}  {client.title} ({client.protocol}, {PORTS[client.protocol]})")
    return 0


def snippet(name: str, path: Path, host: str) -> int:
    """Print the configuration of the client `name`; what to know about it goes to standard error.

    `host`: what clients call this machine; empty: the address that the receiver listens on. Without a stack in `path`, the usual
    port of this machine. Raises `CommandError` (unknown client, no such receiver, a client that cannot speak as the stack does).
    """
    if name not in NAMED:
        raise CommandError(f"There is no client called {name}; there is: {', '.join(NAMED)}.", status=2)
    client = NAMED[name]
    state = StateFolder(path)
    record = state.read_record() if state.running() else {}
    address = _address(record, client, state, host)
    sys.stdout.write(client.text(address))
    sys.stdout.flush()
    if client.note:
        console.ERR.print(client.note, markup=False)
    if not record:
        console.ERR.print(
            f"Nothing runs on {state.path}: this is for the usual port; {command('up', state.path)} starts it."
        )
    return 0


def _address(record: dict[str, Any], client: Client, state: StateFolder, host: str) -> Address:
    if not record:
        return Address(host or "127.0.0.1", PORTS[client.protocol])
    service = record["services"].get(client.protocol)
    if service is None:
        raise CommandError(f"The stack on {state.path} runs without {client.protocol}, which {client.name} speaks.")
    listening, _, port = service["listen"].rpartition(":")
    where = socket.gethostname() if listening in _EVERYWHERE else listening
    return Address(host or where, int(port), service.get("ca") or "", service.get("keys") or "")
