"""``status``: shows what runs, for people or as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from headrace_cli.ground import EXIT_NOTHING_RUNS, command
from headrace_cli.stack.probes import native
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console


def status(path: Path, *, as_json: bool) -> int:
    """Print the stack's state. Exit status 3 when nothing runs, 1 when it runs and its record cannot be read."""
    state = StateFolder(path)
    running = state.running()
    record = state.read_record() if running else {}
    if running and not record and state.record.exists():
        start = command("up", state.path)
        told = f"it runs, but {state.record} cannot be read; {command('down', state.path)} and {start} write it again"
        console.line("stack", "bad", told)
        return 1
    if not record:
        if as_json:
            json.dump({}, sys.stdout)
            print()
        elif running:
            console.line("stack", "note", f"a stack is starting on {state.path}")
        elif left := state.processes():
            console.line(
                "stack",
                "bad",
                f"its supervisor has died and left {len(left)} processes; {command('down', state.path)} ends them",
            )
        elif state.record.exists():
            console.line("stack", "note", f"nothing runs on {state.path}; the last run was killed")
        else:
            console.line("stack", "note", f"nothing runs on {state.path}")
        return EXIT_NOTHING_RUNS
    cores = asyncio.run(_cores(record["services"]))
    if as_json:
        json.dump(document(record, cores), sys.stdout, indent=1)
        print()
    else:
        _table(record, cores)
    return 0


async def _cores(services: dict[str, Any]) -> dict[str, str]:
    """Ask each receiver for its native core. Takes as long as the slowest answer, a few seconds at most."""
    addresses = (service["ops"].rsplit(":", 1) for service in services.values())
    answers = await asyncio.gather(*(native(host, int(port)) for host, port in addresses))
    return dict(zip(services, answers, strict=True))


def document(record: dict[str, Any], cores: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``status --json`` prints, from the supervisor's record and what the receivers say of their native `cores`."""
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
    """Return the pid of the Java process below the landing job `pid`; None if there is none."""
    if pid is None:
        return None
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                if Path(process.exe()).name == "java":
                    return process.pid
    return None


def _table(record: dict[str, Any], cores: Mapping[str, str]) -> None:
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
    console.OUT.print(f"The tables are in {record['lake']}", markup=False)
    console.OUT.print(
        f"The supervisor has pid {record['supervisor_pid']}, its state is in {record['state']}", markup=False
    )
