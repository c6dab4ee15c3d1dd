"""Lands a steady stream for minutes: measures how fresh the lake is, and whether memory and lag stay flat.

The freshness of an event is the time from its Kafka timestamp until the job says that its batch is committed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headrace_cli.verbs import query
from headrace_common.operations.settings import KafkaSettings
from headrace_common.record.event import deterministic_id
from headrace_lake.configuration.settings import LakeSettings
from headrace_reader.proof import exactly_once
from headrace_reader.tables import connect

from benchmarks.records import Sent, headers, producing, send
from benchmarks.stage import say, stage, used, write
from tests.lake.lander import Lander

_defaults: Final = LakeSettings()
PARTITIONS: Final = 4
TICK: Final = 0.1  # seconds between two sends
LOOK: Final = 5.0  # seconds between two looks at memory and lag


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=5_000, help="events a second")
    parser.add_argument("--trigger", type=float, default=_defaults.trigger, help="the job's LAKE__TRIGGER, seconds")
    parser.add_argument("--delay", type=float, default=_defaults.delay, help="its LAKE__DELAY")
    parser.add_argument("--warm", type=float, default=2, help="earlier minutes that do not count")


class Source:
    """Sends at a steady rate in its own thread, whatever the job does."""

    def __init__(self, kafka: KafkaSettings, rate: int) -> None:
        self._kafka = kafka
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.sent = 0
        self.ticks: list[float] = []
        """The Unix time of each send."""

    def start(self) -> None:
        """Starts sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stops sending; returns when everything sent is stored."""
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        loop, events = asyncio.get_running_loop(), round(self._rate * TICK)
        began, turn = loop.time(), 0
        async with producing(self._kafka) as producer:
            while not self._stop.is_set():
                self.ticks.append(time.time())
                now = int(self.ticks[-1] * 1000)
                made = [self._event(turn, index, now) for index in range(events)]
                await send(producer, self._kafka.events_topic, turn % PARTITIONS, made)
                self.sent += events
                turn += 1
                await asyncio.sleep(max(0.0, began + turn * TICK - loop.time()))

    def _event(self, turn: int, index: int, now_ms: int) -> Sent:
        number = self.sent + index
        value = b'{"number":%d,"text":"%s","status":200}' % (number, b"all the king's horses " * (8 + number % 5))
        return Sent(now_ms, value, headers(deterministic_id("forward", b"%d" % number), turn, index, now_ms))


def run(options: argparse.Namespace) -> int:
    """Runs the trial. The exit status is 1 if a row is wrong."""
    with stage(PARTITIONS) as here:
        source = Source(here.kafka, options.rate)
        job = here.start(trigger=options.trigger, delay=options.delay, batch_records=500_000)
        job.next("landing")
        source.start()
        looks, commits = _watch(job, source, (options.warm + options.minutes) * 60)
        source.stop()
        commits += _rest(job, source.sent, commits)
        job.terminate()
        job.wait()
        proof = [row for row in exactly_once(here.lake) if not row["ok"]]
        landed = query.run("select count(*) as n from events", here.lake)[0]["n"]
        if proof or landed != source.sent:
            say(f"WRONG: {source.sent} sent, {landed} landed, {proof}")
            return 1
        fresh = _freshness(here.lake, commits, options.warm * 60)
    steady = [look for look in looks if look["second"] >= options.warm * 60]
    fifth = max(1, len(steady) // 5)
    rows: list[tuple[str, object]] = [
        ("events a second", f"{options.rate:,}, {options.minutes:g} minutes after {options.warm:g} that do not count"),
        ("events sent and landed, each once", f"{source.sent:,}"),
        ("freshness p50, p95, p99, most (s)", ", ".join(f"{value:.1f}" for value in fresh)),
        ("memory of driver and JVM, first fifth (MB, median)", f"{_median(steady[:fifth], 'memory'):.0f}"),
        ("… last fifth", f"{_median(steady[-fifth:], 'memory'):.0f}"),
        ("lag, first fifth (events, median)", f"{_median(steady[:fifth], 'lag'):.0f}"),
        ("… last fifth", f"{_median(steady[-fifth:], 'lag'):.0f}"),
        ("CPU of driver and JVM (cores)", f"{_cores(steady):.2f}"),
    ]
    rows.append(("CPU-s of driver and JVM per million events", f"{_cores(steady) / options.rate * 1e6:.1f}"))
    title = (
        f"{options.rate:,} events a second for {options.minutes:g} minutes, LAKE__TRIGGER {options.trigger:g} s,"
        f" LAKE__DELAY {options.delay:g} s."
    )
    name = f"endurance-steady-{options.rate}-{options.delay:g}"
    write(name, title, rows, by="benchmarks.endurance steady", dry=options.dry)
    return 0


def _watch(job: Lander, source: Source, seconds: float) -> tuple[list[dict[str, float]], list[tuple[int, int, float]]]:
    """Memory, CPU and lag every few seconds; and (batch, records, Unix time of its log line) of every batch."""
    commits: list[tuple[int, int, float]] = []
    looks = []
    seen, records = 0, 0
    began = due = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        for line in job.lines[seen:]:
            seen += 1
            if line["event"] == "landed":
                commits.append((line["batch"], line["records"], time.time()))
                records += line["records"]
        if now >= due:
            due += LOOK
            memory, cpu = used(job)
            looks.append({"second": now - began, "memory": memory, "cpu": cpu, "lag": source.sent - records})
            if len(looks) % 12 == 0:
                say(f"{now - began:.0f} s: {memory:.0f} MB, {source.sent - records:,} behind, {len(commits)} batches")
        if not job.alive():
            raise SystemExit(f"the job ended: {job.tail()}")
        time.sleep(0.02)
    return looks, commits


def _rest(job: Lander, sent: int, commits: Sequence[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """The remaining batches, until everything sent has landed."""
    known = {batch for batch, _, _ in commits}
    records = sum(count for _, count, _ in commits)
    rest = []
    while records < sent:
        line = job.next("landed")
        if line["batch"] not in known:
            rest.append((line["batch"], line["records"], time.time()))
            records += line["records"]
    return rest


def _freshness(lake: Path, commits: Sequence[tuple[int, int, float]], warm: float) -> list[float]:
    """p50, p95, p99 and maximum in seconds, of the events that came after `warm` seconds."""
    with connect(lake) as connection:
        values = ", ".join(f"({batch}, {moment})" for batch, _, moment in commits)
        row: Any = connection.execute(
            f"""
            with said(batch, moment) as (values {values}),
            fresh as (
                select s.moment - epoch(e.received_time) as age, epoch(e.received_time) as came
                from events e asof join (from batches where "from" < "to") b
                    on e.topic_id = b.topic_id and e."partition" = b."partition" and e."offset" >= b."from"
                join said s on s.batch = b.batch)
            select quantile_cont(age, [0.5, 0.95, 0.99]), max(age) from fresh
            where came >= (select min(came) from fresh) + {warm}"""
        ).fetchone()
    return [*row[0], row[1]]


def _median(looks: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(look[name] for look in looks)


def _cores(looks: Sequence[dict[str, float]]) -> float:
    return (looks[-1]["cpu"] - looks[0]["cpu"]) / max(1.0, looks[-1]["second"] - looks[0]["second"])
