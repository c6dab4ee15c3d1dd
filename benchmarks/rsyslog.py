"""Measures RELP beside rsyslog: the same clients and messages at our receiver, and at imrelp with omkafka, acks=all.

.venv/bin/python -m benchmarks.rsyslog [--seconds 5] [--rounds 3] [--dry]

rsyslog answers a message that is in its queue, which is in memory here; ours, when Kafka has stored it. So both are counted to
the end by the topic's offsets: CPU is of all that Kafka holds, and what was answered and is not there is told.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from headrace_cli.machine.ports import free_port
from headrace_cli.wire.target import Target

from benchmarks.load import Load, documents, end_offsets, kafka, machine, one_client, receiver, write

TOPIC: Final = "headrace.events"
SHAPES: Final = ((16, 100), (64, 1))
"""Connections, and the messages of which each waits for all answers: librelp has at most 128 under way, and stalls at 500."""
REST: Final = 120.0
"""Seconds after which what has not come to Kafka is called missing."""

CONFIGURATION: Final = """
module(load="imrelp")
module(load="omkafka")
global(workDirectory="{folder}")
input(type="imrelp" port="{port}" maxDataSize="64k")
template(name="message" type="string" string="%rawmsg%")
action(type="omkafka" broker="{broker}" topic="headrace.events" template="message" partitions.auto="on"
       confParam=["acks=all", "compression.codec=zstd", "linger.ms=5"] resubmitOnFailure="on" action.resumeRetryCount="-1"
       queue.type="LinkedList" queue.size="1000000" queue.workerThreads="1" queue.timeoutShutdown="60000")
"""


@contextmanager
def rsyslog(broker: str, folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Runs rsyslog on a free port; gives its process and the port."""
    port, path = free_port(), folder / "rsyslog.conf"
    path.write_text(CONFIGURATION.format(folder=folder, port=port, broker=broker))
    with (folder / "rsyslog.log").open("wb") as said:
        process = subprocess.Popen(["rsyslogd", "-n", "-f", path, "-i", folder / "rsyslog.pid"], stderr=said)
    try:
        time.sleep(3)
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait(90)


async def measured(load: Load, port: int, process: psutil.Process, broker: str) -> tuple[float, float, int]:
    """Returns CPU-seconds per million messages, messages a second that were answered, and how many of these are missing."""
    encoded, before = documents("relp", load), await end_offsets(broker, TOPIC)
    used, waits, target = sum(process.cpu_times()[:2]), list[float](), Target("relp", "127.0.0.1", port)
    clients = (one_client(number, target, encoded, load, waits) for number in range(load.connections))
    answered, until = sum(await asyncio.gather(*clients)), time.monotonic() + REST
    while (stored := await end_offsets(broker, TOPIC) - before) < answered and time.monotonic() < until:  # noqa: ASYNC110  (nobody tells)
        await asyncio.sleep(0.5)
    spent = sum(process.cpu_times()[:2]) - used
    return spent / stored * 1e6, answered / load.seconds, max(0, answered - stored)


def main() -> None:
    """Measures both, in turns, and writes a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="a trial: write no results")
    given = parser.parse_args()
    rows = ["| shape | receiver | CPU-s per million messages | answered/s | missing |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name, kafka(Path(name)) as broker:
        folder = Path(name)
        with receiver("relp", broker, folder) as ours, rsyslog(broker, folder) as theirs:
            for connections, events in SHAPES:
                load = Load(connections, events, given.seconds)
                for whose, (process, port) in (("Headrace", ours), ("rsyslog", theirs)):
                    turns = [asyncio.run(measured(load, port, process, broker)) for _ in range(given.rounds + 1)][1:]
                    cost, rate, missing = (statistics.median(each) for each in zip(*turns, strict=True))
                    rows.append(f"| {connections} x {events} | {whose} | {cost:.2f} | {rate:,.0f} | {missing:,.0f} |")
    head = f"RELP, acks=all, zstd, medians of {given.rounds} rounds; {machine()}. Written by `python -m benchmarks.rsyslog`."
    write("rsyslog", "\n".join((head, "", *rows)), dry=given.dry)


if __name__ == "__main__":
    main()
