"""The verbs of this package, as the command line takes them. Each imports its code only when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_cli.ground import DEFAULT_STATE, CommandError, check_known
from headrace_cli.operating.options import KafkaOption, StateOption, examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace tap --protocol forward --where body.level=error",
        "./headrace tap --from 10m --stream 'shop.*' --format json | jq .body",
        "./headrace tap --quarantine --last 20",
    )
)
def tap(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    protocol: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only events that came by this protocol; may be repeated.")
    ] = None,
    stream: Annotated[str, typer.Option(metavar="PATTERN", help="Only this stream; * and ? match anything.")] = "",
    source: Annotated[str, typer.Option(metavar="PATTERN", help="Only this source, for example '/forward/*'.")] = "",
    identity: Annotated[str, typer.Option("--id", metavar="ID", help="Only the event with this id.")] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUE", help="Only events with this value, as body.user.name=alice; all of several must hold."
        ),
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Show the quarantine topic instead: what was not understood, and why.")
    ] = False,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="now (the default), beginning, an ISO time, or how long ago: 10m."),
    ] = "",
    last: Annotated[int | None, typer.Option(min=1, max=10_000, help="The last N that are there, and no more.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N.")] = None,
    style: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="pretty, json (a line each) or raw (the values alone).")
    ] = "pretty",
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on at the topic's end, or stop there.")
    ] = True,
) -> None:
    """Show what passes on the topic: decoded, filtered, live until Ctrl-C. It joins no group and changes nothing."""
    from headrace_common.protocol import installed

    from headrace_cli.operating import tap as verb
    from headrace_cli.operating.records import Filters, parse_where

    check_known("--format", [style], verb.Format)
    check_known("--protocol", protocol or (), [each.name for each in installed()])
    if quarantine and any(text.startswith("body") for text in where or ()):
        raise CommandError("--where body.…: what is in quarantine has no body; attributes.… has a value.", status=2)
    filters = Filters(protocol or (), stream, source, identity, where=[parse_where(text) for text in where or ()])
    options = verb.TapOptions(filters, quarantine, begin, last, limit, verb.Format(style), follow)
    raise typer.Exit(verb.tap(state, kafka, options))


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
) -> None:
    """Print a client's configuration for this stack: its addresses, and TLS if it speaks that."""
    from headrace_cli.operating import snippets as verb

    raise typer.Exit(verb.list_clients() if client is None else verb.snippet(client, state, host))


@app.command(
    epilog=examples(
        "./headrace validate",
        "./headrace validate forward lake --config headrace.yaml",
        "./headrace validate --offline --strict --json",
    )
)
def validate(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="forward, lake, topics, …; default: all parts.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with settings; the environment overrides it.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask Kafka.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A doubt counts as wrong, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Check settings, certificates, limits, Kafka and its topics before anything starts. Exit status 78 if one is wrong."""
    from headrace_cli.operating import validate as verb

    raise typer.Exit(verb.validate(verb.ValidateOptions(parts or (), config, offline, strict, as_json)))
