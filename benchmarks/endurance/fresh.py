"""Asks as `query --fresh` does, again and again while events land seldom: measures how soon a query shows an event.

The freshness of an event is the time from its Kafka timestamp to the end of the first query that shows it. One query follows
another.
"""

from __future__ import annotations

import argparse
import statistics
import time

from headrace_reader.fresh.tail import Tail
from headrace_reader.fresh.union import add_unlanded
from headrace_reader.tables import connect, rows

from benchmarks.endurance.steady import PARTITIONS, TICK, Source
from benchmarks.stage import Stage, stage, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--delay", type=float, default=60, help="the job's LAKE__DELAY, seconds")


def run(options: argparse.Namespace) -> int:
    """Runs the trial. Ends with an error if a query shows an event twice, or the tables alone."""
    with stage(PARTITIONS) as here:
        source = Source(here.kafka, options.rate)
        job = here.start(delay=options.delay, batch_records=500_000)
        job.next("landing")
        source.start()
        fresh, took = _ask(here, source, round(options.rate * TICK), options.minutes * 60)
        source.stop()
    table: list[tuple[str, object]] = [
        ("queries, each event once in each", f"{len(took):,}"),
        ("freshness p50, p99, most (s)", _spread(fresh)),
        ("time of a query p50, p99, most (s)", _spread(took)),
    ]
    title = f"{options.rate:,} events a second for {options.minutes:g} minutes, LAKE__DELAY {options.delay:g} s."
    name = f"endurance-fresh-{options.rate}-{options.delay:g}"
    write(name, title, table, by="benchmarks.endurance fresh", dry=options.dry)
    return 0


def _ask(here: Stage, source: Source, together: int, seconds: float) -> tuple[list[float], list[float]]:
    """Returns the freshness of each `together` events, which the source sends as one, and how long each query took."""
    fresh, took, seen = list[float](), list[float](), 0
    until, tail = time.monotonic() + seconds, Tail()
    while time.monotonic() < until:
        began = time.time()
        with connect(here.lake) as connection:
            why = add_unlanded(connection, here.kafka, tail)
            (found,) = rows(connection, "select count(*) as n, count(distinct event_id) as ids from events")
        if why or found["n"] != found["ids"] or not here.jobs[-1].alive():
            raise SystemExit(f"{why or found}; {here.jobs[-1].tail()}")
        ended = time.time()
        took.append(ended - began)
        shown = found["n"] // together
        fresh += [ended - at for at in source.ticks[seen:shown]]
        seen = max(seen, shown)
    return fresh, took


def _spread(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"{cuts[49]:.2f}, {cuts[98]:.2f}, {max(values):.2f}"
