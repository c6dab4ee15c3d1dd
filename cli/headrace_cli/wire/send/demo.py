"""``demo``: starts a stack, sends events over a real protocol, and compares the counts of every step."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings, environment, own_environment
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from headrace_cli.ground import EXIT_FAILED, CommandError
from headrace_cli.machine.tether import tethered
from headrace_cli.machine.toolchain import REPOSITORY_VARIABLE, jars
from headrace_cli.operating.snippets import PORTS, how_to
from headrace_cli.stack.stack import module
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console
from headrace_cli.verbs.down import down
from headrace_cli.verbs.query import EXAMPLE_QUERY
from headrace_cli.verbs.up import START_SECONDS
from headrace_cli.wire.send.connections import Tally
from headrace_cli.wire.send.source import ShopSource
from headrace_cli.wire.send.verb import run
from headrace_cli.wire.target import Target, client_of

CONNECTIONS: Final = 4
LANDING_SECONDS: Final = 300.0
"""Time limit of the landing job, from the last acknowledgement on. On a busy machine its first batch takes minutes."""


@dataclass(frozen=True)
class DemoCounts:
    """How many events have reached each step."""

    sent: int
    acknowledged: int
    on_topic: int
    quarantined: int
    in_lake: int
    distinct: int

    @property
    def agrees(self) -> bool:
        """Whether as many have reached each as were sent."""
        return {self.sent} == {self.acknowledged, self.on_topic, self.in_lake, self.distinct} and not self.quarantined


def demo(events: int, protocol: str) -> int:
    """Run the demo. Return 0 if as many events were acknowledged, stored and landed as were sent."""
    client_of(protocol)
    began = time.monotonic()
    with console.fetching() as progress:
        for name in ("kafka", "spark"):
            jars(name, progress)
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    state = StateFolder(folder / "state")
    try:
        with _stack(state) as record:
            counts, rows = _send_and_count(record, events, protocol)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _show(counts, rows)
    console.line("demo", "good" if counts.agrees else "bad", f"{time.monotonic() - began:.0f} s")
    if not counts.agrees:
        console.ERR.print("headrace: the counts differ.")
        return EXIT_FAILED
    console.OUT.print()
    console.OUT.print(
        f"Next, use your own clients: point them at port {PORTS[protocol]}.\n\n{how_to(protocol)}\n"
        "  ./headrace up                           # starts the stack; Ctrl-C stops it\n"
        "  ./headrace snippet                      # lists the clients whose configuration it prints\n"
        f'  ./headrace query "{EXAMPLE_QUERY}"\n'
        "  ./headrace query --named exactly-once   # proves what has landed",
        markup=False,
    )
    return 0


@contextmanager
def _stack(state: StateFolder) -> Iterator[dict[str, Any]]:
    """Run a stack on free ports. It ends with the block, and also when this process is killed."""
    state.make()
    ours = own_environment()  # these are settings of another stack, except the repository of the jars
    variables = {name: value for name, value in os.environ.items() if name not in ours or name == REPOSITORY_VARIABLE}
    variables.update(environment("lake", trigger=0.5))
    log = state.log("up")
    with log.open("wb") as output:
        process = subprocess.Popen(
            tethered([*module("headrace_cli"), "up", "--any-port", "--no-live", "--state", str(state.path)]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=variables,
        )
    try:
        yield _wait_until_ready(state, process)
    except Exception:
        _show_logs(state)
        raise
    finally:
        console.line("stack", "note", "stopping")
        down(state.path)
        process.wait()


def _wait_until_ready(state: StateFolder, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until everything is ready and return the supervisor's record. Print a line for each process that gets ready."""
    began = time.monotonic()
    told: set[str] = set()
    while time.monotonic() - began < START_SECONDS:
        record = state.read_record()
        children = (
            {"kafka": record["kafka_child"], **record["services"], "lake": record["lake_child"]} if record else {}
        )
        for name, child in children.items():
            if child and child["state"] == "ready" and name not in told:
                told.add(name)
                console.line(name, "good", f"ready ({time.monotonic() - began:.1f} s)")
        if record.get("ready"):
            return record
        if process.poll() is not None:
            raise CommandError("The stack stopped while it started.")
        time.sleep(0.1)
    raise CommandError(f"The stack was not ready within {START_SECONDS:.0f} s.")


