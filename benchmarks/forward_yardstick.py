"""The Forward receiver beside the smallest one in Go that keeps the same promise, in one run; then ours in every form.

Builds ``benchmarks/reference`` with `go`, which must be there, and takes turns: ours, Go's, ours, Go's. End offsets are compared
with what was acknowledged. Writes ``benchmarks/results/forward-yardstick.json`` and ``.md``.

    .venv/bin/python benchmarks/forward_yardstick.py [--seconds 10] [--connections 16] [--events 500]
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
from forward import RESULTS, _free_port, frames, load, receiver_process
from headrace_cli.broker import EmbeddedKafka
from headrace_common.settings import KafkaSettings, environment

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

REFERENCE = Path(__file__).parent / "reference"
FORMS = ("bin", "str", "gzip", "zstd", "json")
TURNS = 2


def build(folder: Path) -> Path:
    """The reference receiver, compiled."""
    if shutil.which("go") is None:
        raise SystemExit("go is not there: the yardstick is a program in Go")
    program = folder / "reference"
    subprocess.run(["go", "build", "-o", program, "."], cwd=REFERENCE, check=True)
    return program


def reference_process(program: Path, bootstrap: str) -> tuple[subprocess.Popen[bytes], int]:
    """Starts it on a free port, and waits until it listens."""
    port = _free_port()
    process = subprocess.Popen(
        [program, f"127.0.0.1:{port}", bootstrap, KafkaSettings().events_topic], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise SystemExit("the reference receiver did not start")
    return process, port


def main() -> None:
    """Takes turns and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--events", type=int, default=500)
    arguments = parser.parse_args()
    made = frames(arguments.events)
    compress = {"gzip": lambda data: gzip.compress(data, 6), "zstd": zstd.compress}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        broker = EmbeddedKafka(folder / "kafka")
        broker.start()
        variables = {**os.environ, **environment("KAFKA", bootstrap_servers=broker.bootstrap)}
        variables["PYTHONPATH"] = os.pathsep.join(sys.path)
        subprocess.run([sys.executable, "-m", "headrace_common.topics"], env=variables, check=True)
        ours, our_port = receiver_process(broker.bootstrap, folder / "receiver.log")
        theirs, their_port = reference_process(program, broker.bootstrap)
        servers = {"headrace": (ours, our_port), "go": (theirs, their_port)}
        try:

            def phase(server: str, form: str = "bin") -> dict[str, float]:
                process, port = servers[server]
                work = [(e, compress[form](p)) for e, p in made] if form in compress else made
                measured = psutil.Process(process.pid)
                return asyncio.run(load(arguments, work, port, measured, broker.bootstrap, 0, form))

            for server in servers:
                phase(server)  # warm-up
            turns: dict[str, list[dict[str, float]]] = {"headrace": [], "go": []}
            for _ in range(TURNS):
                for server in servers:
                    turns[server].append(phase(server))
            forms = {form: phase("headrace", form) for form in FORMS}
        finally:
            for process, _ in servers.values():
                process.terminate()
                process.wait(30)
            broker.stop()
    write(arguments, turns, forms)


def write(arguments: argparse.Namespace, turns: dict[str, list[dict[str, float]]], forms: dict[str, Any]) -> None:
    """The results as JSON and as a table; the table is also printed."""
    key = "cpu_seconds_per_million"
    mean = {server: statistics.mean(turn[key] for turn in taken) for server, taken in turns.items()}
    ratio = mean["headrace"] / mean["go"]
    result = {
        "machine": {"cpus": os.cpu_count(), "python": sys.version.split()[0]},
        "connections": arguments.connections,
        "events_per_frame": arguments.events,
        "turns": turns,
        "ratio": ratio,
        "forms": forms,
    }
    rows = [
        *((f"CPU-s per million events, {server}", f"{value:.2f}") for server, value in mean.items()),
        ("ratio", f"{ratio:.2f}"),
        *(
            (f"resident at most, {server}", f"{max(turn['resident_max_mb'] for turn in taken):.0f} MB")
            for server, taken in turns.items()
        ),
        *((f"headrace, {form}: µs of CPU per event", f"{figures[key]:.2f}") for form, figures in forms.items()),
    ]
    table = "\n".join(("| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)))
    head = (
        f"Forward beside the reference receiver in Go, {arguments.connections} connections, {arguments.events} events a "
        f"frame, acks=all, zstd, in turns; {os.cpu_count()} CPUs, shared with the broker and the clients. Written by "
        "`benchmarks/forward_yardstick.py`.\n\n"
    )
    RESULTS.mkdir(exist_ok=True)
    name = "forward-yardstick" if arguments.events != 1 else "forward-yardstick-single"
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(head + table + "\n")
    print(head + table)


if __name__ == "__main__":
    main()
