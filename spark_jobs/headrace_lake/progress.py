"""How far the job is: from Spark's own reports, and as a line on a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headrace_lake.source import TopicPartition

Ends = Mapping[TopicPartition, int]


class Reports(StreamingQueryListener):
    """Hands each progress report of the session's query to `heard`, in a thread of Spark's; an empty one while it idles."""

    def __init__(self, heard: Callable[[Mapping[str, Any]], None]) -> None:
        self._heard = heard

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """As Spark wants it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """As Spark wants it."""
        self._heard(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """As Spark wants it."""
        self._heard({})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """As Spark wants it."""


def behind(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Offsets that each partition is behind, of a progress report's source; empty when it says nothing of them."""
    latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
    return {
        (topic, int(number)): max(0, offset - end.get(topic, {}).get(number, offset))
        for topic, partitions in latest.items()
        for number, offset in partitions.items()
    }


def _offsets(report: Any) -> dict[str, dict[str, int]]:
    """A report has offsets as a mapping, as JSON text, or as the text ``null``; one of a query that was stopped, no text."""
    value = json.loads(report) if isinstance(report, str) and report else report
    return value if isinstance(value, dict) else {}


class Way:
    """What a run with a known end has before it: from `starts` to `ends`; a partition that is in neither counts nothing.

    On a terminal it shows a line for as long as its block lasts; log lines appear above it.
    """

    def __init__(self, starts: Ends, ends: Ends) -> None:
        self._at = dict(starts)
        self._done = 0
        self._began = time.monotonic()
        self.total = sum(max(0, end - starts.get(pair, end)) for pair, end in ends.items())
        """Offsets to land."""
        console = Console(stderr=True)
        self._shown: Progress | None = None
        if console.is_terminal:
            self._shown = Progress(
                SpinnerColumn(), TextColumn("landed"), BarColumn(), TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=True),
                console=console,
            )  # fmt: skip
            self._task = self._shown.add_task("", total=self.total, figures="")

    @property
    def left(self) -> int:
        """Offsets that are not landed yet."""
        return max(0, self.total - self._done)

    def landed(self, ends: Ends) -> None:
        """Everything before `ends` is landed."""
        for pair, end in ends.items():
            self._done += max(0, end - self._at.get(pair, end))
            self._at[pair] = end
        if self._shown is not None:
            rate = self._done / max(0.001, time.monotonic() - self._began)
            figures = f"{self._done:,} / {self.total:,} records, {rate:,.0f}/s"
            self._shown.update(self._task, completed=min(self._done, self.total), figures=figures)

    def __enter__(self) -> Self:
        if self._shown is not None:
            self.landed({})
            self._shown.start()
            _log_to_present_stderr()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()
            _log_to_present_stderr()


def _log_to_present_stderr() -> None:
    """Rich puts a stream of its own in the place of stderr while it draws: lines written there appear above."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)
