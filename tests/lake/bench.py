"""One topic pair, one lake, and the jobs that a test starts on them and kills at observed points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace_common.operations.settings import KafkaSettings
from headrace_lake.tables.layout import BATCHES, EVENTS, QUARANTINE

from tests.lake.lander import Lander, await_true, version
from tests.lake.stream import Sent


class Bench:
    """Starts jobs; `stop` kills all of them."""

    def __init__(self, kafka: KafkaSettings, folder: Path) -> None:
        self.kafka = kafka
        self.lake = folder / "lake"
        self.folder = folder
        self.sent = Sent()
        self.jobs: list[Lander] = []

    def start(
        self, checkpoint: str = "checkpoint", *, once: bool = False, batch_records: int = 1000, **options: Any
    ) -> Lander:
        """Starts a job; `options`: those of `Lander`."""
        job = Lander(self.kafka, self.lake, self.folder / checkpoint, once=once, batch_records=batch_records, **options)
        self.jobs.append(job)
        return job

    def files(self) -> set[Path]:
        """Files of the events table, committed or not."""
        return {path for path in (self.lake / EVENTS).rglob("*.parquet") if "_delta_log" not in path.parts}

    def freeze_while_writing(self, job: Lander) -> int:
        """Freezes `job` while it writes events: files exist, their commit does not. Returns the batch."""
        job.next("landing")
        while True:
            known, before = version(self.lake, EVENTS), self.files()
            await_true(lambda before=before: bool(self.files() - before), "a file of the events table", job)
            job.freeze()
            if version(self.lake, EVENTS) == known:
                return (known + 1) & 0xFFFFFFFF
            job.thaw()  # the commit was faster

    def freeze_at(self, job: Lander, point: str) -> int:
        """Freezes `job` at `point`, and checks in the tables' logs that it is there. Returns the batch."""
        if point == "events being written":
            return self.freeze_while_writing(job)
        while True:
            line = job.next(point)
            job.freeze()
            batch = line["batch"]
            if self._is_at(point, batch):
                return batch
            job.thaw()  # the signal came late: try the next batch

    def _is_at(self, point: str, batch: int) -> bool:
        done = {"batch begins": 0, "events written": 1, "quarantine written": 2, "batch written": 3}[point]
        numbers = [version(self.lake, table) & 0xFFFFFFFF for table in (EVENTS, QUARANTINE, BATCHES)]
        return [number == batch for number in numbers] == [index < done for index in range(3)]

    def stop(self) -> None:
        for job in self.jobs:
            job.kill()
