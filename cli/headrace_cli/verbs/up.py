"""``up``: runs the stack in the foreground, or in the background with ``--detach``."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, command, module
from headrace_cli.machine.tether import tethered
from headrace_cli.options import KafkaOption, StateOption

if TYPE_CHECKING:
    from headrace_cli.stack.state import StateFolder

NEWEST: Final = "select event_time, stream, body from events order by landed_at desc limit 10"
START_SECONDS: Final = 900.0
"""How long ``--detach`` and ``demo`` wait for everything to be ready. A start that takes long on a busy machine is no failure."""

app = typer.Typer()


@app.command()
def up(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    services: Annotated[str, typer.Option(metavar="A,B", help="Start only these receivers.")] = "",
    any_port: Annotated[bool, typer.Option("--any-port", help="Use free ports.")] = False,
    host: Annotated[
        str, typer.Option(help="Address that the receivers listen on; 0.0.0.0 admits other machines, :: also by IPv6.")
    ] = "127.0.0.1",
    live: Annotated[bool, typer.Option("--live/--no-live", help="Serve the live page, on 127.0.0.1.")] = True,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Let the landing job note records that Kafka deleted before they landed, and go on."
        ),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when everything is ready; the stack keeps running.")
    ] = False,
    quiet: Annotated[bool, typer.Option(hidden=True, help="Print no addresses.")] = False,
) -> int:
    """Start the stack: Kafka (or with --kafka your own), the topics, the receivers, the landing job. Ctrl-C stops it."""
    from headrace_cli import console
    from headrace_cli.stack.reach import unreachable
    from headrace_cli.stack.stack import StackOptions, plan, select_receivers
    from headrace_cli.stack.state import StateFolder
    from headrace_cli.stack.supervisor import Supervisor

    names = tuple(name.strip() for name in services.split(",") if name.strip())
    select_receivers(names)
    folder = StateFolder(state)
    if detach:
        words = [word for word in sys.argv[2:] if word not in ("-d", "--detach")]
        show_addresses(folder, start(folder, words))
        return 0
    if kafka is not None and (problem := asyncio.run(unreachable(kafka))) is not None:
        raise CommandError(f"{problem}: check --kafka.")
    os.umask(0o077)  # for its processes, too: what they write is for this user alone
    folder.make()
    with folder.held():
        shutil.rmtree(scratch := folder.path / "run" / "spark", ignore_errors=True)  # of a killed landing job
        scratch.mkdir(exist_ok=True)
        stack = plan(folder, StackOptions(kafka, names, any_port, host, live, accept_loss))

        @console.unheard()
        def announce() -> None:
            if not quiet:
                show_addresses(folder, folder.what_runs())

        return asyncio.run(Supervisor(stack, console.unheard()(console.line), announce).run())


def show_addresses(state: StateFolder, record: dict[str, Any]) -> None:
    """Print the addresses of what runs, and what to do next."""
    from headrace_cli import console
    from headrace_cli.stack.stack import select_receivers

    table = console.table("", "~address", "health and metrics")
    for name, part in record["parts"].items():
        addresses = " ".join(part["listeners"].values()) or part["address"]
        table.add_row(name, addresses, f"http://{part['ops']}/" if part["ops"] else "")
    hints = [
        service.hint.format(listen=record["services"][service.name]["address"])
        for service in select_receivers(tuple(record["services"]))
    ]
    console.OUT.print()
    console.OUT.print(table)
    console.OUT.print("\nSend something, for example:", *hints, sep="\n  ", markup=False)
    console.OUT.print(f"More clients, with their configurations: {command('snippet', state.path)}", markup=False)
    console.OUT.print("Then look at it:")
    console.OUT.print(f'  {command("query", state.path)} "{NEWEST}"\n', markup=False)


def start(
    state: StateFolder, options: Sequence[str], *, tied: bool = False, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Start a supervisor in the background, with these options of `up`, show its lines until everything is ready, and return its
    record.

    `tied`: it ends when this process does. `variables`: its environment; this process's without them. Raises `CommandError` if it
    stops, or is not ready in time.
    """
    state.make()
    log, deadline = state.log("supervisor"), time.monotonic() + START_SECONDS
    arguments = [*module("headrace_cli"), "up", "--quiet", *options, "--state", str(state.path)]
    with log.open("ab") as output, log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            tethered(arguments) if tied else arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=variables,
        )
        while time.monotonic() < deadline:
            ended, record = process.poll() is not None, state.what_runs()
            print(lines.read(), end="", flush=True)
            if ended:
                why = f"The stack stopped while it started; see {log}."
                raise CommandError(why, status=process.returncode or EXIT_FAILED)
            if record.get("supervisor_pid") == process.pid and record["ready"]:
                return record
            time.sleep(0.1)
    later = command("status", state.path)
    raise CommandError(f"The stack is not ready after {START_SECONDS:.0f} s. It keeps starting; see {later}.")
