"""``explain``, as the command line takes it."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()

_EXPLAIN_EXAMPLES = """Examples:

./headrace explain capture.bin

./headrace quarantine show --raw NAME | ./headrace explain - --protocol logjam

tshark -r my.pcap -Y 'tcp.dstport == 5044' -T fields -e tcp.payload | ./headrace explain -"""


@app.command(epilog=_EXPLAIN_EXAMPLES)
def explain(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Bytes of one connection, one side; - is standard input.")
    ],
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="courier, forward, logjam, lumberjack or segment; default: the first bytes say."
        ),
    ] = "",
    as_hex: Annotated[
        bool, typer.Option("--hex", help="The file has hex digits; what begins as nothing but hex is taken so anyway.")
    ] = False,
    from_client: Annotated[
        bool, typer.Option("--from-client", help="A client sent it; default: the first bytes say.")
    ] = False,
    from_server: Annotated[bool, typer.Option("--from-server", help="A server sent it: replies.")] = False,
    parts: Annotated[int, typer.Option(min=0, max=100_000, help="Show so many events and entries of a frame.")] = 5,
    frames: Annotated[int, typer.Option(min=0, help="Show so many frames; all are counted.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each frame, then one with the totals.")
    ] = False,
) -> None:
    """Say what bytes mean, field by field, and what a receiver does with them. Exit status 1 if it does not understand all."""
    from headrace_cli.operating.wire.explain import verb

    options = verb.Options(protocol, as_hex, from_server, from_client, parts, frames, as_json)
    raise typer.Exit(verb.explain(file, options))
