"""``demo``: starts a stack, sends events over a real protocol, and compares the counts of every step."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headrace_cli.ground import EXIT_FAILED, CommandError

CONNECTIONS: Final = 4
QUARANTINED: Final = "quarantined"
LANDING_SECONDS: Final = 300.0
"""Time limit of the landing job, from the last acknowledgement on. On a busy machine its first batch takes minutes."""
SAMPLE: Final = (
    "select event_time, stream, coalesce(body, try(decode(payload))) as body from events order by all limit 5"
)
NEXT: Final = """
Next, use your own clients:

  ./headrace up                           # starts the stack; Ctrl-C stops it
  ./headrace snippet                      # lists the clients whose configuration it prints
  ./headrace query --named exactly-once   # proves what has landed"""

app = typer.Typer()


@app.command()
def demo(
    events: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many events to send.")] = 10_000,
    protocol: Annotated[str, typer.Option(help="What to send with; a wrong name is answered with all.")] = "forward",
) -> int:
    """Start a stack, send events through it and count them at every step."""
    from headrace_cli import console
    from headrace_cli.verbs import query
    from headrace_cli.wire.target import client_of

    client_of(protocol)
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        with _stack(folder / "state") as record:
            counts = _send_and_count(record, events, protocol)
            query.query(SAMPLE, lake=record["lake"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = console.table("", ">")
    for step, count in counts.items():
        table.add_row(step, f"{count:,}")
    console.OUT.print("", table, "", sep="\n")
    agrees = all(count == (0 if step == QUARANTINED else events) for step, count in counts.items())
    console.line("demo", "good" if agrees else "bad", f"{time.monotonic() - began:.0f} s")
    if not agrees:
        console.ERR.print("headrace: the counts differ.")
        return EXIT_FAILED
    print(NEXT)
    return 0


@contextmanager
def _stack(path: Path) -> Iterator[dict[str, Any]]:
    """Run a stack on free ports. It ends with the block, and also when this process is killed."""
    from headrace_common.operations.settings import environment, own_environment

    from headrace_cli import console
    from headrace_cli.machine.jars import REPOSITORY_VARIABLE
    from headrace_cli.stack.state import StateFolder
    from headrace_cli.verbs.down import down
    from headrace_cli.verbs.up import start

    state = StateFolder(path)
    others = own_environment().keys() - {REPOSITORY_VARIABLE}  # settings of another stack
    kept = {name: value for name, value in os.environ.items() if name not in others}
    try:
        yield start(state, ["--any-port", "--no-live"], tied=True, variables=kept | environment("lake", trigger=0.5))
    except Exception:
        for log in sorted(state.logs.glob("*.log")):  # before the folder is deleted
            for row in log.read_text(errors="replace").splitlines()[-8:]:
                console.ERR.print(f"{log.stem:<10} | {row}", markup=False)
        raise
    finally:
        console.line("stack", "note", "stopping")
        down(state.path)


def _send_and_count(record: dict[str, Any], events: int, protocol: str) -> dict[str, int]:
    """Return how many events have reached each step."""
    from headrace_common.operations.errors import HeadraceError
    from headrace_common.operations.settings import KafkaSettings
    from headrace_reader.against_kafka import held

    from headrace_cli import console
    from headrace_cli.verbs import query
    from headrace_cli.wire import sending
    from headrace_cli.wire.source import ShopSource
    from headrace_cli.wire.target import Target, parse_address

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
    deadline, landed = time.monotonic() + LANDING_SECONDS, {"n": 0, "ids": 0}
    with console.ERR.status("landing"):
        while landed["n"] < events and time.monotonic() < deadline:
            with suppress(HeadraceError):  # there is no table yet
                (landed,) = query.run("select count(*) n, count(distinct event_id) ids from events", record["lake"])
            time.sleep(0.3)
    return {
        "sent": tally.sent,
        "acknowledged": tally.acknowledged,
        "on the topic": stored[settings.events_topic],
        "in the lake": landed["n"],
        "of them distinct ids": landed["ids"],
        QUARANTINED: stored[settings.quarantine_topic],
    }
