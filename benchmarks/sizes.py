"""Measures what an event takes on Kafka's disks and in the lake: a stack on this machine, varied log lines, the folders' bytes.

Kafka's part is the bytes of the events topic's segments, one replica; the lake's the bytes of the data files, as they land,
before compaction. Writes ``benchmarks/results/sizes.json`` and ``.md``.

    .venv/bin/python -m benchmarks.sizes [--events 200000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from headrace_cli.verbs import query
from headrace_cli.wire.send.connections import Tally
from headrace_cli.wire.send.source import ShopSource
from headrace_cli.wire.send.verb import run
from headrace_cli.wire.target import Target
from headrace_common.operations.errors import HeadraceError

RESULTS = Path(__file__).parent / "results"
PATIENCE = 1800.0


def headrace(*arguments: str) -> None:
    subprocess.run([sys.executable, "-P", "-m", "headrace_cli", *arguments], check=True, stdout=subprocess.DEVNULL)


def wait(what: str, condition: Callable[..., Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not in time: {what}")
        time.sleep(1)
    return found


def rows(lake: Path) -> int:
    try:
        (row,) = query.run("select count(*) as n from events", lake)
    except HeadraceError:
        return 0  # there is no table yet
    return int(row["n"])


def measure(events: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-sizes-") as folder:
        state = Path(folder) / "state"
        headrace("up", "--any-port", "--detach", "--state", str(state))
        try:
            record = json.loads((state / "run" / "stack.json").read_text())
            landed = 0
            for protocol in ("forward", "lumberjack", "courier"):
                before = kafka_bytes(state), lake_bytes(state)
                host, _, port = record["services"][protocol]["listen"].rpartition(":")
                tally, target = Tally(), Target(protocol, host, int(port))
                asyncio.run(run(target, ShopSource(events), tally, asyncio.Event(), connections=4))
                if tally.acknowledged != events:
                    raise SystemExit(f"{protocol}: {tally.acknowledged} of {events} were acknowledged")
                landed += events
                wanted = landed
                wait(f"{wanted} rows", lambda wanted=wanted: rows(state / "lake") >= wanted)
                (body,) = query.run(
                    f"select avg(length(body)) as n from events where protocol = '{protocol}'", state / "lake"
                )
                sizes[protocol] = {
                    "body": body["n"],
                    "kafka": (kafka_bytes(state) - before[0]) / events,
                    "lake": (lake_bytes(state) - before[1]) / events,
                }
        finally:
            headrace("down", "--state", str(state))
    return {"events": events, "sizes": sizes}


def kafka_bytes(state: Path) -> int:
    return sum(path.stat().st_size for path in (state / "kafka").rglob("headrace.events-*/*.log"))


def lake_bytes(state: Path) -> int:
    table = state / "lake" / "events"
    if not (table / "_delta_log").exists():
        return 0
    return int(sum(DeltaTable(str(table)).get_add_actions(flatten=True)["size_bytes"].to_pylist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    result = measure(parser.parse_args().events)
    (RESULTS / "sizes.json").write_text(json.dumps(result, indent=1) + "\n")
    lines = [
        f"Bytes of an event, {result['events']:,} of each protocol, in frames of 100; one replica, zstd; data files as they land."
        " Written by `python -m benchmarks.sizes`.",
        "",
        "| protocol | body | on Kafka's disk | in the table |",
        "|---|---|---|---|",
    ]
    for protocol, size in result["sizes"].items():
        lines.append(f"| {protocol} | {size['body']:.0f} | {size['kafka']:.0f} | {size['lake']:.0f} |")
    (RESULTS / "sizes.md").write_text("\n".join(lines) + "\n")
    print((RESULTS / "sizes.md").read_text())


if __name__ == "__main__":
    main()
