"""Measures receivers beside peers that write the same topic with acks=all: the same clients and requests at both, in turns.

.venv/bin/python -m benchmarks.peers rsyslog [--program rsyslogd] [--seconds 5] [--rounds 3] [--dry]
.venv/bin/python -m benchmarks.peers collector --program OTELCOL

rsyslog (imrelp, omkafka) answers a message that is in its queue, which is in memory here. The Collector (OTLP over HTTP, its
Kafka exporter, no queue) answers, as ours, when Kafka has stored the request, which it keeps as one record. So both are counted
to the end by the topic's offsets: CPU is of all that Kafka holds, and what was answered and is not there is told.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_cli.machine.ports import free_port

from benchmarks.load import COST, TOPIC, Load, kafka, machine, options, phase, receiver, running, together, write


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


def main() -> None:
    """Measures both, in turns, and writes a table."""
    parser = options(__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--program", help="the peer's, if it is not on the path by its usual name")
    given = parser.parse_args()
    peer, name, port = PEERS[given.peer], given.peer, free_port()
    rows = ["| shape | receiver | CPU-s per million events | answered/s | missing |", "|---|---|---|---|---|"]
    with (
        tempfile.TemporaryDirectory() as temporary,
        kafka(folder := Path(temporary)) as broker,
        receiver(peer.protocol, broker, folder) as ours,
        running(
            [given.program or peer.program, *peer.options(folder, broker, port)], port, folder / "peer.log"
        ) as theirs,
    ):
        for connections, events in peer.shapes:
            load = Load(connections, events, given.seconds)
            both = ("Headrace", ours, None), (name, (theirs, port), events if peer.whole else 1)
            turns: dict[str, list[dict[str, float]]] = {whose: [] for whose, _, _ in both}
            for _ in range(given.rounds + 1):  # the first of each warms it up
                for whose, (process, at), unit in both:
                    turns[whose].append(phase(peer.protocol, load, at, process, broker, unit))
            for whose, found in turns.items():
                row = together(found[1:])
                figures = f"{row[COST]:.2f} | {row['events_per_second']:,.0f} | {row['missing']:,.0f}"
                rows.append(f"| {connections} x {events} | {whose} | {figures} |")
    head = (
        f"{peer.protocol}, acks=all, zstd, medians of {given.rounds} rounds; {machine()}. "
        f"Written by `python -m benchmarks.peers {name}`."
    )
    write(f"peer-{name}", "\n".join((head, "", *rows)), dry=given.dry)


if __name__ == "__main__":
    main()
