"""The segment service beside Pravega, by Pravega's own Java client (needs Java and Maven).

One Java program writes to each, with nothing but the port changed: it has no controller. Pravega 0.13 is its standalone with
everything in the memory of one process; Headrace is one replica and a Kafka broker of one node. Turns alternate, and each has a
client process and segments of its own. The events topic must grow by at least what the client heard acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
from headrace_cli.machine.ports import free_port

from . import load

SOURCES: Final = load.ROOT / "benchmarks" / "reference" / "pravega"
HEADRACE, PRAVEGA = "Headrace", "Pravega"
PHASES: Final = ((1, 1), (1, 1_000), (8, 100), (64, 100))
"""Writers, and events of each that are on their way."""

EVENT_BYTES: Final = 1_016
"""With its header, 1 KB."""

SAYS: Final = b"writers: "
"""The beginning of a line of the Java program itself."""

STARTS_IN: Final = 120.0
GUARANTEES: Final = f"""| | {HEADRACE} | {PRAVEGA} standalone, as measured |
|---|---|---|
| an acknowledged event is | on the events topic and in the log of segments, with `acks=all` | in the memory of one process |
| after the process is killed | there, and its writer resumes behind it | gone |
| copies | as many as the topics have; here one | one; its cluster has those of BookKeeper |
"""


def built(folder: Path) -> str:
    """The class path of the writers, compiled, and of Pravega."""
    shutil.copytree(SOURCES, folder)
    goals = ["compiler:compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
    subprocess.run(["mvn", "-B", "-q", *goals], cwd=folder, check=True)
    return f"{folder / 'target' / 'classes'}:{(folder / 'classpath').read_text()}"


@contextlib.contextmanager
def pravega(class_path: str, folder: Path) -> Iterator[int]:
    """Pravega's standalone; the port of its segment store."""
    port = free_port()
    ports = {"zk.port": free_port(), "segmentStore.port": port, "controller.rpc.port": free_port()}
    settings = {**ports, "controller.rest.enable": "false", "admin.gateway.enable": "false"}
    file = folder / "standalone.properties"
    file.write_text("".join(f"singlenode.{name}={value}\n" for name, value in settings.items()))
    # Its storage and its log are in the heap. A cache that is full, 128 MB by default, ends its container.
    memory = ["-Xmx9g", "-XX:MaxDirectMemorySize=6g", f"-Dpravegaservice.cache.size.max={4 << 30}"]
    java = ["java", *memory, "-cp", class_path, f"-Dsinglenode.configurationFile={file}"]
    log = folder / "pravega.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*java, "io.pravega.local.LocalPravegaEmulator"], stdout=out, stderr=out)
    try:
        until = time.monotonic() + STARTS_IN
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(log.read_text()[-2_000:])
            time.sleep(0.2)
        time.sleep(5)  # its containers and its controller's own streams come up behind the port
        yield port
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Client:
    """The Java program, for one phase at one port."""

    def __init__(self, class_path: str, port: int, writers: int, under_way: int, before: float, seconds: float) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        arguments = (port, writers, under_way, EVENT_BYTES, int(before), int(seconds))
        self._process = subprocess.Popen(
            ["java", "-Xmx1g", "-cp", class_path, "Writers", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def hears(self) -> str:
        """Its next word; the libraries' logs go the same way. Ends the benchmark if there is none."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(SAYS):
                return line.removeprefix(SAYS).decode().strip()
        self._log.seek(0)
        raise SystemExit(f"the client has ended: {self._log.read().decode()[-2_000:]}")

    def go_on(self) -> None:
        """The line that it waits for after "begin" and "end"."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def others_cpu(self) -> float:
        """CPU seconds of all processes that this one has started, but for the client."""
        children = psutil.Process().children(recursive=True)
        return sum(sum(each.cpu_times()[:2]) for each in children if each.pid != self._process.pid)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def measured(class_path: str, port: int, phase: tuple[int, int], before: float, seconds: float) -> dict[str, float]:
    """One turn of one side."""
    client = Client(class_path, port, *phase, before, seconds)
    try:
        assert client.hears() == "begin"
        cpu = client.others_cpu()
        client.go_on()
        assert client.hears() == "end"
        cpu = client.others_cpu() - cpu
        client.go_on()
        events, elapsed, p50, p99 = map(float, client.hears().split())
    finally:
        client.close()
    return {
        "events": events,
        "events_per_second": events / elapsed,
        "ack_p50_ms": p50 / 1000,
        "ack_p99_ms": p99 / 1000,
        "cpu_us_per_event": cpu / events * 1e6,
    }


def arguments(command: argparse.ArgumentParser) -> None:
    """Declares the options."""
    command.add_argument("--seconds", type=float, default=6)
    command.add_argument(
        "--warm",
        type=float,
        default=4,
        help="seconds behind the first acknowledgements of a turn",
    )
    command.add_argument("--rounds", type=int, default=3)


def run(arguments: argparse.Namespace) -> load.Results:
    """Runs it all; see the module."""
    load_average = os.getloadavg()[0]
    rounds: dict[tuple[int, int], dict[str, list[dict[str, float]]]] = {
        phase: {HEADRACE: [], PRAVEGA: []} for phase in PHASES
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        class_path = built(folder / "java")
        for _ in range(arguments.rounds):
            for phase in PHASES:
                with pravega(class_path, folder) as port:  # one for each: it keeps all that it is given in memory
                    turn = measured(class_path, port, phase, arguments.warm, arguments.seconds)
                rounds[phase][PRAVEGA].append(turn)
                print(PRAVEGA, phase, turn, flush=True)
            with load.kafka(folder) as bootstrap, load.receiver("headrace_segment", bootstrap, folder) as (_, port):
                for phase in PHASES:
                    stored = asyncio.run(load.end_offsets(bootstrap, "headrace.events"))
                    turn = measured(class_path, port, phase, arguments.warm, arguments.seconds)
                    stored = asyncio.run(load.end_offsets(bootstrap, "headrace.events")) - stored
                    if stored < turn["events"]:
                        raise SystemExit(f"acknowledged {turn['events']:,.0f} events, the topic grew by {stored:,}")
                    rounds[phase][HEADRACE].append(turn)
                    print(HEADRACE, phase, turn, flush=True)
            shutil.rmtree(folder / "kafka")
    phases = {
        f"{writers} × {under_way:,}": {
            side: {key: statistics.median(each[key] for each in turns) for key in turns[0]}
            for side, turns in rounds[writers, under_way].items()
        }
        for writers, under_way in PHASES
    }
    return table(
        {"machine": load.machine(), "load_average": load_average, "rounds": arguments.rounds, "phases": phases}
    )


def table(result: dict[str, Any]) -> load.Results:
    """The results, and a table of them."""
    rows = [
        "| writers × events on their way | | events/s | ack p50 / p99 | server's CPU an event |",
        "|---|---|---|---|---|",
    ]
    for phase, sides in result["phases"].items():
        for side, row in sides.items():
            rows.append(
                f"| {phase} | {side} | {row['events_per_second']:,.0f} | {row['ack_p50_ms']:.2f} / {row['ack_p99_ms']:.1f} ms "
                f"| {row['cpu_us_per_event']:.0f} µs |"
            )
    text = (
        f"The segment service beside Pravega 0.13, both by Pravega's Java client: events of 1 KB, a segment for each writer, "
        f"medians of {result['rounds']} rounds; {result['machine']['cpus']} CPUs, shared with the client; load average "
        f"{result['load_average']:.1f}. The server's CPU is that of all of its processes: for {HEADRACE}, the receiver and the "
        "broker. Written by `python -m benchmarks.receivers pravega`.\n\n"
        + "\n".join(rows)
        + "\n\nThey do not promise the same:\n\n"
        + GUARANTEES
    )
    return "pravega", result, text
