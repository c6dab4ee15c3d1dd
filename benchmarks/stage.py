"""Provides what every measure of landing uses: a broker with topics, the job as a separate process, the table of results."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
from headrace_cli.machine.jars import listed
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import ensure

from benchmarks import load
from tests.contract.embedded import EmbeddedKafka
from tests.contract.processes import below
from tests.lake.lander import Lander

_PROPERTIES: Final = {
    "log.segment.bytes": str(256 << 20)
}  # many small segments would measure the broker instead of the job


def _as_it_ships() -> dict[str, str]:
    """The JVM without the quick start that tests use; for a trial, JDK_JAVA_OPTIONS may set one."""
    return {"JDK_JAVA_OPTIONS": os.environ.get("JDK_JAVA_OPTIONS", "")}


@dataclass
class Stage:
    """One broker, one lake, one checkpoint, and the started jobs."""

    folder: Path
    broker: EmbeddedKafka
    kafka: KafkaSettings
    jobs: list[Lander] = field(default_factory=list)

    @property
    def lake(self) -> Path:
        """The folder with the tables."""
        return self.folder / "lake"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / "checkpoint"

    def start(self, **options: Any) -> Lander:
        """Starts the unmodified job; `options`: those of `Lander`."""
        places = {"path": self.lake, "checkpoint": self.checkpoint, "variables": _as_it_ships()}
        self.jobs.append(Lander(self.kafka, **{**places, **options}))
        return self.jobs[-1]

    def replay(self, **options: Any) -> Lander:
        """Starts a replay of all that has landed; `options`: as of `start`."""
        command = [sys.executable, "-m", "headrace_lake", "replay", "--from-time", "1970-01-01"]
        return self.start(launcher=command, **options)

    def lose_checkpoint(self) -> None:
        """Deletes the checkpoint."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)


@contextmanager
def stage(partitions: int) -> Iterator[Stage]:
    """A stage; removed afterwards, with its broker and jobs."""
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as name:
        folder = Path(name)
        broker = EmbeddedKafka(folder / "kafka", properties=_PROPERTIES, heap="384m")
        broker.start()
        set_up = Stage(folder, broker, KafkaSettings(bootstrap_servers=broker.bootstrap))
        try:
            asyncio.run(ensure(set_up.kafka, TopicSettings(events_partitions=partitions, segments_partitions=0)))
            yield set_up
        finally:
            for job in set_up.jobs:
                job.kill()
            broker.stop()


def used(job: Lander) -> tuple[float, float]:
    """Returns the resident megabytes and the CPU seconds of driver and JVM."""
    memory, cpu = 0.0, 0.0
    for process in (psutil.Process(job.pid), *below(job.pid)):
        with suppress(psutil.NoSuchProcess):  # Hadoop forks for local files, many times a second
            memory += process.memory_info().rss / 1e6
            times = process.cpu_times()
            cpu += times.user + times.system
    return memory, cpu


def write(name: str, title: str, rows: list[tuple[str, object]], *, by: str, dry: bool) -> None:
    """Prints the table, and writes it as ``<name>.md`` unless it is a trial. `by`: the module and arguments that made it."""
    delta = next(jar.version for jar in listed("spark") if jar.artifact.startswith("delta-spark"))
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    head = (
        f"{title} PySpark {pyspark.__version__}, Delta {delta}, {os.cpu_count()} CPUs "
        f"({models[0] if models else platform.processor()}). Written by `python -m {by}`.\n\n"
    )
    table = "\n".join(["| what | figure |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows)])
    load.write(name, head + table, dry=dry)


def say(text: str) -> None:
    """Prints a line of progress."""
    print(text, flush=True)
