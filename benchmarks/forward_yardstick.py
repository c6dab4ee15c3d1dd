"""The Forward receiver beside the smallest one in Go that keeps the same promise, in one run; then ours in every form.

Builds ``benchmarks/reference`` with `go`, which must be there, and takes turns: ours, Go's, ours, Go's. End offsets are
compared with what was acknowledged. With ``--before`` every form is also sent, in turns, to the receiver as it was at that
revision of this repository (which may not speak all of them). Writes ``benchmarks/results/forward-yardstick.json`` and
``.md``; with ``--events 1``, which is what one frame costs, ``forward-yardstick-single``.

    .venv/bin/python benchmarks/forward_yardstick.py [--seconds 10] [--connections 16] [--events 500] [--before REVISION]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import load
import psutil
from forward import FORMS, ForwardTalker, formed, frames
from headrace_common.settings import KafkaSettings

REFERENCE = Path(__file__).parent / "reference"
TURNS = 2
OURS, GO, BEFORE = "headrace", "go", "before"
COST = "cpu_seconds_per_million"


@contextlib.contextmanager
def reference(folder: Path, bootstrap: str) -> Iterator[tuple[psutil.Process, int]]:
    """The reference receiver on a free port, compiled."""
    if shutil.which("go") is None:
        raise SystemExit("go is not there: the yardstick is a program in Go")
    program = folder / "reference"
    subprocess.run(["go", "build", "-o", program, "."], cwd=REFERENCE, check=True)
    port = load.free_port()
    arguments = [program, f"127.0.0.1:{port}", bootstrap, KafkaSettings().events_topic]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise SystemExit("the reference receiver did not start")
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Takes turns and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--before", metavar="REVISION", help="also measure the receiver as it was at this revision")
    arguments = parser.parse_args()
    made = frames(arguments.events)
    shape = load.Load(arguments.connections, arguments.events, arguments.seconds)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = stack.enter_context(load.kafka(folder))
        servers = {
            OURS: stack.enter_context(load.receiver("headrace_forward", bootstrap, folder)),
            GO: stack.enter_context(reference(folder, bootstrap)),
        }
        if arguments.before:
            tree = stack.enter_context(load.checked_out(arguments.before))
            servers[BEFORE] = stack.enter_context(load.receiver("headrace_forward", bootstrap, folder, tree))

        def phase(server: str, form: str = "bin") -> dict[str, float]:
            process, port = servers[server]
            work = formed(made, form)
            run = load.run(shape, lambda number: ForwardTalker(number, work, form), port, process, bootstrap)
            return asyncio.run(run)

        for server in servers:
            phase(server)  # warm-up
        turns: dict[str, list[dict[str, float]]] = {OURS: [], GO: []}
        for _ in range(TURNS):
            for server, taken in turns.items():
                taken.append(phase(server))
        forms: dict[str, dict[str, list[dict[str, float]]]] = {}
        sides = [server for server in servers if server != GO]
        for form in FORMS:
            forms[form] = {side: [] for side in sides}
            for _ in range(TURNS):
                for side in sides:
                    try:
                        forms[form][side].append(phase(side, form))
                    except SystemExit as error:  # a form that it does not speak yet, or not rightly
                        if side == OURS:
                            raise
                        print(f"{arguments.before}, {form}: {error}")
                        time.sleep(2)  # what it has taken is stored by then
    write(arguments, turns, forms)


def _mean(taken: list[dict[str, float]]) -> float:
    return statistics.mean(turn[COST] for turn in taken)


def write(arguments: argparse.Namespace, turns: dict[str, list[dict[str, float]]], forms: dict[str, Any]) -> None:
    """The results as JSON and as a table; the table is also printed."""
    mean = {server: _mean(taken) for server, taken in turns.items()}
    ratio = mean[OURS] / mean[GO]
    result = {
        "machine": load.machine(),
        "connections": arguments.connections,
        "events_per_frame": arguments.events,
        "turns": turns,
        "ratio": ratio,
        "before": arguments.before,
        "forms": forms,
    }
    rows = [
        *((f"CPU-s per million events, {server}", f"{value:.2f}") for server, value in mean.items()),
        ("ratio", f"{ratio:.2f}"),
        *(
            (f"resident at most, {server}", f"{max(turn['resident_max_mb'] for turn in taken):.0f} MB")
            for server, taken in turns.items()
        ),
    ]
    for form, sides in forms.items():
        rows.append((f"headrace, {form}: µs of CPU per event", f"{_mean(sides[OURS]):.2f}"))
        if BEFORE in sides:
            figure = f"{_mean(sides[BEFORE]):.2f}" if sides[BEFORE] else "not spoken"
            rows.append((f"… at {arguments.before}", figure))
    table = "\n".join(("| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)))
    head = (
        f"Forward beside the reference receiver in Go, {arguments.connections} connections, {arguments.events} events a "
        f"frame, acks=all, zstd, in turns; {result['machine']['cpus']} CPUs, shared with the broker and the clients. "
        "Written by `benchmarks/forward_yardstick.py`.\n\n"
    )
    load.RESULTS.mkdir(exist_ok=True)
    name = "forward-yardstick" if arguments.events != 1 else "forward-yardstick-single"
    (load.RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (load.RESULTS / f"{name}.md").write_text(head + table + "\n")
    print(head + table)


if __name__ == "__main__":
    main()
