"""The Forward receiver beside the smallest one in Go that keeps the same promise, in turns, with and without its native core.

Builds ``benchmarks/reference`` with `go`, which must be there. Many small clients and few large ones, saturated and at half of
that, and two thousand clients of one event a second each.

    .venv/bin/python -m benchmarks.forward_yardstick [--seconds 5] [--rounds 3] [--dry] [--worse 15]
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil
from headrace_cli.machine.ports import free_port

from benchmarks.load import (
    COST,
    RESULTS,
    TOPIC,
    Load,
    kafka,
    machine,
    options,
    phase,
    receiver,
    running,
    together,
    write,
)

REFERENCE: Final = Path(__file__).parent / "reference"
SHAPES: Final = ((256, 1, 24), (64, 20, 24), (16, 500, 24), (1, 500, 24), (16, 500, 270))
"""Connections, the events of each frame, and the words of each event."""
STEADY: Final = 2000
"""Connections that send one event a second each."""
OURS, GO, PYTHON = "headrace", "go", "without its native core"


@contextlib.contextmanager
def reference(folder: Path, bootstrap: str) -> Iterator[tuple[psutil.Process, int]]:
    """Runs the reference receiver, compiled, on a free port."""
    if shutil.which("go") is None:
        raise SystemExit("go is not there: the yardstick is a program in Go")
    program, port = folder / "reference", free_port()
    subprocess.run(["go", "build", "-o", program, "."], cwd=REFERENCE, check=True)
    with running([str(program), f"127.0.0.1:{port}", bootstrap, TOPIC], port, folder / "reference.log") as process:
        yield process, port


def main() -> None:
    """Takes turns and writes the results."""
    parser = options(__doc__)
    parser.add_argument("--worse", type=float, help="fail if a ratio to Go is above the results' by this many percent")
    given = parser.parse_args()
    rows = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = stack.enter_context(kafka(folder))
        servers = {
            OURS: stack.enter_context(receiver("forward", bootstrap, folder, "require")),
            GO: stack.enter_context(reference(folder, bootstrap)),
            PYTHON: stack.enter_context(receiver("forward", bootstrap, folder, "off")),
        }

        def turn(server: str, load: Load) -> dict[str, float]:
            process, port = servers[server]
            return phase("forward", load, port, process, bootstrap)

        def measure(name: str, load: Load) -> None:
            taken: dict[str, list[dict[str, float]]] = {server: [] for server in servers}
            for _ in range(given.rounds):
                for server in servers:
                    taken[server].append(turn(server, load))
            rows.append(_row(name, {server: together(turns) for server, turns in taken.items()}))

        for connections, events, words in SHAPES:
            load = Load(connections, events, given.seconds, words=words)
            reached = min(turn(server, load)["events_per_second"] for server in servers)  # and warms up
            size = "" if words == SHAPES[0][-1] else f", {words} words"
            measure(f"{connections} x {events}{size} | saturated", load)
            measure(f"{connections} x {events}{size} | half", replace(load, rate=reached / 2))
        measure(f"{STEADY} x 1 | one a second", Load(STEADY, 1, given.seconds, STEADY))
    head = (
        "Forward beside the reference receiver in Go: connections x events a frame, acks=all, zstd, in turns, medians of "
        f"{given.rounds} rounds; {machine()}. Written by `python -m benchmarks.forward_yardstick`."
    )
    columns = (
        "| shape | load | CPU-s per million events, headrace | go | ratio | without its native core | ratio "
        "| ack p50 / p99 / slowest, headrace | go | without its native core | memory at most, MB, headrace | go |"
    )
    before = ratios((RESULTS / "forward-shapes.md").read_text().splitlines())
    write("forward-shapes", "\n".join((head, "", columns, "|---" * 12 + "|", *rows)), dry=given.dry)
    if given.worse:
        most = 1 + given.worse / 100
        if worse := [name for name, ratio in ratios(rows).items() if ratio > most * before[name]]:
            raise SystemExit(f"more than {given.worse:g} % worse beside Go than before: {', '.join(worse)}")


def ratios(lines: Sequence[str]) -> dict[str, float]:
    """Returns the ratio to Go of each row of results, by its shape and load."""
    cells = [line.strip("| ").split(" | ") for line in lines if " x " in line and line.startswith("|")]
    return {f"{shape}, {load}": float(ratio) for shape, load, _, _, ratio, *_ in cells}


def _row(name: str, sides: dict[str, dict[str, float]]) -> str:
    cost = {side: figures[COST] for side, figures in sides.items()}
    waits = {
        side: " / ".join(f"{figures[f'ack_{cut}_ms']:.0f}" for cut in ("p50", "p99", "max"))
        for side, figures in sides.items()
    }
    return (
        f"| {name} | {cost[OURS]:.2f} | {cost[GO]:.2f} | {cost[OURS] / cost[GO]:.2f} "
        f"| {cost[PYTHON]:.2f} | {cost[PYTHON] / cost[GO]:.2f} | {waits[OURS]} ms | {waits[GO]} ms | {waits[PYTHON]} ms "
        f"| {sides[OURS]['resident_max_mb']:.0f} | {sides[GO]['resident_max_mb']:.0f} |"
    )


if __name__ == "__main__":
    main()
