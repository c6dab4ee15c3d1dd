"""``up``: runs the stack in the foreground, or in the background with ``--detach``."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError, command, module
from headrace_cli.machine.child import written_since
from headrace_cli.machine.tether import tethered
from headrace_cli.stack.stack import ACCEPT, Stack, StackOptions, check_processes, plan, select_receivers
from headrace_cli.stack.state import StateFolder
from headrace_cli.stack.supervisor import Supervisor
from headrace_cli.verbs import console
from headrace_cli.verbs.options import StateOption, brokers_named

START_SECONDS: Final = 900.0
"""How long ``--detach`` and ``demo`` wait for everything to be ready. A start that takes long on a busy machine is no failure."""

LOW_DISK: Final = 512 * 1024 * 1024


app = typer.Typer()


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
        str, typer.Option(help="Address that the receivers listen on; 0.0.0.0 admits other machines, :: also by IPv6.")
    ] = "127.0.0.1",
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS, with a certificate authority that the stack makes for itself.")
    ] = False,
    processes: Annotated[
        int, typer.Option(metavar="N", help="Run N processes of each receiver, on one port; Logjam stays one.")
    ] = 1,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Serve the live page, on 127.0.0.1.")] = True,
    accept_loss: Annotated[
        bool,
        typer.Option(ACCEPT, help="Let the landing job note records that Kafka deleted before they landed, and go on."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when everything is ready; the stack keeps running.")
    ] = False,
) -> int:
    """Start the stack: Kafka, the topics, the receivers and the landing job. Ctrl-C stops it."""
    check_processes(processes)
    names = tuple(name.strip() for name in services.split(",") if name.strip())
    select_receivers(names)
    options = StackOptions(kafka, names, any_port, host, tls, processes, live, accept_loss)
    folder = StateFolder(state)
    if detach:
        start(folder, options)
        show_addresses(folder)
        return 0
    return _run(folder, options)


def _run(state: StateFolder, options: StackOptions) -> int:
    """Run the stack until a signal stops it. Return 0, or 78 when a service refuses its settings."""
    stack, lock = _prepare(state, options)
    try:
        reporter = console.Reporter(state.log("supervisor"))
        return asyncio.run(Supervisor(stack, reporter, console.unheard()(partial(show_addresses, state))).run())
    finally:
        os.close(lock)


def _prepare(state: StateFolder, options: StackOptions) -> tuple[Stack, int]:
    """Lock the folder, end what a killed run left there, choose ports, fetch missing jars. Return the plan and the lock."""
    os.umask(0o077)  # for its processes, too: what they write is for this user alone
    state.make()
    if state.is_open():
        console.line("state", "bad", f"other users may read {state.path}; `chmod 700 {state.path}` ends it")
    lock = state.lock()
    ended = state.end_processes()
    if ended:
        console.line("stack", "note", f"stopped {ended} processes that an earlier run had left")
    shutil.rmtree(scratch := state.path / "run" / "spark", ignore_errors=True)  # of a killed landing job
    scratch.mkdir(exist_ok=True)
    if options.processes > 1:
        for service in select_receivers(options.services):
            if not service.shares:
                console.line(service.name, "note", "stays one process: ZeroMQ's sockets cannot share a port")
    with console.fetching() as progress:
        stack = plan(state, options, progress)
    for name, text in stack.notes:
        console.line(name, "note", text)
    _tell_space(stack)
    return stack, lock


def _tell_space(stack: Stack) -> None:
    """Print how much of the disk the stack takes. Raises `CommandError` if too little is free."""
    free = shutil.disk_usage(stack.state.path).free
    if free < LOW_DISK:
        raise CommandError(
            f"Only {console.format_size(free)} are free in {stack.state.path}; the stack needs more to start."
        )
    grows = f"the lake in {stack.state.lake} grows with the events sent; {console.format_size(free)} are free"
    if stack.disk_bytes is None:
        console.line("disk", "note", grows)
        return
    console.line(
        "disk", "note", f"Kafka keeps at most {console.format_size(stack.disk_bytes)} in {stack.state.kafka}; {grows}"
    )
    if free < stack.disk_bytes:
        console.line("disk", "bad", "that is less than Kafka may use")


def show_addresses(state: StateFolder) -> None:
    """Print the addresses of what runs, and what to do next."""
    record = state.read_record()
    table = console.table("", "~address", "health and metrics")
    table.add_row("kafka", record["kafka"], "")
    for name, service in record["services"].items():
        table.add_row(name, " ".join(service["listeners"].values()), f"http://{service['ops']}/")
    table.add_row("lake", "", f"http://{record['lake_ops']}/")
    console.OUT.print()
    console.OUT.print(table)
    if record["live"]:
        console.OUT.print(f"Watch it live: {record['live']}", markup=False)
    console.OUT.print(f"The tables are in {record['lake']}, the logs in {state.logs}", markup=False)
    console.OUT.print("\nSend something, for example:")
    hints = [service["hint"].format(listen=service["listen"]) for service in record["services"].values()]
    for hint in dict.fromkeys(hints):  # a receiver's processes have the same
        console.OUT.print(f"  {hint}", markup=False)
    console.OUT.print(f"More clients, with their configurations: {command('snippet', state.path)}", markup=False)
    if any(service.get("ca") for service in record["services"].values()):
        folder = state.path / "tls"
        console.OUT.print(
            f"Clients trust {folder / 'ca.pem'}; {folder / 'client.pem'} and .key are for a client", markup=False
        )
        console.OUT.print("that needs a certificate (HEADRACE_TLS__CLIENT_CA is then the same ca.pem).", markup=False)
    console.OUT.print("Then look at it:")
    console.OUT.print(f'  {command("query", state.path)} "{console.EXAMPLE_QUERY}"\n', markup=False)


def start(state: StateFolder, options: StackOptions, *, tied: bool = False) -> dict[str, Any]:
    """Start a supervisor in the background, show its lines until everything is ready, and return its record.

    `tied`: it ends when this process does. Raises `CommandError` if it stops, or is not ready in time.
    """
    _, lock = _prepare(state, options)
    os.close(lock)  # for the supervisor; the slow work is done, and its progress was visible here
    log = state.log("supervisor")
    begin = log.stat().st_size if log.exists() else 0
    arguments = [*module("headrace_cli"), "up", "--state", str(state.path), *_arguments(options)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            tethered(arguments) if tied else arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
    position = begin
    deadline = time.monotonic() + START_SECONDS
    while True:
        position = _relay_log(log, position)
        if process.poll() is not None:
            _relay_log(log, position)
            raise CommandError(
                f"The stack stopped while it started; see {log}.", status=process.returncode or EXIT_FAILED
            )
        record = state.read_record()
        if record.get("supervisor_pid") == process.pid and record.get("ready"):
            _relay_log(log, position)
            return record
        if time.monotonic() > deadline:
            raise CommandError(
                f"The stack is not ready after {START_SECONDS:.0f} s. It keeps starting; see {command('status', state.path)}."
            )
        time.sleep(0.1)


def _arguments(options: StackOptions) -> list[str]:
    """Return the words by which `up` is given these options."""
    words = []
    for field in fields(options):
        value, name = getattr(options, field.name), field.name.replace("_", "-")
        if isinstance(value, bool) and value is not field.default:
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value != field.default:
            words += [f"--{name}", ",".join(value) if isinstance(value, tuple) else str(value)]
    return words


def _relay_log(log: Path, position: int) -> int:
    """Show the supervisor's lines since `position`; return the new position."""
    rows, position = written_since(log, position)
    for row in rows:
        found = console.parse_line(row)
        if found is not None:
            console.line(*found)
        else:
            print(row, file=sys.stderr)
    return position
