"""``demo``: starts a stack, sends events over a real protocol, and compares the counts of every step."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace_common.operations.errors import HeadraceError
from headrace_common.operations.settings import KafkaSettings, environment, own_environment
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace_cli.clients.configuration import PORTS, how_to
from headrace_cli.clients.logjam import NUMBERS, DemoDevice, send_messages
from headrace_cli.clients.protocols import DEMO_CLIENTS
from headrace_cli.clients.traffic import CONNECTIONS, send_events
from headrace_cli.errors import EXIT_FAILED, CommandError
from headrace_cli.fetch.toolchain import REPOSITORY_VARIABLE, jars
from headrace_cli.processes.tether import tethered
from headrace_cli.stack.stack import module
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import console
from headrace_cli.verbs.down import down
from headrace_cli.verbs.query import EXAMPLE_QUERY
from headrace_cli.verbs.up import START_SECONDS

_GAPS: Final = """\
select device, from_sequence as first, to_sequence - 1 as last from gaps where reason = 'logjam' order by landed_at"""
LANDING_SECONDS: Final = 300.0
"""Time limit of the landing job, from the last acknowledgement on. On a busy machine its first batch takes minutes."""


LOGJAM: Final = "logjam"

Send = Callable[[str, int, Callable[[int], None]], int]
"""Sends so many events to an address and tells the progress; how many were acknowledged."""

SENDERS: Final[Mapping[str, Send]] = {
    LOGJAM: send_messages,
    **{name: partial(send_events, client=client) for name, client in DEMO_CLIENTS.items()},
}
"""By service: the protocols that `demo --protocol` can send with."""


@dataclass(frozen=True)
class DemoCounts:
    """How many events have reached each step. `published`: records that a device brought, beside those that were sent."""

    sent: int
    acknowledged: int
    on_topic: int
    quarantined: int
    in_lake: int
    distinct: int
    published: int = 0

    @property
    def agrees(self) -> bool:
        stored = self.sent + self.published
        return (
            self.sent == self.acknowledged
            and stored == self.on_topic == self.in_lake == self.distinct
            and self.quarantined == 0
        )


def demo(events: int, protocol: str) -> int:
    """Run the demo. Return 0 if as many events were acknowledged, stored and landed as were sent."""
    if protocol not in SENDERS:
        raise CommandError(f"demo does not speak {protocol}; it speaks {', '.join(sorted(SENDERS))}.", status=2)
    began = time.monotonic()
    with console.fetching() as progress:
        for name in ("kafka", "spark"):
            jars(name, progress)
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    state = StateFolder(folder / "state")
    device = DemoDevice() if protocol == LOGJAM else None
    try:
        with _stack(state, {} if device is None else device.environment) as record:
            counts, rows = _send_and_count(record, events, protocol, device)
    finally:
        if device is not None:
            device.close()
        shutil.rmtree(folder, ignore_errors=True)
    _show(counts, rows)
    console.line("demo", "good" if counts.agrees else "bad", f"{time.monotonic() - began:.0f} s")
    if not counts.agrees:
        console.ERR.print("headrace: the counts differ.")
        return EXIT_FAILED
    console.OUT.print()
    console.OUT.print(
        f"Next, use your own clients: point them at port {PORTS[protocol]}.\n\n{how_to(protocol)}\n"
        "  ./headrace up                           # starts the stack; Ctrl-C stops it\n"
        "  ./headrace snippet                      # lists the clients whose configuration it prints\n"
        f'  ./headrace query "{EXAMPLE_QUERY}"\n'
        "  ./headrace query --named exactly-once   # proves what has landed",
        markup=False,
    )
    return 0


@contextmanager
def _stack(state: StateFolder, settings: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Run a stack on free ports, with more `settings`. It ends with the block, and also when this process is killed."""
    state.make()
    ours = own_environment()  # these are settings of another stack, except the repository of the jars
    variables = {name: value for name, value in os.environ.items() if name not in ours or name == REPOSITORY_VARIABLE}
    variables.update(environment("lake", trigger=0.5), **settings)
    log = state.log("up")
    with log.open("wb") as output:
        process = subprocess.Popen(
            tethered([*module("headrace_cli"), "up", "--any-port", "--no-live", "--state", str(state.path)]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=variables,
        )
    try:
        yield _wait_until_ready(state, process)
    except Exception:
        _show_logs(state)
        raise
    finally:
        console.line("stack", "note", "stopping")
        down(state.path)
        process.wait()


def _wait_until_ready(state: StateFolder, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until everything is ready and return the supervisor's record. Print a line for each process that gets ready."""
    began = time.monotonic()
    told: set[str] = set()
    while time.monotonic() - began < START_SECONDS:
        record = state.read_record()
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
            raise CommandError("The stack stopped while it started.")
        time.sleep(0.1)
    raise CommandError(f"The stack was not ready within {START_SECONDS:.0f} s.")


def _show_logs(state: StateFolder) -> None:
    """Show the last lines of each log before the folder is deleted."""
    for log in sorted(state.logs.glob("*.log")):
        for row in log.read_text(errors="replace").splitlines()[-8:]:
            console.ERR.print(f"{log.stem:<10} | {row}", markup=False)


def _send_and_count(
    record: dict[str, Any], events: int, protocol: str, device: DemoDevice | None
) -> tuple[DemoCounts, list[dict[str, Any]]]:
    from headrace_cli.verbs import query

    bars = Progress(
        TextColumn("  {task.description:<24}"), BarColumn(), MofNCompleteColumn(), console=console.OUT,
        disable=not console.OUT.is_terminal,
    )  # fmt: skip
    with bars:
        listen = record["services"][protocol]["listen"]
        sending = bars.add_task("sent and acknowledged", total=events)
        began = time.monotonic()
        acknowledged = SENDERS[protocol](listen, events, lambda count: bars.update(sending, completed=count))
        took = time.monotonic() - began
        published = 0 if device is None else device.publish()
        expected = events + published
        on_topic, quarantined = _wait_until_stored(record["kafka"], expected)
        landing = bars.add_task("in the lake", total=expected)

        def count() -> tuple[int, int]:
            try:
                (row,) = query.run("select count(*) as n, count(distinct event_id) as ids from events", record["lake"])
            except HeadraceError:
                return 0, 0  # there is no table yet
            bars.update(landing, completed=row["n"])
            return row["n"], row["ids"]

        in_lake, distinct = _wait_until_landed(count, expected)
        rows = query.run(
            "select strftime(event_time, '%H:%M:%S.%g') as time, stream, coalesce(body, try(decode(payload))) as body"
            " from events order by event_time limit 5",
            record["lake"],
        )
        gaps = [] if device is None else _wait_for_gaps(lambda: query.run(_GAPS, record["lake"]))
    if device is not None and not gaps:
        raise CommandError("The device's gap did not land.")
    console.line(protocol, "note", f"{acknowledged} events over {CONNECTIONS} connections acknowledged in {took:.1f} s")
    for gap in gaps:
        told = f"device {gap['device']} published {NUMBERS} numbers; {gap['first']} to {gap['last']} never came: the lake says so"
        console.line("gap", "note", told)
    return DemoCounts(events, acknowledged, on_topic, quarantined, in_lake, distinct, published), rows


def _wait_until_stored(bootstrap: str, expected: int) -> tuple[int, int]:
    """Return the records on both topics. What a device published is stored without anybody being told, so wait for it."""
    deadline = time.monotonic() + LANDING_SECONDS
    while True:
        counts = asyncio.run(_count_on_topics(bootstrap))
        if sum(counts) >= expected or time.monotonic() > deadline:
            return counts
        time.sleep(0.3)


def _wait_for_gaps(read: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows once there are any: they land behind the batch's events."""
    deadline = time.monotonic() + LANDING_SECONDS
    while not (rows := read()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return rows


def _wait_until_landed(count: Callable[[], tuple[int, int]], wanted: int) -> tuple[int, int]:
    deadline = time.monotonic() + LANDING_SECONDS
    while True:
        counts = count()
        if counts[0] >= wanted or time.monotonic() > deadline:
            return counts
        time.sleep(0.3)


async def _count_on_topics(bootstrap: str) -> tuple[int, int]:
    """Return the records on the events and on the quarantine topic, counted from first to last offset."""
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from headrace_common.kafka.client import describe

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


def _show(counts: DemoCounts, rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in (
        ("sent", counts.sent),
        ("acknowledged", counts.acknowledged),
        *([("published by a device, and one gap", counts.published)] if counts.published else []),
        ("on the topic", counts.on_topic),
        ("in the lake", counts.in_lake),
        ("of them distinct ids", counts.distinct),
        ("quarantined", counts.quarantined),
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
