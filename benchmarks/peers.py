"""Measures receivers beside peers that write the same topic with acks=all: the same clients and requests at both, in turns.

.venv/bin/python -m benchmarks.peers rsyslog [--program rsyslogd] [--seconds 5] [--rounds 3] [--dry]
.venv/bin/python -m benchmarks.peers collector --program OTELCOL

rsyslog (imrelp, omkafka) answers a message that is in its queue, which is in memory here. The Collector (OTLP over HTTP, its
Kafka exporter, no queue) answers, as ours, when Kafka has stored the request, which it keeps as one record. So both are counted
to the end by the topic's offsets: CPU is of all that Kafka holds, and what was answered and is not there is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from headrace_cli.machine.ports import free_port
from headrace_cli.wire.target import Target

from benchmarks.load import Load, documents, end_offsets, kafka, machine, one_client, receiver, write

TOPIC: Final = "headrace.events"
REST: Final = 120.0
"""Seconds after which what has not come to Kafka is called missing."""


@dataclass(frozen=True)
class Peer:
    """`shapes`: connections, and the events of which each waits for all answers; `whole`: a record of it is a request."""

    protocol: str
    program: str
    options: Callable[[Path, str, int], list[str]]
    """From a folder, Kafka's address and a port makes the program's options."""
    shapes: tuple[tuple[int, int], ...]
    whole: bool = False


def rsyslog(folder: Path, broker: str, port: int) -> list[str]:
    """Writes rsyslog's configuration."""
    (folder / "rsyslog.conf").write_text(f"""
module(load="imrelp")
module(load="omkafka")
global(workDirectory="{folder}")
input(type="imrelp" port="{port}" maxDataSize="64k")
template(name="message" type="string" string="%rawmsg%")
action(type="omkafka" broker="{broker}" topic="{TOPIC}" template="message" partitions.auto="on"
       confParam=["acks=all", "compression.codec=zstd", "linger.ms=5"] resubmitOnFailure="on" action.resumeRetryCount="-1"
       queue.type="LinkedList" queue.size="1000000" queue.workerThreads="1" queue.timeoutShutdown="60000")
""")
    return ["-n", "-f", f"{folder}/rsyslog.conf", "-i", f"{folder}/rsyslog.pid"]


def collector(folder: Path, broker: str, port: int) -> list[str]:
    """Writes the Collector's configuration, as JSON, which YAML can read."""
    producer = {"required_acks": "all", "compression": "zstd"}
    exporter = {"brokers": [broker], "producer": producer, "sending_queue": {"enabled": False}}
    (folder / "collector.yaml").write_text(
        json.dumps({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {"kafka": exporter | {"logs": {"topic": TOPIC, "encoding": "otlp_proto"}}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["kafka"]}},
            },
        })
    )  # fmt: skip
    return [f"--config=file:{folder}/collector.yaml"]


PEERS: Final = {
    # librelp has at most 128 messages under way, and stalls at 500
    "rsyslog": Peer("relp", "rsyslogd", rsyslog, ((16, 100), (64, 1))),
    "collector": Peer("otlp", "otelcol", collector, ((16, 500), (64, 1)), whole=True),
}


@contextmanager
def running(name: str, program: str, broker: str, folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Runs a peer on a free port; gives its process and the port."""
    port = free_port()
    options = PEERS[name].options(folder, broker, port)
    with (folder / f"{name}.log").open("wb") as said:
        process = subprocess.Popen([program, *options], stderr=said)
    try:
        time.sleep(3)
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait(90)


async def measured(load: Load, target: Target, process: psutil.Process, broker: str, unit: int) -> tuple[float, ...]:
    """Returns CPU-seconds per million events, events a second that were answered, and how many of these are missing.

    `unit`: events of a record of the topic.
    """
    encoded, before = documents(target.protocol, load), await end_offsets(broker, TOPIC)
    used, waits = sum(process.cpu_times()[:2]), list[float]()
    clients = (one_client(number, target, encoded, load, waits) for number in range(load.connections))
    answered, until = sum(await asyncio.gather(*clients)), time.monotonic() + REST
    while (stored := (await end_offsets(broker, TOPIC) - before) * unit) < answered and time.monotonic() < until:  # noqa: ASYNC110  (Kafka tells nobody)
        await asyncio.sleep(0.5)
    spent = sum(process.cpu_times()[:2]) - used
    return spent / stored * 1e6, answered / load.seconds, max(0, answered - stored)


def main() -> None:
    """Measures both, in turns, and writes a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--program", help="the peer's, if it is not on the path by its usual name")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="a trial: write no results")
    given = parser.parse_args()
    peer, name = PEERS[given.peer], given.peer
    rows = ["| shape | receiver | CPU-s per million events | answered/s | missing |", "|---|---|---|---|---|"]
    with (
        tempfile.TemporaryDirectory() as folder,
        kafka(Path(folder)) as broker,
        receiver(peer.protocol, broker, Path(folder)) as ours,
        running(name, given.program or peer.program, broker, Path(folder)) as theirs,
    ):
        for connections, events in peer.shapes:
            load = Load(connections, events, given.seconds)
            both = ("Headrace", ours, 1), (name, theirs, events if peer.whole else 1)
            turns: dict[str, list[tuple[float, ...]]] = {whose: [] for whose, _, _ in both}
            for _ in range(given.rounds + 1):  # the first of each warms it up
                for whose, (process, port), unit in both:
                    target = Target(peer.protocol, "127.0.0.1", port)
                    turns[whose].append(asyncio.run(measured(load, target, process, broker, unit)))
            for whose, found in turns.items():
                cost, rate, missing = (statistics.median(each) for each in zip(*found[1:], strict=True))
                rows.append(f"| {connections} x {events} | {whose} | {cost:.2f} | {rate:,.0f} | {missing:,.0f} |")
    head = (
        f"{peer.protocol}, acks=all, zstd, medians of {given.rounds} rounds; {machine()}. "
        f"Written by `python -m benchmarks.peers {name}`."
    )
    write(f"peer-{name}", "\n".join((head, "", *rows)), dry=given.dry)


if __name__ == "__main__":
    main()
