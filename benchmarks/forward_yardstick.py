"""The Forward receiver beside the smallest one in Go that keeps the same promise, in one run; then ours in every form.

Builds ``benchmarks/reference`` with `go`, which must be there, and takes turns: ours, Go's, ours, Go's. End offsets are
compared with what was acknowledged. With ``--before`` every form is also sent, in turns, to the receiver as it was at that
revision of this repository (which may not speak all of them). Writes ``benchmarks/results/forward-yardstick.json`` and
``.md``; with ``--events 1``, which is what one frame costs, ``forward-yardstick-single``. With ``--shapes`` only the figures
beside Go's are taken, for many small clients and for few large ones, saturated and at half of that, and for two thousand
clients of one event a second each: ``forward-shapes``.

    .venv/bin/python -m benchmarks.forward_yardstick [--seconds 10] [--connections 16] [--events 500] [--before REVISION]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import KafkaSettings

from benchmarks.receivers import load
from benchmarks.receivers.forward import FORMS, ForwardTalker, formed, frames

REFERENCE = Path(__file__).parent / "reference"
TURNS = 2
ROUNDS = 3
SHAPES = ((256, 1, 24), (64, 20, 24), (16, 500, 24), (1, 500, 24), (16, 500, 270))
"""Connections, the events of each frame, and the words of each event: 24 make 280 bytes, 270 make 2 KB."""
STEADY = 2000
"""Connections that send one event a second each."""
OURS, GO, BEFORE = "headrace", "go", "before"
PYTHON = "python"
"""Ours without its native core."""
COST = "cpu_seconds_per_million"


@contextlib.contextmanager
def reference(folder: Path, bootstrap: str) -> Iterator[tuple[psutil.Process, int]]:
    """The reference receiver on a free port, compiled."""
    if shutil.which("go") is None:
        raise SystemExit("go is not there: the yardstick is a program in Go")
    program = folder / "reference"
    subprocess.run(["go", "build", "-o", program, "."], cwd=REFERENCE, check=True)
    port = free_port()
    arguments = [str(program), f"127.0.0.1:{port}", bootstrap, KafkaSettings().events_topic]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise SystemExit("the reference receiver did not start")
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait(30)


def started(
    stack: contextlib.ExitStack, variables: Mapping[str, str] | None = None
) -> tuple[Path, str, dict[str, tuple[psutil.Process, int]]]:
    """A folder, Kafka, and the process and port of both receivers, which end with the stack. `variables`: of ours."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    bootstrap = stack.enter_context(load.kafka(folder))
    ours = stack.enter_context(load.receiver("headrace_forward", bootstrap, folder, variables=variables))
    return folder, bootstrap, {OURS: ours, GO: stack.enter_context(reference(folder, bootstrap))}


def main() -> None:
    """Takes turns and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--shapes", action="store_true", help="beside Go's, many small clients and few large ones")
    parser.add_argument("--before", metavar="REVISION", help="also measure the receiver as it was at this revision")
    arguments = parser.parse_args()
    if arguments.shapes:
        take_shapes(arguments.seconds)
        return
    made = frames(arguments.events)
    shape = load.Load(arguments.connections, arguments.events, arguments.seconds)
    with contextlib.ExitStack() as stack:
        folder, bootstrap, servers = started(stack)
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


def take_shapes(seconds: float) -> None:
    """Each shape in turns, three rounds: saturated, then at half of the rate that the slower side reached."""
    taken: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {}
    with contextlib.ExitStack() as stack:
        folder, bootstrap, servers = started(stack, {"HEADRACE_NATIVE": "require"})
        logs = folder / PYTHON
        logs.mkdir()
        pure = load.receiver("headrace_forward", bootstrap, logs, variables={"HEADRACE_NATIVE": "off"})
        servers[PYTHON] = stack.enter_context(pure)

        def phase(server: str, made: Any, connections: int, events: int, rate: float = 0) -> dict[str, float]:
            process, port = servers[server]
            shape = load.Load(connections, events, seconds, rate)
            return asyncio.run(load.run(shape, lambda number: ForwardTalker(number, made), port, process, bootstrap))

        for connections, events, words in SHAPES:
            shape = frames(events, words), connections, events
            reached = min(phase(server, *shape)["events_per_second"] for server in servers)  # and warms up
            size = "" if words == SHAPES[0][-1] else f", {words} words"
            found = taken[f"{connections} x {events}{size}"] = {
                load_name: {server: [] for server in servers} for load_name in ("saturated", "half")
            }
            for _ in range(ROUNDS):
                for name, rate in (("saturated", 0.0), ("half", reached / 2)):
                    for server in servers:
                        found[name][server].append(phase(server, *shape, rate))
        turns: dict[str, list[dict[str, float]]] = {server: [] for server in servers}
        taken[f"{STEADY} x 1"] = {"one a second": turns}
        single = frames(1)
        for _ in range(ROUNDS):
            for server in servers:
                turns[server].append(phase(server, single, STEADY, 1, STEADY))
    write_shapes(taken)


def write_shapes(taken: dict[str, Any]) -> None:
    """The medians of the rounds as a table, which is also printed; all rounds as JSON."""
    lines = [
        "Forward beside the reference receiver in Go: connections x events a frame, acks=all, zstd, in turns, medians of "
        f"{ROUNDS} rounds; Python {platform.python_version()}, {os.cpu_count()} CPUs, shared with the broker and the clients. "
        "Written by `python -m benchmarks.forward_yardstick --shapes`.",
        "",
        "| shape | load | CPU-s per million events, headrace | go | ratio | without its native core | ratio "
        "| ack p50 / p99 / slowest, headrace | go | without its native core | memory at most, MB, headrace | go |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for shape, loads in taken.items():
        for name, sides in loads.items():
            cost = {side: statistics.median(turn[COST] for turn in turns) for side, turns in sides.items()}
            waits = {
                side: " / ".join(
                    f"{statistics.median(turn[f'ack_{cut}_ms'] for turn in turns):.0f}" for cut in ("p50", "p99", "max")
                )
                for side, turns in sides.items()
            }
            memory = {side: max(turn["resident_max_mb"] for turn in turns) for side, turns in sides.items()}
            lines.append(
                f"| {shape} | {name} | {cost[OURS]:.2f} | {cost[GO]:.2f} | {cost[OURS] / cost[GO]:.2f} "
                f"| {cost[PYTHON]:.2f} | {cost[PYTHON] / cost[GO]:.2f} "
                f"| {waits[OURS]} ms | {waits[GO]} ms | {waits[PYTHON]} ms | {memory[OURS]:.0f} | {memory[GO]:.0f} |"
            )
    (load.RESULTS / "forward-shapes.json").write_text(json.dumps(taken, indent=1) + "\n")
    (load.RESULTS / "forward-shapes.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


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
        "Written by `python -m benchmarks.forward_yardstick`.\n\n"
    )
    load.RESULTS.mkdir(exist_ok=True)
    name = "forward-yardstick" if arguments.events != 1 else "forward-yardstick-single"
    (load.RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (load.RESULTS / f"{name}.md").write_text(head + table + "\n")
    print(head + table)


if __name__ == "__main__":
    main()
