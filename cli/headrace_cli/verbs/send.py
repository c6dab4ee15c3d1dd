"""``send``: a client of ours for any receiver."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError
from headrace_cli.options import CaOption, StateOption, examples, parse_span

app = typer.Typer()


@app.command(
    epilog=examples(
        "cat access.log | ./headrace send forward",
        "./headrace send lumberjack --rate 1000 --for 30s --size 300 --connections 4",
        "./headrace send otlp --rate 1000 --then-check",
        "./headrace send courier logs.example.org:5043 --ca ca.pem < events.jsonl",
    )
)
def send(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="forward, …; a wrong name is answered with all.")],
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A receiver; default: the stack in --state.")] = "",
    state: StateOption = DEFAULT_STATE,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=0.1, max=10_000_000, help="Send N events a second; default: lines of standard input."
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="With --rate: for this time, as 30s or 5m (10s).")
    ] = "",
    size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1_000_000, help="With --rate: bytes of an event's JSON, about (300)."),
    ] = None,
    connections: Annotated[int, typer.Option(min=1, max=1000, help="Connections, which share the events.")] = 1,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Most events in a frame.")] = 100,
    ca: CaOption = "",
    then_check: Annotated[
        bool,
        typer.Option("--then-check", help="Wait until the lake in --state has what was acknowledged, then check-loss."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Send lines or made-up events, and count the acknowledgements. Exit status 1 if one is missing. Ctrl-C ends it."""
    from headrace_cli.verbs.check_loss import landed_and_checked
    from headrace_cli.wire.sending import sent
    from headrace_cli.wire.source import LineSource, RateSource
    from headrace_cli.wire.target import client_of, target_of

    client_of(protocol)
    if rate is None and (duration or size):
        raise CommandError("--for and --size: only events that are made up (--rate N) have them.", status=2)
    seconds, receiver = parse_span(duration or "10s", "--for"), target_of(protocol, state, target, ca)
    source = LineSource() if rate is None else RateSource(rate, seconds, size or 300)
    tally = sent(receiver, source, connections, batch, as_json=as_json)
    checked = landed_and_checked(tally, state, as_json=as_json) if then_check else 0
    return checked if tally.fine else EXIT_FAILED
