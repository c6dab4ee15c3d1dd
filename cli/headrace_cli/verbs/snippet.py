"""How clients are pointed at Headrace: a text for each, which `snippet` and docs/clients.md show.

A line that begins with ``plain|`` or ``tls|`` is for connections of that kind only.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer
from headrace_common.operations.tasks import own_name
from headrace_common.protocol import installed

from headrace_cli.ground import DEFAULT_STATE, CommandError, check_known
from headrace_cli.options import StateOption, examples
from headrace_cli.stack.state import StateFolder

CLIENTS: Final = {path.stem: path for path in sorted(Path(__file__).with_name("clients").glob("*/*.txt"))}
"""Files by client; a file's folder is named as the protocol."""
PORTS: Final = {each.name: each.listeners[0].port for each in installed()}
app = typer.Typer()


def configuration(client: str, host: str, port: int, trust: str = "") -> str:
    """Return a client's configuration. `trust`: the file of the authority; empty without TLS."""
    ours, others = ("tls|", "plain|") if trust else ("plain|", "tls|")
    lines = CLIENTS[client].read_text().splitlines(keepends=True)
    shown = "".join(line.removeprefix(ours) for line in lines if not line.startswith(others))
    return Template(shown).substitute(host=host, port=port, ca=trust)


@app.command(epilog=examples("./headrace snippet", "./headrace snippet fluent-bit --host logs.example.org --ca ca.pem"))
def snippet(
    client: Annotated[str, typer.Argument(help="The client, for example filebeat; without one, all are listed.")] = "",
    state: StateOption = DEFAULT_STATE,
    host: Annotated[str, typer.Option(metavar="NAME", help="What clients call this machine.")] = "",
    ca: Annotated[str, typer.Option(metavar="FILE", help="With TLS: the authority that the client trusts.")] = "",
) -> int:
    """Print a client's configuration for this stack, or for the usual ports if nothing runs."""
    if not client:
        for name, path in CLIENTS.items():
            print(f"{name:<14} {path.parent.name}, {PORTS[path.parent.name]}")
        return 0
    check_known("client", [client], CLIENTS)
    protocol = CLIENTS[client].parent.name
    service = {"address": f"127.0.0.1:{PORTS[protocol]}"}
    if record := StateFolder(state).what_runs():
        service = record["services"].get(protocol)
    if service is None:
        raise CommandError(f"The stack on {state} runs without {protocol}, which {client} speaks.")
    listening, _, port = service["address"].rpartition(":")
    where = own_name() if listening in ("0.0.0.0", "::", "[::]") else listening  # noqa: S104  (no address to connect to)
    print(configuration(client, host or where, int(port), ca), end="")
    return 0
