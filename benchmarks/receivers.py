"""Measures what a receiver costs: CPU per event, memory, acknowledgement latency, saturated and at half of that rate.

.venv/bin/python -m benchmarks.receivers PROTOCOL [--native off] [--seconds 5] [--rounds 3] [--dry]
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.load import COST, Load, kafka, machine, options, phase, receiver, together, write

SHAPES: Final = {
    "forward": ((16, 500, 0), (256, 1, 0)),
    "lumberjack": ((16, 500, 0), (16, 1, 0), (16, 500, 900), (16, 500, 9_000)),
    "courier": ((16, 500, 0), (16, 1, 0), (16, 500, 900), (16, 500, 9_000)),
    "logjam": ((16, 1, 0), (16, 50, 0)),
    "segment": ((64, 1, 0), (8, 50, 0)),
    "relp": ((16, 500, 0), (256, 1, 0)),
}
"""Connections, the events of each frame, and the files that these name."""


def main() -> None:
    """Measures one protocol's receiver and writes its table."""
    parser = options(__doc__)
    parser.add_argument("protocol", choices=SHAPES)
    parser.add_argument("--native", choices=("off", "auto", "require"), default="auto", help="HEADRACE_NATIVE")
    given = parser.parse_args()
    rows = [
        "| shape | load | CPU-s per million events | events/s | ack p50 / p99 | resident |",
        "|---|---|---|---|---|---|",
    ]
    with (
        tempfile.TemporaryDirectory() as name,
        kafka(Path(name)) as bootstrap,
        receiver(given.protocol, bootstrap, Path(name), given.native) as (process, port),
    ):
        for connections, events, files in SHAPES[given.protocol]:
            rate, named = 0.0, f", {files:,} files" if files else ""
            for load in ("saturated", "half"):
                shape = Load(connections, events, given.seconds, rate, files=files)
                turns = [phase(given.protocol, shape, port, process, bootstrap) for _ in range(given.rounds + 1)]
                row = together(turns[1:])  # the first warms up
                rows.append(
                    f"| {connections} x {events}{named} | {load} | {row[COST]:.2f} | {row['events_per_second']:,.0f} "
                    f"| {row['ack_p50_ms']:.1f} / {row['ack_p99_ms']:.1f} ms | {row['resident_max_mb']:.0f} MB |"
                )
                rate = row["events_per_second"] / 2
    head = (
        f"{given.protocol.capitalize()}, HEADRACE_NATIVE={given.native}, connections x events a frame, acks=all, zstd, medians "
        f"of {given.rounds} rounds; {machine()}. Written by `python -m benchmarks.receivers {given.protocol}`."
    )
    write(given.protocol, "\n".join((head, "", *rows)), dry=given.dry)


if __name__ == "__main__":
    main()
