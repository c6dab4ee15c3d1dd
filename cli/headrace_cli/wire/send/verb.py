"""``headrace send``, and how a run's events are found again in the lake."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

# ruff: noqa: S608  (the SQL is assembled from constants, numbers and a run's own hex digits)
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer
from headrace_reader.address import LakeAddress, located
from headrace_reader.text import printable
from rich.live import Live
from rich.text import Text

from headrace_cli.ground import DEFAULT_STATE, EXIT_FAILED, CommandError
from headrace_cli.operating.records import parse_span
from headrace_cli.verbs import console, query
from headrace_cli.verbs.options import CaOption, LakeOption, StateOption, examples
from headrace_cli.wire.send.connections import Connection, Tally
from headrace_cli.wire.send.source import EventSource, LineSource, RateSource
from headrace_cli.wire.target import Target, client_of, target_of

ANSWER_SECONDS: Final = 60.0
"""Time that a receiver has for each acknowledgement."""
PATIENCE: Final = 120.0
"""Seconds without another event in the lake after which no more is waited for."""
LISTED: Final = 10
"""Most numbers of missing or double events that are named."""
_AGAIN: Final = 1.0


@dataclass(frozen=True)
class LandedEvents:
    """The events of a run in the lake: `found` events, each counted once; of the acknowledged ones, `missing` are not there.

    `double`: events with more than one row. `examples`: some numbers of either.
    """

    found: int
    missing: int
    double: int
    missing_examples: Sequence[int] = ()
    double_examples: Sequence[int] = ()

    @property
    def fine(self) -> bool:
        return not self.missing and not self.double

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "in the lake", f"{self.found:,}"
        yield "missing, double", f"{self.missing:,}, {self.double:,}"

    def problems(self) -> Iterator[str]:
        for number, what, some in (
            (self.missing, "were acknowledged and are not in the lake", self.missing_examples),
            (self.double, "are in the lake more than once", self.double_examples),
        ):
            if number:
                named = ", ".join(map(str, some))
                yield f"{number:,} events {what}: number {named}{' …' if number > len(some) else ''}."


def _of(run: str) -> str:
    """Return the run's events: `n`, their numbers. However a client spaces its JSON, the run's name is in it."""
    text = "coalesce(cast(body as varchar), try(decode(payload)))"
    return f"select cast(json_extract_string({text}, '$.headrace.n') as bigint) as n from events where contains({text}, '{run}')"


def _outside(open_frames: Sequence[range]) -> str:
    """Return the condition on a number `i` that it is not of one of these frames."""
    if not open_frames:
        return "true"
    values = ", ".join(f"({numbers.start}, {numbers.stop})" for numbers in open_frames)
    return f"not exists (select 1 from (values {values}) u(a, b) where i >= a and i < b)"


def look(lake: LakeAddress, run: str, tally: Tally) -> LandedEvents:
    """Wait until the acknowledged events are in the lake, or no more come for `PATIENCE`. Raises `CommandError`."""
    best, since = -1, time.monotonic()
    waited = _outside(tally.open)
    while _count(lake, run, waited) < tally.acknowledged:
        found = _count(lake, run)
        if found > best:
            best, since = found, time.monotonic()
        if time.monotonic() - since > PATIENCE:
            break
        time.sleep(_AGAIN)
    found = _count(lake, run)
    there = f"select n from ({_of(run)}) where n is not null"
    missing = f"select i from range({tally.sent}) t(i) where i not in ({there}) and {_outside(tally.open)}"
    double = f"select n as i from ({_of(run)}) group by n having count(*) > 1"
    counts = [query.run(f"select count(*) as n from ({sql})", lake)[0]["n"] for sql in (missing, double)]
    some = [[row["i"] for row in query.run(f"{sql} order by i limit {LISTED}", lake)] for sql in (missing, double)]
    return LandedEvents(max(found, 0), counts[0], counts[1], some[0], some[1])


def _count(lake: LakeAddress, run: str, condition: str = "true") -> int:
    """Return different events of the run whose number `i` meets the condition; -1 before the tables exist."""
    events = f"select n as i from ({_of(run)})"
    try:
        return int(query.run(f"select count(distinct i) as n from ({events}) where {condition}", lake)[0]["n"])
    except CommandError:
        return -1


_EVERY: Final = 0.25


app = typer.Typer()


@app.command(
    epilog=examples(
        "tail -f access.log | ./headrace send forward",
        "./headrace send lumberjack --rate 1000 --for 30s --size 300 --connections 4 --then-check",
        "./headrace send courier logs.example.org:5043 --ca ca.pem < events.jsonl",
    )
)
def send(
    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="courier, forward, logjam, lumberjack or segment.")
    ],
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A receiver; default: the stack in --state.")] = "",
    state: StateOption = DEFAULT_STATE,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=0.1, max=10_000_000, help="Send N events a second; default: lines of standard input."
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="With --rate: for this time, as 30s or 5m (10s).")
    ] = "",
    size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1_000_000, help="With --rate: bytes of an event's JSON, about (300)."),
    ] = None,
    connections: Annotated[int, typer.Option(min=1, max=1000, help="Connections, which share the events.")] = 1,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Most events in a frame.")] = 100,
    ca: CaOption = "",
    then_check: Annotated[
        bool,
        typer.Option("--then-check", help="Then find every event in the lake, and say which are missing or double."),
    ] = False,
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Send lines or made-up events, and count the acknowledgements. Exit status 1 if one is missing. Ctrl-C ends it."""
    client_of(protocol)
    if lake is not None and not then_check:
        raise CommandError("--lake: only --then-check looks there.", status=2)
    if rate is None and (duration or size):
        raise CommandError("--for and --size: only events that are made up (--rate N) have them.", status=2)
    seconds, receiver = parse_span(duration or "10s", "--for"), target_of(protocol, state, target, ca)
    tables = located(lake or state / "lake") if then_check else None
    source = LineSource() if rate is None else RateSource(rate, seconds, size or 300)
    return sent(receiver, source, connections, batch, lake=tables, as_json=as_json)


