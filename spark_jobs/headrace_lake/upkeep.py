"""Everything a running job does beside landing: it says how far it is, tells Kafka, and keeps the tables in shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from headrace_common.log import Log
from pyspark.sql import SparkSession

from headrace_lake.landing import Landed
from headrace_lake.maintenance import Maintenance
from headrace_lake.operations import LakeHealth
from headrace_lake.progress import Ends, Reports, Way, behind
from headrace_lake.settings import LakeProcessSettings, location
from headrace_lake.source import TopicPartition
from headrace_lake.standing import Standing


class Upkeep(AbstractContextManager["Upkeep"]):
    """For one run of the query. `landed_before`: how far the tables are; `way`: what the run has before it, if that ends."""

    def __init__(
        self,
        spark: SparkSession,
        settings: LakeProcessSettings,
        *,
        epoch: int,
        landed_before: Ends,
        way: Way | None,
        health: LakeHealth,
        log: Log,
        stopping: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._health = health
        self._log = log
        self._way = way
        self._behind: Mapping[TopicPartition, int] = {}
        self._begun = False
        self._standing = Standing(spark, settings.kafka, group=settings.lake.group, metrics=health.metrics, log=log)
        self._standing.landed(landed_before)
        self._maintenance = Maintenance(
            spark, location(settings.lake.path), settings.lake, epoch=epoch, metrics=health.metrics, log=log,
            stopping=stopping,
        )  # fmt: skip
        self._idle = ThreadPoolExecutor(1, "maintenance")  # a vacuum may take longer than the main loop may stand still
        self._turning: Future[None] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._maintenance.begin()
        reports = Reports(self._heard)
        self._spark.streams.addListener(reports)
        self._open.callback(self._standing.finish)
        self._open.callback(self._idle.shutdown)
        self._open.callback(self._spark.streams.removeListener, reports)
        if self._way is not None:
            self._open.enter_context(self._way)
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the piece of maintenance that is under way."""
        self._open.close()

    def landing(self) -> AbstractContextManager[None]:
        """Around a batch: nothing is maintained meanwhile."""
        return self._maintenance.landing()

    def landed(self, result: Landed) -> None:
        """A batch was landed. Called by Spark's thread."""
        self._health.landed(result)
        self._standing.landed(result.ends)
        left = {}
        if self._way is not None:
            self._way.landed(result.ends)
            left = {"left": self._way.left}
        self._log.info(
            "landed",
            batch=result.batch,
            records=result.records,
            events=result.events,
            quarantined=result.quarantined,
            **_totals(duplicates=result.duplicates, skipped=result.skipped),
            seconds=round(result.seconds, 2),
            **left,
        )

    def between(self) -> None:
        """A batch has ended and the next has not begun. Called by Spark's thread; blocks for what the budget allows."""
        self._maintenance.turn()

    def turn(self, *, idle: bool) -> None:
        """Called by the main loop, often; `idle`: no batch is being landed. Blocks for some seconds at times.

        Raises what `Maintenance.turn` raises.
        """
        self._standing.turn(self._behind)
        if self._turning is not None and self._turning.done():
            self._turning.result()
            self._turning = None
        if idle and self._begun and self._turning is None:  # before the first trigger a batch may be half done
            self._turning = self._idle.submit(self._maintenance.turn)

    def _heard(self, report: Mapping[str, Any]) -> None:
        self._begun = True
        if not report:
            return
        for step, milliseconds in report["durationMs"].items():
            self._health.metrics.step_seconds.labels(step).set(milliseconds / 1000)
        lag = behind(report["sources"][0])
        if lag:
            self._behind = lag
            self._health.lag(lag)


def _totals(**counts: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(by.values()) for name, by in counts.items() if by}
