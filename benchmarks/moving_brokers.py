"""Measures how long clients wait for their acknowledgements while three brokers are restarted, killed and moved: ``python -m
benchmarks.moving_brokers [--protocol forward|lumberjack|courier|segment|…]``.

Three brokers, each a controller too, three replicas, `min.insync.replicas` 2. Clients have one event on its way each. The phases:
nothing happens; every broker restarted, one after another, twice; the leader killed; a broker that comes back at another port.
A phase ends when all replicas are in sync again. At the end, every acknowledged event must be on the topic.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import psutil
from headrace_common.operations.settings import TopicSettings

from benchmarks.receivers import load
from tests.contract.brokers import BROKERS, Brokers
from tests.contract.conftest import DIALECTS
from tests.contract.dialect import Dialect
from tests.contract.load import Heard, Load
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics

QUIET: Final = 15.0
"""Seconds of the phases in which nothing happens."""

PARTITIONS: Final = 6
NAMED: Final = {dialect.name: dialect for dialect in reversed(DIALECTS)}


def figures_of(name: str, began: float, ended: float, heard: list[Heard]) -> dict[str, Any]:
    """Of the acknowledgements that came between `began` and `ended` (monotonic)."""
    waited = sorted(each.waited for each in heard if began <= each.at < ended)
    return {
        "phase": name,
        "seconds": ended - began,
        "acknowledged": len(waited),
        "p50_ms": 1000 * statistics.median(waited),
        "p99_ms": 1000 * waited[len(waited) * 99 // 100],
        "slowest_ms": 1000 * waited[-1],
    }


async def phases(brokers: Brokers, dialect: Dialect, clients: int, folder: Path) -> dict[str, Any]:
    """Runs all of them. `folder`: for the receiver's log."""
    topics = own_topics(
        brokers.bootstrap, TopicSettings(events_partitions=PARTITIONS, segments_partitions=dialect.segments)
    )
    name = topics.events_topic
    receiver = Receiver.of(dialect, topics, folder)
    await receiver.start()
    sending = Load(dialect, receiver.address, clients, pause=0.01)
    marks: list[tuple[str, float]] = []

    async def phase(called: str, work: Callable[[], Awaitable[None]]) -> None:
        marks.append((called, time.monotonic()))
        print(called, flush=True)
        await work()
        await brokers.in_sync(topics, name)

    async def roll() -> None:
        for number in brokers.nodes:
            await brokers.restart(number)
            await brokers.in_sync(topics, name)

    async def kill() -> None:
        await brokers.restart(await brokers.leader(topics, name), kill=True)

    try:
        await asyncio.sleep(3)  # connections, and what is slow the first time
        await phase("nothing happens", lambda: asyncio.sleep(QUIET))
        for turn in ("first", "second"):
            await phase(f"restarted one after another, {turn} time", roll)
        await phase("the leader of most partitions killed, and back", kill)
        await phase("a broker comes back at another port", lambda: brokers.restart(BROKERS, elsewhere=True))
        await phase("nothing happens any more", lambda: asyncio.sleep(QUIET))
        marks.append(("", time.monotonic()))
        await sending.end()
        spent = psutil.Process(receiver.pid).cpu_times()
        replaced = await receiver.metric("producers_replaced_total")
    finally:
        sending.cancel()
        receiver.stop()
    records = await events(topics.model_copy(update={"bootstrap_servers": brokers.bootstrap}), sending.mark)
    return {
        "phases": [
            figures_of(called, began, ended, sending.heard) for (called, began), (_, ended) in itertools.pairwise(marks)
        ],
        "acknowledged": len(sending.heard),
        "records": len(records),
        "lost": len(sending.lost(records)),
        "under_several_ids": sending.repeated(records),
        "producers_replaced": replaced,
        "receiver_cpu_seconds": spent.user + spent.system,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=sorted(NAMED), default="forward")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="headrace-brokers-") as name, Brokers(Path(name)) as brokers:
        found = asyncio.run(phases(brokers, NAMED[arguments.protocol], arguments.clients, Path(name)))
    after = os.getloadavg()[0]
    result = {
        "machine": load.machine(), "load": [before, after],
        "protocol": arguments.protocol, "clients": arguments.clients, **found,
    }  # fmt: skip
    write(result, dry=arguments.dry)
    if result["lost"]:
        raise SystemExit(f"{result['lost']} acknowledged events are not on the topic")


def write(result: dict[str, Any], *, dry: bool) -> None:
    """The table is printed. Unless `dry`, both it and the JSON are written."""
    first, last = result["load"]
    text = "\n".join(
        (
            f"{result['protocol']}, {result['clients']} clients with one event each on its way, three brokers, three replicas, "
            f"min.insync.replicas 2; {result['machine']['cpus']} CPUs, shared by all, load {first:.1f} at the beginning and "
            f"{last:.1f} at the end. Written by `python -m benchmarks.moving_brokers`.",
            "",
            "| phase | seconds | acknowledged | p50 (ms) | p99 (ms) | slowest (ms) |",
            "|---|---|---|---|---|---|",
            *(
                f"| {row['phase']} | {row['seconds']:.0f} | {row['acknowledged']:,} | {row['p50_ms']:.0f} "
                f"| {row['p99_ms']:.0f} | {row['slowest_ms']:,.0f} |"
                for row in result["phases"]
            ),
            "",
            f"{result['acknowledged']:,} acknowledged, {result['records']:,} records on the topic, {result['lost']} lost, "
            f"{result['producers_replaced']:.0f} producers replaced, {result['receiver_cpu_seconds']:.1f} CPU-s of the receiver.",
            "",
        )
    )
    print(text)
    if dry:
        return
    load.RESULTS.mkdir(exist_ok=True)
    (load.RESULTS / "moving-brokers.json").write_text(json.dumps(result, indent=1) + "\n")
    (load.RESULTS / "moving-brokers.md").write_text(text)


if __name__ == "__main__":
    main()
