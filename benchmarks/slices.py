"""How long building one event holds a receiver's loop, and what memory it takes: every protocol, events that are long and odd.

Each event of 250 KB and 1 MB is built in this process: CPU time in all, the longest step that nothing interrupts (the least of
three runs if it is above 5 ms: another program may have taken the caches), and the peak of memory, traced, beside what was
received. Writes ``benchmarks/results/slices.json`` and ``.md``.

    .venv/bin/python -m benchmarks.slices [--only courier]
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

from headrace_common.record.event import Reject
from headrace_common.session.interface import Frame

from benchmarks import load
from tests.long_events import CASES, Case, frame_of

SIZES: Final = (250_000, 1_000_000)
AGAIN: Final = 0.005
RESULTS: Final = Path(__file__).parent / "results"


def built(frame: Frame) -> tuple[float, float, str]:
    """CPU seconds in all and of the longest step; and what it became."""
    spent = longest = 0.0
    became = ""
    parts = frame.parts()
    while True:
        began = time.thread_time()
        part = next(parts, None)
        took = time.thread_time() - began
        spent, longest = spent + took, max(longest, took)
        if part is None:
            return spent, longest, became
        if part:
            became = str(part.reason.value) if isinstance(part, Reject) else "event"


def traced(frame: Frame) -> int:
    tracemalloc.start()
    try:
        for _ in frame.parts():
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure(case: Case, shape: str) -> dict[str, Any] | None:
    figures: dict[str, Any] = {}
    for size in SIZES:
        event = case.shapes[shape](size)
        runs: list[tuple[float, float, str]] = []
        while not runs or (len(runs) < 3 and min(run[1] for run in runs) > AGAIN):
            frame = frame_of(case, event)
            if frame is None:
                return None
            gc.collect()
            runs.append(built(frame))
        figures[str(size)] = {
            "spent_ms": min(run[0] for run in runs) * 1000,
            "longest_ms": min(run[1] for run in runs) * 1000,
            "became": runs[0][2],
        }
        if size == SIZES[0]:
            frame = frame_of(case, event)
            assert frame is not None
            figures["memory"] = traced(frame) / len(event)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="only ways in whose name contains this")
    only = parser.parse_args().only
    small, large = map(str, SIZES)
    lines = [
        f"One event of {SIZES[0] // 1000} KB and of {SIZES[1] // 1000} KB: CPU time to build it, the longest step in that, and "
        f"the peak of memory while the smaller one is built over its bytes, beside these. Written by `benchmarks/slices.py`.",
        "",
        "| way in | event | all | longest step | memory | becomes |",
        "|---|---|---|---|---|---|",
    ]
    measured: dict[str, dict[str, Any]] = {}
    for name, case in CASES.items():
        if only is not None and only not in name:
            continue
        for shape in case.shapes:
            found = measure(case, shape)
            if found is None:
                continue
            measured.setdefault(name, {})[shape] = found
            less, more = found[small], found[large]
            lines.append(
                f"| {name} | {shape} | {less['spent_ms']:.0f} / {more['spent_ms']:.0f} ms | "
                f"{less['longest_ms']:.1f} / {more['longest_ms']:.1f} ms | {found['memory']:.1f} × | {more['became']} |"
            )
            print(lines[-1], flush=True)
    if only is None:
        result = {"machine": load.machine(), "ways": measured}
        (RESULTS / "slices.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "slices.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
