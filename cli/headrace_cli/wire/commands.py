"""``explain``, ``send``, ``conform``, ``check-loss`` and ``quarantine``, as the command line takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_cli.ground import DEFAULT_STATE, CommandError
from headrace_cli.operating.options import KafkaOption, LakeOption, StateOption, UrlOption, examples

app = typer.Typer()

CaOption = Annotated[
    str,
    typer.Option(
        "--ca", metavar="FILE|system", help="Speak TLS, and trust the authorities in this PEM file, or this machine's."
    ),
]


@app.command(
    epilog=examples(
        "./headrace explain capture.bin",
        "./headrace quarantine show --raw NAME | ./headrace explain - --protocol logjam",
        "HEADRACE_LIMITS__FRAME_BYTES=64MiB ./headrace explain capture.bin",
    )
)
def explain(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", help="Bytes that a client sent on one connection; - is standard input."),
    ],
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="courier, forward, logjam, lumberjack or segment; default: the first bytes say."
        ),
    ] = "",
    parts: Annotated[int, typer.Option(min=0, max=100_000, help="Show at most N events and entries of a frame.")] = 5,
    frames: Annotated[int, typer.Option(min=0, help="Show at most N frames; all are counted.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each frame, then one with the totals.")
    ] = False,
) -> None:
    """Say what bytes mean, field by field, and what a receiver does with them. Exit status 1 if it does not understand all."""
    from headrace_cli.wire.explain import verb

    options = verb.ExplainOptions(protocol, parts, frames, as_json)
    raise typer.Exit(verb.explain(file, options))


@app.command(
    epilog=examples(
        "tail -f access.log | ./headrace send forward",
        "./headrace send lumberjack --rate 1000 --for 30s --size 300 --connections 4 --then-check",
        "./headrace send courier logs.example.org:5043 --file events.jsonl --ca ca.pem",
        "./headrace send forward logs.example.org:24224 --rate 100 --login secrets",
        "./headrace send logjam --rate 1000 --for 30s --compression lz4 --then-check",
    )
)
def send(
    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="courier, forward, logjam, lumberjack or segment.")
    ],
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A receiver; default: the stack in --state.")] = "",
    state: StateOption = DEFAULT_STATE,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Send its lines; default: standard input, unless there is a --rate."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", min=0.1, max=10_000_000, help="Send N events a second instead.")
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
    cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show this certificate (PEM, with its key, not encrypted).")
    ] = None,
    login: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Secrets, as lines of NAME=VALUE: of Forward shared_key, user, password; of Logjam curve_server, curve_key.",
        ),
    ] = None,
    compression: Annotated[
        str,
        typer.Option(
            metavar="METHOD[:LEVEL]",
            help="Courier: zlib; Forward: none, gzip or zstd; Logjam: none, zlib, snappy or lz4; Lumberjack: none or zlib.",
        ),
    ] = "",
    then_check: Annotated[
        bool,
        typer.Option("--then-check", help="Then find every event in the lake, and say which are missing or double."),
    ] = False,
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Send lines or made-up events, and count the acknowledgements. Exit status 1 if one is missing. Ctrl-C ends it."""
    from headrace_cli.operating.records import parse_span
    from headrace_cli.wire.send import verb
    from headrace_cli.wire.target import Security, compression_of

    if lake is not None and not then_check:
        raise CommandError("--lake: only --then-check looks there.", status=2)
    if rate is None and (duration or size):
        raise CommandError("--for and --size: only events that are made up (--rate N) have them.", status=2)
    options = verb.SendOptions(
        target, file, rate, parse_span(duration or "10s", "--for"), size or 300, connections, batch,
        Security(ca, cert, login), compression_of(compression, protocol), lake=(lake or state / "lake") if then_check else None,
        as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(verb.send(protocol, state, options))


@app.command(
    epilog=examples(
        "./headrace conform --protocol lumberjack",
        "./headrace conform logs.example.org:24224 --protocol forward --ca ca.pem --format json",
        "./headrace conform --protocol lumberjack --hold-command 'kill -STOP 4711' --release-command 'kill -CONT 4711'",
    )
)
def conform(
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A server; default: the stack in --state.")] = "",
    protocol: Annotated[str, typer.Option(metavar="NAME", help="courier, forward or lumberjack.")] = "",
    state: StateOption = DEFAULT_STATE,
    ca: CaOption = "",
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3600, help="Time that the server has for each answer.")
    ] = 10,
    silence: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, max=3600, help="How long to listen where it should say nothing."),
    ] = 6,
    hold: Annotated[
        str, typer.Option("--hold-command", metavar="CMD", help="Stalls the server's storage, for the shell.")
    ] = "",
    release: Annotated[str, typer.Option("--release-command", metavar="CMD", help="Lets it go again.")] = "",
    largest: Annotated[int, typer.Option(metavar="MIB", min=1, max=1024, help="Largest frame that is tried.")] = 4,
    inflated: Annotated[
        int, typer.Option(metavar="MIB", min=1, max=4096, help="What the compressed frame inflates to.")
    ] = 100,
    only: Annotated[list[str] | None, typer.Option(metavar="PROBE", help="Only this probe; may be repeated.")] = None,
    style: Annotated[str, typer.Option("--format", metavar="FORMAT", help="table or json.")] = "table",
) -> None:
    """Ask any server when it acknowledges, and what bad input does to it. It sends events and harmful bytes; exit status 1
    if the server breaks the promise.
    """
    from headrace_cli.wire.conform import verb

    options = verb.ConformOptions(
        target, ca, wait, silence, hold, release, largest << 20, inflated << 20, only or (), style
    )
    raise typer.Exit(verb.conform(protocol, state, options))


@app.command(
    "check-loss",
    epilog=examples(
        "./headrace check-loss",
        "./headrace check-loss --since 1d --ignore quarantine --json",
        "./headrace check-loss --lake /data/lake --kafka kafka-1:9092 --url http://receiver-1:8080",
    ),
)
def check_loss(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="What landed since an ISO time, or within this time: 1d.",
        ),
    ] = "",
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Show this check, and do not count it; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say whether anything was lost, or may be, and why: 0 if not, 1 if lost, 4 if in doubt. For cron and CI."""
    from headrace_cli.wire import loss as verb

    options = verb.LossOptions(lake or state / "lake", kafka, url or (), since, ignore or (), as_json)
    raise typer.Exit(verb.check_loss(state, options))


quarantine = typer.Typer(
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


@quarantine.command(
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


@quarantine.command(
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


@quarantine.command(
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


@quarantine.command(
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


app.add_typer(quarantine)
