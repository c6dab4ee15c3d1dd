"""How clients are pointed at Headrace: one text for each, which `snippet`, the end of the demo and docs/clients.md show."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from string import Template
from typing import Annotated, Any, Final

import typer
from headrace_common.operations.tasks import own_name
from headrace_common.protocol import Snippet, Snippets, installed

from headrace_cli.ground import DEFAULT_STATE, CommandError, check_known, command
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console
from headrace_cli.verbs.options import StateOption, examples

_EVERYWHERE: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104  (no address to connect to)


@dataclass(frozen=True)
class Address:
    """Where a receiver listens. `ca`: file of the authority to trust; empty without TLS. `keys`: folder of CURVE keys."""

    host: str
    port: int
    ca: str = ""
    keys: str = ""


@dataclass(frozen=True)
class SnippetClient:
    """A client of a receiver (`protocol`, by its name)."""

    protocol: str
    snippet: Snippet

    def text(self, address: Address) -> str:
        """Return the configuration for this address. Raises `CommandError` if the client cannot speak so."""
        given = self.snippet
        found, why = (given.tls, given.tls_note) if address.ca or address.keys else (given.plain, given.plain_note)
        if not found:
            raise CommandError(why)
        return Template(found).substitute(host=address.host, port=address.port, ca=address.ca, keys=address.keys)


_SNIPPETS: Final[Mapping[str, Snippets]] = {
    each.name: resolve_name(each.snippets) for each in installed() if each.snippets
}
PORTS: Final[Mapping[str, int]] = {each.name: each.listeners[0].port for each in installed()}
"""Port by protocol."""
CLIENTS: Final = tuple(SnippetClient(name, each) for name, found in _SNIPPETS.items() for each in found.clients)
"""In the order in which they are listed."""
NAMED: Final[Mapping[str, SnippetClient]] = {client.snippet.name: client for client in CLIENTS}


def how_to(protocol: str) -> str:
    """Return configurations for this machine without TLS, as the end of the demo shows them."""
    ours = [each for each in CLIENTS if each.protocol == protocol and each.snippet.plain]
    shown = [each for each in ours if each.snippet.first] or ours
    texts = [_indented(each, Address("127.0.0.1", PORTS[protocol])) for each in shown]
    return "\n".join([*texts, *filter(None, [_SNIPPETS[protocol].more if protocol in _SNIPPETS else ""])])


def _indented(client: SnippetClient, address: Address) -> str:
    head, *rest = client.text(address).splitlines()
    return "\n".join([f"  {client.snippet.name:<13} {head}", *(f"{'':<16}{line}" for line in rest)]) + "\n"


def _list() -> int:
    """Print the clients, with the protocol and the port that each speaks."""
    width = max(len(client.snippet.name) for client in CLIENTS)
    for client in CLIENTS:
        console.OUT.print(
            f"{client.snippet.name:<{width}}  {client.snippet.title} ({client.protocol}, {PORTS[client.protocol]})"
        )
    return 0


app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace snippet",
        "./headrace snippet filebeat > output.yml",
        "./headrace snippet fluent-bit --host logs.example.org",
    )
)
def snippet(
    client: Annotated[
        str | None, typer.Argument(help="The client, for example filebeat; without one, all are listed.")
    ] = None,
    state: StateOption = DEFAULT_STATE,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="What clients call this machine; default: where the receiver listens.")
    ] = "",
) -> int:
    """Print a client's configuration for this stack: its addresses, and TLS if it speaks that."""
    if client is None:
        return _list()
    check_known("client", [client], NAMED)
    wanted, folder = NAMED[client], StateFolder(state)
    record = folder.what_runs()
    sys.stdout.write(wanted.text(_address(record, wanted, folder, host)))
    sys.stdout.flush()
    if wanted.snippet.note:  # beside the configuration, which goes into a file
        console.ERR.print(wanted.snippet.note, markup=False)
    if not record:
        console.ERR.print(
            f"Nothing runs on {folder.path}: this is for the usual port; {command('up', folder.path)} starts it."
        )
    return 0


def _address(record: dict[str, Any], client: SnippetClient, state: StateFolder, host: str) -> Address:
    if not record:
        return Address(host or "127.0.0.1", PORTS[client.protocol])
    service = record["services"].get(client.protocol)
    if service is None:
        raise CommandError(
            f"The stack on {state.path} runs without {client.protocol}, which {client.snippet.name} speaks."
        )
    listening, _, port = service["listen"].rpartition(":")
    where = own_name() if listening in _EVERYWHERE else listening
    return Address(host or where, int(port), service.get("ca") or "", service.get("keys") or "")
