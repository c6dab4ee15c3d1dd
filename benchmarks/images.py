"""The images: how large they are above their base, and how long a start takes until ``/readyz`` is green, on this machine.

Starts each image as compose does, without rights and with a root file system that nobody can write, beside a broker in a
container. The time is from Docker's own note of the start to the first green answer; the processor's time until then depends
less on what else the machine does. The base image's row is a container that starts Python and ends: the floor. Writes
``benchmarks/results/images.json`` and ``.md``.

    ./headrace images && .venv/bin/python -m benchmarks.images [NAME …] [--tag 0.1.0] [--runs 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import docker
from headrace_cli.machine.images import all_images
from headrace_common import __version__
from headrace_common.operations.settings import KafkaSettings, TopicSettings, environment
from headrace_common.topics import ensure
from testcontainers.core.network import Network

from tests.containers.running import HARDENED, KafkaContainer

RESULTS = Path(__file__).parent / "results"
BASE = "python:3.12-slim"
PATIENCE = 600.0
MB = 1_000_000


def started_at(container: Any) -> float:
    """Docker's own note of the start, in Unix seconds."""
    container.reload()
    text = container.attrs["State"]["StartedAt"]
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


def finished_at(container: Any) -> float:
    container.reload()
    text = container.attrs["State"]["FinishedAt"]
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


def green(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def start(client: Any, image: str, network: str) -> tuple[float, float]:
    """Seconds from the start to readiness, and the processor's seconds until then."""
    variables = environment("kafka", bootstrap_servers=KafkaContainer.INSIDE)
    container = client.containers.run(
        image, detach=True, environment=variables, network=network, ports={"8080/tcp": ("127.0.0.1", None)},
        tmpfs={"/tmp": "exec,mode=1777", "/var/lib/headrace": "uid=185,gid=185,mode=755"}, **HARDENED,
    )  # fmt: skip
    try:
        began = started_at(container)
        port = int(container.ports["8080/tcp"][0]["HostPort"])
        while not green(port):
            container.reload()
            if container.status == "exited" or time.time() - began > PATIENCE:
                raise SystemExit(f"{image} does not start:\n{container.logs().decode()}")
            time.sleep(0.01)
        took = time.time() - began
        used = container.stats(stream=False, one_shot=True)["cpu_stats"]["cpu_usage"]["total_usage"]
        return took, used / 1e9
    finally:
        container.remove(force=True)


def floor(client: Any) -> float:
    """Seconds that a container takes which starts Python and ends."""
    container = client.containers.run(BASE, ["python", "-c", "pass"], detach=True)
    try:
        container.wait()
        return finished_at(container) - started_at(container)
    finally:
        container.remove(force=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="images to start; all are measured. Default: all")
    parser.add_argument("--tag", default=__version__)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    client = docker.from_env()
    base = client.images.get(BASE).attrs["Size"]
    rows = []
    with Network() as network, KafkaContainer(network) as broker:
        asyncio.run(ensure(KafkaSettings(bootstrap_servers=broker.bootstrap), TopicSettings()))
        times = [floor(client) for _ in range(arguments.runs)]
        rows.append({"image": BASE, "bytes": base, "above_base": 0, "seconds": times, "cpu": []})
        for image in all_images():
            reference = image.reference(arguments.tag)
            size = client.images.get(reference).attrs["Size"]
            # the tools have nothing to be ready for
            wanted = image.name != "tools" and image.name in (arguments.names or [image.name])
            runs = arguments.runs if wanted else 0
            starts = [start(client, reference, network.name) for _ in range(runs)]
            sizes = {"bytes": size, "above_base": size - base}
            rows.append(
                {
                    "image": f"headrace-{image.name}",
                    **sizes,
                    "seconds": [took for took, _ in starts],
                    "cpu": [used for _, used in starts],
                }
            )
            print(rows[-1])
    load = os.getloadavg()[1]
    RESULTS.joinpath("images.json").write_text(
        json.dumps({"rows": rows, "runs": arguments.runs, "cores": os.cpu_count(), "load": load}, indent=1) + "\n"
    )
    lines = [
        f"`python -m benchmarks.images`: {arguments.runs} starts of each on {os.cpu_count()} cores, load average {load:.1f}: "
        "seconds grow with it, CPU-s do not.",
        "",
        "| image | MB | MB above the base | s until ready, median | slowest | CPU-s until then, median |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = ["", "", ""]
        if row["seconds"]:
            seconds[:2] = [f"{statistics.median(row['seconds']):.1f}", f"{max(row['seconds']):.1f}"]
        if row["cpu"]:
            seconds[2] = f"{statistics.median(row['cpu']):.1f}"
        cells = [f"{row['bytes'] / MB:.0f}", f"{row['above_base'] / MB:.0f}", *seconds]
        lines.append(f"| `{row['image']}` | {' | '.join(cells)} |")
    RESULTS.joinpath("images.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
