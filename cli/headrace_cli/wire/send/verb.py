"""``headrace send``, and how a run's events are found again in the lake."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

# ruff: noqa: S608  (the SQL is assembled from constants, numbers and a run's own hex digits)
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace_common.session.client import Compression
from headrace_reader.address import LakeAddress, located
from headrace_reader.text import printable
from rich.live import Live
from rich.text import Text

from headrace_cli.ground import EXIT_FAILED, CommandError
from headrace_cli.verbs import console, query
from headrace_cli.wire.send.connections import Connection, Tally
from headrace_cli.wire.send.source import LineSource, RateSource, Source
from headrace_cli.wire.target import Security, Target, client_of, target_of

PATIENCE: Final = 120.0
"""Seconds without another event in the lake after which no more is waited for."""
LISTED: Final = 10
"""Most numbers of missing or double events that are named."""
_AGAIN: Final = 1.0


@dataclass(frozen=True)
class Landed:
    """The events of a run in the lake: `found` events, each counted once; of the acknowledged ones, `missing` are not there.

    `double`: events of which there is more than one row. `examples`: some numbers of either.
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
        for number, what, examples in (
            (self.missing, "were acknowledged and are not in the lake", self.missing_examples),
            (self.double, "are in the lake more than once", self.double_examples),
        ):
            if number:
                named = ", ".join(map(str, examples))
                yield f"{number:,} events {what}: number {named}{' …' if number > len(examples) else ''}."


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


def look(lake: LakeAddress, run: str, tally: Tally) -> Landed:
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
    return Landed(max(found, 0), counts[0], counts[1], some[0], some[1])


def _count(lake: LakeAddress, run: str, condition: str = "true") -> int:
    """Return different events of the run whose number `i` meets the condition; -1 if there are no tables yet."""
    events = f"select n as i from ({_of(run)})"
    try:
        return int(query.run(f"select count(distinct i) as n from ({events}) where {condition}", lake)[0]["n"])
    except CommandError:
        return -1


_EVERY: Final = 0.25


@dataclass(frozen=True)
class SendOptions:
    """`rate`: events a second, None for lines of `file` (None: standard input). `lake`: where `check` looks. Times in seconds."""

    target: str = ""
    file: Path | None = None
    rate: float | None = None
    duration: float = 10.0
    size: int = 300
    connections: int = 1
    batch: int = 100
    security: Security = field(default_factory=Security)
    compression: Compression | None = None
    timeout: float = 60.0
    lake: LakeAddress | None = None
    as_json: bool = False


def send(protocol: str, state: Path, options: SendOptions) -> int:
    """Send, and print what became of it. Return 0 if all was acknowledged (with `lake`: and landed once), else 1.

    Raises `CommandError` for what makes no sense, and if nothing could be sent at all.
    """
    client_of(protocol)
    if options.rate is not None and options.file is not None:
        raise CommandError("--rate and --file: name one of them.", status=2)
    target = target_of(protocol, state, options.target, options.security)
    lake = None if options.lake is None else located(options.lake)
    with ExitStack() as stack:
        source = _opened(options, stack)
        tally = asyncio.run(watched(target, source, options))
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
    if options.as_json:
        sys.stdout.write(json.dumps(_described(tally, source.run, landed)) + "\n")
    else:
        _print(tally, source.run, landed)
    fine = tally.fine and not unknown and (landed is None or landed.fine)
    return 0 if fine else EXIT_FAILED


def _opened(options: SendOptions, stack: ExitStack) -> Source:
    if options.rate is not None:
        return RateSource(options.rate, options.duration, options.size)
    if options.file is None:
        return LineSource()
    try:
        return LineSource(stack.enter_context(options.file.open("rb")))
    except OSError as error:
        raise CommandError(f"--file {options.file}: {error.strerror}.", status=2) from error


async def run(
    target: Target,
    source: Source,
    tally: Tally,
    stop: asyncio.Event,
    *,
    connections: int = 1,
    batch: int = 100,
    patience: float = 60.0,
    compression: Compression | None = None,
) -> None:
    """Send all that `source` has over some connections, until `stop`; `tally` counts. Never raises for what servers do."""
    common = (target, source, tally, batch, patience, compression)
    await asyncio.gather(*(Connection(*common).run(stop) for _ in range(connections)))
    tally.took = time.monotonic() - tally.began


async def watched(target: Target, source: Source, options: SendOptions) -> Tally:
    """Send all that `source` has, and show on a terminal how far it is. Ctrl-C ends it."""
    tally, stop = Tally(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    working = asyncio.create_task(
        run(
            target, source, tally, stop,
            connections=options.connections, batch=options.batch, patience=options.timeout, compression=options.compression,
        )
    )  # fmt: skip
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


def _described(tally: Tally, run: str, landed: Landed | None) -> Mapping[str, Any]:
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


def _print(tally: Tally, run: str, landed: Landed | None) -> None:
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
