"""A run of `send`: its connections, and its result."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from headrace_reader.text import printable
from rich.text import Text

from headrace_cli import console
from headrace_cli.ground import EXIT_FAILED, CommandError
from headrace_cli.wire.connections import Connection, Tally
from headrace_cli.wire.source import EventSource
from headrace_cli.wire.target import Target

ANSWER_SECONDS: Final = 60.0
"""Time that a receiver has for each acknowledgement."""


def sent(
    target: Target,
    source: EventSource,
    connections: int = 1,
    batch: int = 100,
    *,
    as_json: bool = False,
) -> int:
    """Send all that `source` has, and print the result. Return 0 if all was acknowledged, else 1.

    Raises `CommandError` if nothing could be sent at all.
    """
    tally = asyncio.run(watched(target, source, connections, batch))
    if source.problem:
        tally.problems[source.problem] += 1
        tally.complete = False
    if not tally.sent and tally.problems:
        raise CommandError(f"{next(iter(tally.problems))}.")
    if as_json:
        sys.stdout.write(json.dumps(_described(tally, source.run)) + "\n")
    else:
        _print(tally, source.run)
    return 0 if tally.fine else EXIT_FAILED


async def run(
    target: Target,
    source: EventSource,
    tally: Tally,
    stop: asyncio.Event,
    connections: int = 1,
    batch: int = 100,
    patience: float | None = None,
) -> None:
    """Send all that `source` has over some connections, until `stop`; `tally` counts. Never raises for what servers do."""
    common = (target, source, tally, batch, patience or ANSWER_SECONDS)
    await asyncio.gather(*(Connection(*common).run(stop) for _ in range(connections)))
    tally.took = time.monotonic() - tally.began


async def watched(target: Target, source: EventSource, connections: int, batch: int = 100) -> Tally:
    """Send all that `source` has. Ctrl-C ends it."""
    tally, stop = Tally(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    await run(target, source, tally, stop, connections, batch)
    return tally


def _described(tally: Tally, run: str) -> Mapping[str, Any]:
    return {
        "run": run,
        "sent": tally.sent,
        "acknowledged": tally.acknowledged,
        "frames": tally.frames,
        "bytes": tally.size,
        "seconds": round(tally.took, 3),
        "p50": tally.quantile(0.5),
        "p99": tally.quantile(0.99),
        "problems": dict(tally.problems),
    }


def _print(tally: Tally, run: str) -> None:
    table = console.table("", ">")
    rate = tally.acknowledged / tally.took if tally.took else 0.0
    for name, value in (
        ("run", run),
        ("sent", f"{tally.sent:,}"),
        ("acknowledged", f"{tally.acknowledged:,}"),
        ("not acknowledged", f"{tally.in_flight:,}"),
        ("frames", f"{tally.frames:,} ({console.format_size(tally.size)})"),
        ("took", f"{tally.took:.1f} s ({rate:,.0f} a second)"),
        ("p50, p99 of a frame", f"{console.duration(tally.quantile(0.5))}, {console.duration(tally.quantile(0.99))}"),
    ):
        table.add_row(name, value)
    console.OUT.print(table)
    for problem, times in tally.problems.items():
        console.ERR.print(Text(f"{printable(problem)}{f' ({times} connections)' if times > 1 else ''}", style="red"))
    if tally.in_flight:
        console.ERR.print(Text(f"{tally.in_flight:,} of {tally.sent:,} events were not acknowledged.", style="red"))
    if tally.problems and not tally.complete:
        console.ERR.print(Text("Not all was sent.", style="red"))
