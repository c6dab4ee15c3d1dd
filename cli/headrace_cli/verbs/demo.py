"""``demo``: starts a stack, sends events over a real protocol, and compares the counts of every step."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings, environment, own_environment
from headrace_reader.against_kafka import held
from headrace_reader.tables import Row
from rich.text import Text

from headrace_cli import console
from headrace_cli.ground import EXIT_FAILED, CommandError
from headrace_cli.machine.jars import REPOSITORY_VARIABLE
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import query
from headrace_cli.verbs.down import down
from headrace_cli.verbs.snippet import PORTS
from headrace_cli.verbs.up import start
from headrace_cli.wire import sending
from headrace_cli.wire.source import ShopSource
from headrace_cli.wire.target import Target, client_of, parse_address

CONNECTIONS: Final = 4
QUARANTINED: Final = "quarantined"
LANDING_SECONDS: Final = 300.0
"""Time limit of the landing job, from the last acknowledgement on. On a busy machine its first batch takes minutes."""


app = typer.Typer()


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many events to send.")] = 10_000,
    protocol: Annotated[
        str, typer.Option(help="The protocol to send with: courier, forward, logjam, lumberjack or segment.")
    ] = "forward",
) -> int:
    """Start a stack, send events through it and count them at every step."""
    client_of(protocol)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        with _stack(StateFolder(folder / "state")) as record:
            counts, rows = _send_and_count(record, events, protocol)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _show(counts, rows)
    agrees = all(count == (0 if step == QUARANTINED else events) for step, count in counts.items())
    console.line("demo", "good" if agrees else "bad", f"{time.monotonic() - began:.0f} s")
    if not agrees:
        console.ERR.print("headrace: the counts differ.")
        return EXIT_FAILED
    console.OUT.print()
    console.OUT.print(
        f"Next, use your own clients: point them at port {PORTS[protocol]}.\n\n"
        "  ./headrace up                           # starts the stack; Ctrl-C stops it\n"
        "  ./headrace snippet                      # lists the clients whose configuration it prints\n"
        f'  ./headrace query "{console.EXAMPLE_QUERY}"\n'
        "  ./headrace query --named exactly-once   # proves what has landed",
        markup=False,
    )
    return 0


@contextmanager
def _stack(state: StateFolder) -> Iterator[dict[str, Any]]:
    """Run a stack on free ports. It ends with the block, and also when this process is killed."""
    others = own_environment().keys() - {REPOSITORY_VARIABLE}  # settings of another stack
    kept = {name: value for name, value in os.environ.items() if name not in others}
    variables = {**kept, **environment("lake", trigger=0.5)}
    try:
        yield start(state, ["--any-port", "--no-live"], tied=True, variables=variables)
    except Exception:
        _show_logs(state)
        raise
    finally:
        console.line("stack", "note", "stopping")
        down(state.path)


def _show_logs(state: StateFolder) -> None:
    """Show the last lines of each log before the folder is deleted."""
    for log in sorted(state.logs.glob("*.log")):
        for row in log.read_text(errors="replace").splitlines()[-8:]:
            console.ERR.print(f"{log.stem:<10} | {row}", markup=False)


def _send_and_count(record: dict[str, Any], events: int, protocol: str) -> tuple[dict[str, int], list[Row]]:
    """Return how many events have reached each step, and the first rows."""
    target = Target(protocol, *parse_address(record["services"][protocol]["address"]))
    tally = asyncio.run(sending.run(target, ShopSource(events), CONNECTIONS))
    if not tally.fine:
        raise CommandError(f"{next(iter(tally.problems), 'Not all was sent')}.")
    took = f"{tally.acknowledged} events over {CONNECTIONS} connections acknowledged in {tally.took:.1f} s"
    console.line(protocol, "note", took)
    settings = KafkaSettings(bootstrap_servers=record["kafka"])
    stored = dict.fromkeys((settings.events_topic, settings.quarantine_topic), 0)
    for (topic, _), (first, end) in held(settings, stored).items():
        stored[topic] += end - first
    deadline = time.monotonic() + LANDING_SECONDS
    counted = {"n": 0, "ids": 0}
    with console.ERR.status("landing"):
        while counted["n"] < events and time.monotonic() < deadline:
            with suppress(HeadraceError):  # there is no table yet
                (counted,) = query.run(
                    "select count(*) as n, count(distinct event_id) as ids from events", record["lake"]
                )
            time.sleep(0.3)
    rows = query.run(
        "select strftime(event_time, '%H:%M:%S.%g') as time, stream, coalesce(body, try(decode(payload))) as body"
        " from events order by event_time limit 5",
        record["lake"],
    )
    counts = {"sent": tally.sent, "acknowledged": tally.acknowledged, "on the topic": stored[settings.events_topic]}
    counts |= {"in the lake": counted["n"], "of them distinct ids": counted["ids"]}
    return {**counts, QUARANTINED: stored[settings.quarantine_topic]}, rows


def _show(counts: Mapping[str, int], rows: Sequence[Row]) -> None:
    table = console.table("", ">")
    for step, count in counts.items():
        table.add_row(step, f"{count:,}")
    sample = console.table("time", "stream", "~body")  # what breaks is what gives room
    for row in rows:
        sample.add_row(*(Text(str(value), no_wrap=True, overflow="ellipsis") for value in row.values()))
    for shown in (table, sample) if rows else (table,):
        console.OUT.print()
        console.OUT.print(shown)
    console.OUT.print()
