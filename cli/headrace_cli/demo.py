"""``demo``: a stack of its own, events sent over a real protocol, and every count side by side."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace_common.errors import HeadraceError
from headrace_common.settings import KafkaSettings, environment, own_environment
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace_cli import console
from headrace_cli.down import down
from headrace_cli.errors import EXIT_FAILED, CommandError
from headrace_cli.speakers import HOW_TO, SPEAKERS
from headrace_cli.stack import module
from headrace_cli.state import StateFolder
from headrace_cli.tether import tethered
from headrace_cli.toolchain import REPOSITORY_VARIABLE, jars
from headrace_cli.traffic import CONNECTIONS, send_events

READY_SECONDS: Final = 300.0
LANDING_SECONDS: Final = 90.0
"""How long the landing job gets after the last acknowledgement."""


@dataclass(frozen=True)
class Result:
    """How many events got how far."""

    sent: int
    acknowledged: int
    on_topic: int
    quarantined: int
    in_lake: int
    distinct: int

    @property
    def agrees(self) -> bool:
        return (
            self.sent == self.acknowledged == self.on_topic == self.in_lake == self.distinct and self.quarantined == 0
        )


def demo(events: int, protocol: str) -> int:
    """Exit status 0 if what was sent, acknowledged, stored and landed is the same number."""
    if protocol not in SPEAKERS:
        raise CommandError(f"demo does not speak {protocol}; it speaks: {', '.join(SPEAKERS)}.", status=2)
    began = time.monotonic()
    with console.fetching() as progress:
        for name in ("kafka", "spark"):
            jars(name, progress)
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    state = StateFolder(folder / "state")
    try:
        with _stack(state) as record:
            result, rows = _run(record, events, protocol)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _show(result, rows)
    console.line("demo", "good" if result.agrees else "bad", f"{time.monotonic() - began:.0f} s")
    if not result.agrees:
        console.ERR.print("headrace: the counts differ.")
        return EXIT_FAILED
    console.OUT.print()
    port, how_to = HOW_TO[protocol]
    console.OUT.print(
        f"Now with your own clients: ./headrace up, then point them at port {port}.\n\n{how_to}", markup=False
    )
    return 0


@contextmanager
def _stack(state: StateFolder) -> Iterator[dict[str, Any]]:
    """A running stack on free ports; it ends with the block, and when this process is killed."""
    state.make()
    ours = own_environment()  # settings for some other stack, but for where jars come from
    variables = {name: value for name, value in os.environ.items() if name not in ours or name == REPOSITORY_VARIABLE}
    variables.update(environment("lake", trigger=0.5))
    log = state.log("up")
    with log.open("wb") as output:
        process = subprocess.Popen(
            tethered([*module("headrace_cli"), "up", "--any-port", "--state", str(state.path)]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=variables,
        )
    try:
        yield _until_ready(state, process)
    except Exception:
        _show_logs(state)
        raise
    finally:
        console.line("stack", "note", "stopping")
        down(state.path)
        process.wait()


def _until_ready(state: StateFolder, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The supervisor's record, once everything is ready; each thing is told as it comes."""
    began = time.monotonic()
    told: set[str] = set()
    while time.monotonic() - began < READY_SECONDS:
        record = state.read_stack()
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
            raise CommandError("The stack stopped at its start.")
        time.sleep(0.1)
    raise CommandError(f"The stack was not ready within {READY_SECONDS:.0f} s.")


def _show_logs(state: StateFolder) -> None:
    """Before the folder goes: what its processes said last."""
    for log in sorted(state.logs.glob("*.log")):
        for row in log.read_text(errors="replace").splitlines()[-8:]:
            console.ERR.print(f"{log.stem:<10} | {row}", markup=False)


def _run(record: dict[str, Any], events: int, protocol: str) -> tuple[Result, list[dict[str, Any]]]:
    from headrace_cli import query

    bars = Progress(
        TextColumn("  {task.description:<24}"), BarColumn(), MofNCompleteColumn(), console=console.OUT,
        disable=not console.OUT.is_terminal,
    )  # fmt: skip
    with bars:
        listen = record["services"][protocol]["listen"]
        sending = bars.add_task("sent and acknowledged", total=events)
        began = time.monotonic()
        acknowledged = send_events(
            listen, events, lambda count: bars.update(sending, completed=count), SPEAKERS[protocol]
        )
        took = time.monotonic() - began
        on_topic, quarantined = asyncio.run(_on_topics(record["kafka"]))
        landing = bars.add_task("in the lake", total=events)

        def count() -> tuple[int, int]:
            try:
                (row,) = query.run("select count(*) as n, count(distinct event_id) as ids from events", record["lake"])
            except HeadraceError:
                return 0, 0  # no table yet
            bars.update(landing, completed=row["n"])
            return row["n"], row["ids"]

        in_lake, distinct = _until(count, events)
        rows = query.run(
            "select strftime(event_time, '%H:%M:%S.%g') as time, stream, body from events order by event_time limit 5",
            record["lake"],
        )
    console.line(protocol, "note", f"{acknowledged} events over {CONNECTIONS} connections acknowledged in {took:.1f} s")
    return Result(events, acknowledged, on_topic, quarantined, in_lake, distinct), rows


def _until(count: Callable[[], tuple[int, int]], wanted: int) -> tuple[int, int]:
    deadline = time.monotonic() + LANDING_SECONDS
    while True:
        counts = count()
        if counts[0] >= wanted or time.monotonic() > deadline:
            return counts
        time.sleep(0.3)


async def _on_topics(bootstrap: str) -> tuple[int, int]:
    """Records on the events and on the quarantine topic: what lies between their first and last offsets."""
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from headrace_common.kafka import describe

    settings = KafkaSettings(bootstrap_servers=bootstrap)
    topics = await describe(settings)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        counts = []
        for topic in topics:
            partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
            ends = await consumer.end_offsets(partitions)
            begins = await consumer.beginning_offsets(partitions)
            counts.append(sum(ends.values()) - sum(begins.values()))
        return counts[0], counts[1]
    finally:
        await consumer.stop()


def _show(result: Result, rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in (
        ("sent", result.sent),
        ("acknowledged", result.acknowledged),
        ("on the topic", result.on_topic),
        ("in the lake", result.in_lake),
        ("of them distinct ids", result.distinct),
        ("quarantined", result.quarantined),
    ):
        table.add_row(name, f"{value:,}")
    console.OUT.print()
    console.OUT.print(table)
    if rows:
        sample = Table(box=None, pad_edge=False, header_style="bold")
        for column in rows[0]:
            width = 0 if column == "body" else max(len(str(row[column])) for row in rows)
            sample.add_column(column, no_wrap=True, min_width=width)
        for row in rows:
            sample.add_row(*(str(value) for value in row.values()))
        console.OUT.print()
        console.OUT.print(sample)
    console.OUT.print()