def sent(
    target: Target,
    source: EventSource,
    connections: int = 1,
    batch: int = 100,
    *,
    lake: LakeAddress | None = None,
    as_json: bool = False,
) -> int:
    """Send all that `source` has, and print the result. Return 0 if all was acknowledged (with `lake`: and landed once), else 1.

    Raises `CommandError` if nothing could be sent at all.
    """
    tally = asyncio.run(watched(target, source, connections, batch))
    if source.problem:
        tally.problems[source.problem] += 1
        tally.complete = False
    if not tally.sent and tally.problems:
        raise CommandError(f"{next(iter(tally.problems))}.")
    landed = None
    unknown = False
    if lake is not None:
        try:
            landed = look(lake, source.run, tally)
        except KeyboardInterrupt:
            unknown = True
    if as_json:
        sys.stdout.write(json.dumps(_described(tally, source.run, landed)) + "\n")
    else:
        _print(tally, source.run, landed)
    if unknown:
        console.ERR.print(Text("Ctrl-C: the lake was not looked through.", style="red"))
    fine = tally.fine and not unknown and (landed is None or landed.fine)
    return 0 if fine else EXIT_FAILED


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
    """Send all that `source` has, and show on a terminal how far it is. Ctrl-C ends it."""
    tally, stop = Tally(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    working = asyncio.create_task(run(target, source, tally, stop, connections, batch))
    live = Live(console=console.ERR, auto_refresh=False, transient=True) if console.ERR.is_terminal else nullcontext()
    with live as shown:
        while not working.done():
            await asyncio.wait({working}, timeout=_EVERY)
            if shown is not None:
                shown.update(Text(_line(tally)), refresh=True)
    await working
    return tally


def _line(tally: Tally) -> str:
    p50, p99 = (console.duration(tally.quantile(share)) for share in (0.5, 0.99))
    return (
        f"sent {tally.sent:,}  acknowledged {tally.acknowledged:,}  in flight {tally.in_flight:,}  p50 {p50}  p99 {p99}"
    )


def _described(tally: Tally, run: str, landed: LandedEvents | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {
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
    return found if landed is None else {**found, "lake": asdict(landed)}


def _print(tally: Tally, run: str, landed: LandedEvents | None) -> None:
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
        *(landed.rows() if landed is not None else ()),
    ):
        table.add_row(name, value)
    console.OUT.print(table)
    for problem, times in tally.problems.items():
        console.ERR.print(Text(f"{printable(problem)}{f' ({times} connections)' if times > 1 else ''}", style="red"))
    if tally.in_flight:
        console.ERR.print(Text(f"{tally.in_flight:,} of {tally.sent:,} events were not acknowledged.", style="red"))
    if tally.problems and not tally.complete:
        console.ERR.print(Text("Not all was sent.", style="red"))
    for problem in landed.problems() if landed is not None else ():
        console.ERR.print(Text(problem, style="red"))
