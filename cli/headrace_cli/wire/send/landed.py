"""Finds a run's events in the lake again."""

# ruff: noqa: S608  (the SQL is assembled from constants, numbers and a run's own hex digits)
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headrace_cli.ground import CommandError
from headrace_cli.lake.address import LakeAddress
from headrace_cli.verbs import query
from headrace_cli.wire.send.connections import Tally

PATIENCE: Final = 120.0
"""Seconds without another event in the lake after which no more is waited for."""
LISTED: Final = 10
"""Most numbers of missing or double events that are named."""
_EVERY: Final = 1.0


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
        time.sleep(_EVERY)
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
