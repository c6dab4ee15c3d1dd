"""``quarantine`` and its verbs, as the command line takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_cli.ground import DEFAULT_STATE
from headrace_cli.operating.options import KafkaOption, LakeOption, StateOption, examples

app = typer.Typer(
    name="quarantine",
    help="List, show, export and replay what could not be understood: from the lake, or with --topic or --kafka from the topic.",
    no_args_is_help=True,
)

TopicOption = Annotated[bool, typer.Option("--topic", help="Look at the topic, not at the lake.")]
ReasonOption = Annotated[
    list[str] | None, typer.Option("--reason", metavar="REASON", help="Only this reason; may be repeated.")
]
ProtocolOption = Annotated[
    list[str] | None, typer.Option("--protocol", metavar="NAME", help="Only this protocol; may be repeated.")
]
SinceOption = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only from here on: an ISO time, or 10m, 1d ago.")
]
UntilOption = Annotated[str, typer.Option("--until", metavar="TIME", help="Only before this time.")]


@app.command(
    "list",
    epilog=examples(
        "./headrace quarantine list --reason bad_json --since 1d",
        "./headrace quarantine list --topic --json | jq .source",
    ),
)
def list_(
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    topic: TopicOption = False,
    kafka: KafkaOption = None,
    reason: ReasonOption = None,
    protocol: ProtocolOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most N, the newest.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")] = False,
) -> None:
    """List what is in quarantine, the newest first."""
    from headrace_cli.wire.quarantined import verbs

    wanted = verbs.wanted_of(reason or [], protocol or [], since, until)
    raise typer.Exit(
        verbs.list_items(verbs.Source(state, lake or state / "lake", kafka, topic), wanted, limit, as_lines=as_json)
    )


@app.command(
    epilog=examples(
        "./headrace quarantine show u.0123456789abcdef0123456789abcdef",
        "./headrace quarantine show --raw NAME > bytes",
    )
)
def show(
    name: Annotated[str, typer.Argument(help="The item's name, as `list` has it.")],
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    topic: TopicOption = False,
    kafka: KafkaOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write the bytes alone, as the client sent them.")] = False,
) -> None:
    """Show one item with its bytes. Exit status 1 if a part of it is missing."""
    from headrace_cli.wire.quarantined import verbs

    raise typer.Exit(verbs.show_item(verbs.Source(state, lake or state / "lake", kafka, topic), name, raw=raw))


@app.command(
    epilog=examples(
        "./headrace quarantine export bad-json --reason bad_json",
        "./headrace quarantine export today --topic --since 1d",
    )
)
def export(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    topic: TopicOption = False,
    kafka: KafkaOption = None,
    reason: ReasonOption = None,
    protocol: ProtocolOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
) -> None:
    """Write each item's bytes to a file, and index.jsonl with what is known about them."""
    from headrace_cli.wire.quarantined import verbs

    wanted = verbs.wanted_of(reason or [], protocol or [], since, until)
    raise typer.Exit(verbs.export_items(verbs.Source(state, lake or state / "lake", kafka, topic), wanted, folder))


@app.command(
    epilog=examples(
        "HEADRACE_LIMITS__EVENT_BYTES=4MiB ./headrace quarantine replay --reason oversized",
        "./headrace quarantine replay --reason internal --since 7d --apply",
    )
)
def replay(
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    topic: TopicOption = False,
    kafka: KafkaOption = None,
    reason: ReasonOption = None,
    protocol: ProtocolOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with settings; the environment overrides it.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Publish the events; without it they are only counted.")
    ] = False,
    blind: Annotated[
        bool, typer.Option("--blind", help="Do without a lake: what it has already is published again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Read it once more, with this version and the settings now given, and publish what is understood, with the same ids."""
    from headrace_cli.wire.quarantined import replay as verb
    from headrace_cli.wire.quarantined import verbs

    wanted = verbs.wanted_of(reason or [], protocol or [], since, until)
    source = verbs.Source(state, lake or state / "lake", kafka, topic)
    raise typer.Exit(verb.replay(source, wanted, verb.ReplayOptions(apply, blind, config, as_json)))