def _show_logs(state: StateFolder) -> None:
    """Show the last lines of each log before the folder is deleted."""
    for log in sorted(state.logs.glob("*.log")):
        for row in log.read_text(errors="replace").splitlines()[-8:]:
            console.ERR.print(f"{log.stem:<10} | {row}", markup=False)


def _send_and_count(record: dict[str, Any], events: int, protocol: str) -> tuple[DemoCounts, list[dict[str, Any]]]:
    from headrace_cli.verbs import query

    bars = Progress(
        TextColumn("  {task.description:<24}"), BarColumn(), MofNCompleteColumn(), console=console.OUT,
        disable=not console.OUT.is_terminal,
    )  # fmt: skip
    with bars:
        sending, landing = (bars.add_task(name, total=events) for name in ("sent and acknowledged", "in the lake"))
        tally = asyncio.run(_send(record["services"][protocol]["listen"], protocol, events, bars, sending))
        if tally.problems:
            raise CommandError(f"{next(iter(tally.problems))}.")
        on_topic, quarantined = _count_on_topics(record["kafka"])
        deadline = time.monotonic() + LANDING_SECONDS
        counted = {"n": 0, "ids": 0}
        while counted["n"] < events and time.monotonic() < deadline:
            with suppress(HeadraceError):  # there is no table yet
                (counted,) = query.run(
                    "select count(*) as n, count(distinct event_id) as ids from events", record["lake"]
                )
                bars.update(landing, completed=counted["n"])
            time.sleep(0.3)
        rows = query.run(
            "select strftime(event_time, '%H:%M:%S.%g') as time, stream, coalesce(body, try(decode(payload))) as body"
            " from events order by event_time limit 5",
            record["lake"],
        )
    took = f"{tally.acknowledged} events over {CONNECTIONS} connections acknowledged in {tally.took:.1f} s"
    console.line(protocol, "note", took)
    return DemoCounts(tally.sent, tally.acknowledged, on_topic, quarantined, counted["n"], counted["ids"]), rows


async def _send(listen: str, protocol: str, events: int, bars: Progress, bar: TaskID) -> Tally:
    host, _, port = listen.rpartition(":")
    tally = Tally()
    sending = asyncio.create_task(
        run(Target(protocol, host, int(port)), ShopSource(events), tally, asyncio.Event(), connections=CONNECTIONS)
    )
    while not sending.done():
        await asyncio.wait({sending}, timeout=0.1)
        bars.update(bar, completed=tally.acknowledged)
    await sending
    return tally


def _count_on_topics(bootstrap: str) -> tuple[int, int]:
    """Return the records on the events and on the quarantine topic, counted from first to last offset."""
    from headrace_cli.lake.against_kafka import held_at

    settings = KafkaSettings(bootstrap_servers=bootstrap)
    counts = dict.fromkeys((settings.events_topic, settings.quarantine_topic), 0)
    for (topic, _), (first, end) in held_at(settings, counts).items():
        counts[topic] += end - first
    return counts[settings.events_topic], counts[settings.quarantine_topic]


def _show(counts: DemoCounts, rows: list[dict[str, Any]]) -> None:
    table = console.table("", ">")
    for name, value in (
        ("sent", counts.sent),
        ("acknowledged", counts.acknowledged),
        ("on the topic", counts.on_topic),
        ("in the lake", counts.in_lake),
        ("of them distinct ids", counts.distinct),
        ("quarantined", counts.quarantined),
    ):
        table.add_row(name, f"{value:,}")
    console.OUT.print()
    console.OUT.print(table)
    if rows:
        sample = console.table(*rows[0])
        for row in rows:
            sample.add_row(*(str(value) for value in row.values()))
        console.OUT.print()
        console.OUT.print(sample)
    console.OUT.print()
