"""A run of `send`: its connections, and its result."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import Any, Final

from headrace_reader.text import printable
from rich.text import Text

from headrace_cli import console
from headrace_cli.ground import CommandError
from headrace_cli.wire.connections import Connection, Tally
from headrace_cli.wire.source import EventSource
from headrace_cli.wire.target import Target

ANSWER_SECONDS: Final = 60.0
"""Time that a receiver has for each acknowledgement."""


def sent(
    target: Target, source: EventSource, connections: int = 1, batch: int = 100, *, as_json: bool = False
) -> Tally:
    """Send all that `source` has, print the result and return it. Raises `CommandError` if nothing could be sent at all."""
    tally = asyncio.run(_until_ctrl_c(target, source, connections, batch))
    if source.problem:
        tally.problems[source.problem] += 1
        tally.complete = False
    if not tally.sent and tally.problems:
        raise CommandError(f"{next(iter(tally.problems))}.")
    figures: dict[str, Any] = {  # times in seconds
        "run": tally.run,
        "sent": tally.sent,
        "acknowledged": tally.acknowledged,
        "frames": tally.frames,
        "bytes": tally.size,
        "seconds": round(tally.took, 3),
        "p50": tally.quantile(0.5),
        "p99": tally.quantile(0.99),
    }
    if as_json:
        print(json.dumps({**figures, "problems": dict(tally.problems)}))
    else:
        table = console.table("", ">")
        for name, value in figures.items():
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
        console.OUT.print(table)
        for problem, times in tally.problems.items():
            many = f" ({times} connections)" if times > 1 else ""
            console.ERR.print(Text(f"{printable(problem)}{many}", style="red"))
        if not tally.fine:
            left = "" if tally.complete else ", and not all was sent"
            console.ERR.print(Text(f"{tally.in_flight:,} events were not acknowledged{left}.", style="red"))
    return tally


async def run(
    target: Target, source: EventSource, connections: int = 1, batch: int = 100, patience: float | None = None
) -> Tally:
    """Send all that `source` has over some connections. Never raises for what servers do."""
    tally, began = Tally(source.run), time.monotonic()
    common = (target, source, tally, batch, patience or ANSWER_SECONDS)
    await asyncio.gather(*(Connection(*common).run() for _ in range(connections)))
    tally.took = time.monotonic() - began
    return tally


async def _until_ctrl_c(target: Target, source: EventSource, connections: int, batch: int) -> Tally:
    """Send until Ctrl-C ends the source. A second one does not wait for the acknowledgements."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        source.stop()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, stop)
    return await run(target, source, connections, batch)
