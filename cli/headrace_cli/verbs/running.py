"""Verbs for a stack that runs: ``status`` and ``down``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer

from headrace_cli.ground import DEFAULT_STATE, EXIT_NOTHING_RUNS, CommandError, command
from headrace_cli.stack.reach import native
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console
from headrace_cli.verbs.options import StateOption

STOP_SECONDS: Final = 75.0
"""Time for a supervisor to stop its stack: receivers drain for up to 35 s, the broker for up to 20 s."""

KNOWN_SECONDS: Final = 5.0
"""Time for a supervisor that has just taken the lock to write its identity there."""


app = typer.Typer()


@app.command()
def down(
    state: StateOption = DEFAULT_STATE,
    purge: Annotated[
        bool, typer.Option("--purge", help="Then delete the state folder with the topics, the lake and the logs.")
    ] = False,
) -> int:
    """Stop the stack: the receivers acknowledge what they have taken, then Kafka stops. The data stays, without --purge."""
    folder = StateFolder(state)
    ran = folder.running()
    if ran:
        _stop_supervisor(folder)
    left = folder.end_processes()  # even if the supervisor was killed
    folder.delete_record()
    if left and not ran:
        console.line("stack", "good", f"stopped; its supervisor was gone, {left} processes were left")
    elif ran:
        console.line("stack", "good", "stopped")
    else:
        console.line("stack", "note", f"nothing runs on {folder.path}")
    if purge and folder.path.exists():
        folder.remove()
        console.line("state", "good", f"{folder.path} is gone")
    return 0


def _stop_supervisor(state: StateFolder) -> None:
    supervisor, deadline = state.supervisor(), time.monotonic() + KNOWN_SECONDS
    while supervisor is None and state.running():
        if time.monotonic() > deadline:
            raise CommandError(
                f"An unknown process holds {state.path / 'lock'}: it is no supervisor of this user's, and nothing was stopped."
            )
        time.sleep(0.05)
        supervisor = state.supervisor()
    if supervisor is None:
        return
    _signal(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while state.running():
        if time.monotonic() > deadline:
            console.line(
                "stack", "bad", f"the supervisor (pid {supervisor.pid}) did not stop in {STOP_SECONDS:.0f} s: killed"
            )
            _signal(supervisor, signal.SIGKILL)
            break
        time.sleep(0.05)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # nor does psutil signal another one that has its pid by now
        process.send_signal(number)


@app.command()
def status(
    state: StateOption = DEFAULT_STATE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> int:
    """Show what runs. Exit status 3 when nothing runs."""
    folder = StateFolder(state)
    running = folder.running()
    record = folder.read_record() if running else {}
    if running and not record and folder.record.exists():
        start = command("up", folder.path)
        told = f"it runs, but {folder.record} cannot be read; {command('down', folder.path)} and {start} write it again"
        console.line("stack", "bad", told)
        return 1
    if not record:
        if as_json:
            json.dump({}, sys.stdout)
            print()
        elif running:
            console.line("stack", "note", f"a stack is starting on {folder.path}")
        elif left := folder.processes():
            console.line(
                "stack",
                "bad",
                f"its supervisor has died and left {len(left)} processes; {command('down', folder.path)} ends them",
            )
        elif folder.record.exists():
            console.line("stack", "note", f"nothing runs on {folder.path}; the last run was killed")
        else:
            console.line("stack", "note", f"nothing runs on {folder.path}")
        return EXIT_NOTHING_RUNS
    cores = asyncio.run(_cores(record["services"]))
    if as_json:
        json.dump(document(record, cores), sys.stdout, indent=1)
        print()
    else:
        _table(record, cores, folder.logs)
    return 0


async def _cores(services: dict[str, Any]) -> dict[str, str]:
    """Ask each receiver for its native core. Takes as long as the slowest answer, a few seconds at most."""
    addresses = (service["ops"].rsplit(":", 1) for service in services.values())
    answers = await asyncio.gather(*(native(host, int(port)) for host, port in addresses))
    return dict(zip(services, answers, strict=True))


def document(record: dict[str, Any], cores: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of ``status --json``, from the supervisor's record and the state of the receivers' native `cores`."""
    kafka, lake = record["kafka_child"], record["lake_child"]
    return {
        "state": record["state"],
        "supervisor_pid": record["supervisor_pid"],
        "kafka": record["kafka"],
        "kafka_pid": kafka["pid"] if kafka else None,
        "services": {
            name: {key: service[key] for key in ("state", "listen", "listeners", "ops", "pid", "restarts")}
            | {"native": cores[name]}
            for name, service in record["services"].items()
        },
        "lake": record["lake"],
        "lake_pid": lake["pid"],
        "lake_jvm_pid": jvm_of(lake["pid"]),
        "lake_ops": record["lake_ops"],
        "checkpoint": record["checkpoint"],
    }


def jvm_of(pid: int | None) -> int | None:
    """Return the pid of the Java process below the landing job `pid`, or None."""
    if pid is None:
        return None
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                if Path(process.exe()).name == "java":
                    return process.pid
    return None


def _table(record: dict[str, Any], cores: Mapping[str, str], logs: Path) -> None:
    table = console.table("", "state", "~address", "health and metrics", "pid", "restarts")

    def row(name: str, child: dict[str, Any] | None, address: str, ops: str = "") -> None:
        if child is None:
            shown = "[red]not reached[/red]" if record["kafka_problem"] else "your own"
            table.add_row(name, shown, address, ops, "", "")
        else:
            color = "green" if child["state"] == "ready" else "red"
            shown = f"[{color}]{child['state']}[/{color}]"
            table.add_row(name, shown, address, ops, str(child["pid"] or ""), str(child["restarts"]))

    row("kafka", record["kafka_child"], record["kafka"])
    for name, service in record["services"].items():
        row(name, service, " ".join(service["listeners"].values()), f"http://{service['ops']}/")
    row("lake", record["lake_child"], "", f"http://{record['lake_ops']}/")
    if record.get("live_child"):
        row("live", record["live_child"], "", record["live"])
    console.OUT.print(table)
    if record["kafka_problem"]:
        console.OUT.print(f"Kafka: {record['kafka_problem']}", markup=False)
    for core in sorted(filter(None, set(cores.values()))):
        names = ", ".join(name for name, its in cores.items() if its == core)
        console.OUT.print(f"The native core is {core} in {names}", markup=False)
    console.OUT.print(f"The tables are in {record['lake']}, the logs in {logs}", markup=False)
    console.OUT.print(
        f"The supervisor has pid {record['supervisor_pid']}, its state is in {record['state']}", markup=False
    )
