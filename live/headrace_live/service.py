"""Looks each second while a page asks for what it sees, else every ten seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import orjson
from headrace_cli.operating.exposition import Parts, Scraper
from headrace_reader.address import LakeAddress

from headrace_live import tables
from headrace_live.broker import KafkaWatch
from headrace_live.looks import Figures, KafkaLook, Look, TablesLook
from headrace_live.model import Model
from headrace_live.words import behind_seconds, verdict

WATCHED: Final = 1.0
"""Seconds between two looks while a page asks for the state."""
IDLE: Final = 10.0
"""Seconds between two looks while none does: enough for the last ten minutes."""
ASKED: Final = 5.0
"""Seconds for which a page that has asked for the state counts as open."""
FIND_EVERY: Final = 5.0
"""Seconds between two searches for processes."""
TABLES_EVERY: Final = 30.0

Finder = Callable[[], Awaitable[Parts]]


class LiveService:
    """Looks at everything. One look serves all pages."""

    def __init__(self, finder: Finder, kafka: KafkaWatch | None, lake: LakeAddress | None) -> None:
        self._finder = finder
        self._kafka = kafka
        self._lake = lake
        self._scraper = Scraper()
        self._model = Model()
        self._parts: Parts = ()
        self._kafka_look: KafkaLook | None = None
        self._tables_look: TablesLook | None = None
        self._asked = -ASKED
        self._tasks: list[asyncio.Task[None]] = []
        self.figures: Figures | None = None

    def start(self) -> None:
        work: list[Callable[[], Coroutine[Any, Any, None]]] = [self._find, self._look]
        work += [self._watch_kafka] if self._kafka is not None else []
        work += [self._watch_tables] if self._lake is not None else []
        self._tasks = [asyncio.create_task(each()) for each in work]

    async def stop(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._scraper.close()
        if self._kafka is not None:
            await self._kafka.close()

    def failed(self) -> str:
        """Return why a task has ended; empty while all run."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return "; ".join(repr(task.exception()) for task in ended)

    @property
    def watched(self) -> bool:
        """Whether a page has asked a moment ago."""
        return time.monotonic() < self._asked + ASKED

    def state(self, since: float) -> bytes:
        """Return the state as JSON, with the points of the history after `since` (Unix time). A page has asked."""
        self._asked = time.monotonic()
        if self.figures is None:
            return b"{}"
        return orjson.dumps(document(self.figures, self._model, since), default=_plain)

    async def _find(self) -> None:
        while True:
            self._parts = await self._finder()
            await asyncio.sleep(FIND_EVERY if self._parts else 1)

    async def _look(self) -> None:
        while True:
            scrapes = await self._scraper.look(self._parts)
            look = Look(time.monotonic(), time.time(), scrapes, self._kafka_look, self._tables_look)
            self.figures = self._model.add(look)
            await self._pause()

    async def _watch_kafka(self) -> None:
        assert self._kafka is not None
        while True:
            self._kafka_look = await self._kafka.look()
            await self._pause()

    async def _watch_tables(self) -> None:
        assert self._lake is not None
        while True:
            self._tables_look = await asyncio.to_thread(tables.look, self._lake)
            await asyncio.sleep(TABLES_EVERY)

    async def _pause(self) -> None:
        """Wait until the next look: until a page asks, at most `IDLE`."""
        for _ in range(round(IDLE / WATCHED)):
            await asyncio.sleep(WATCHED)
            if self.watched or len(self._model.history) < 3:
                return


def document(figures: Figures, model: Model, since: float) -> dict[str, Any]:
    """Return the state as the page reads it, with the points of the history after `since`."""
    outage = figures.outage
    return {
        "time": figures.time,
        "verdict": verdict(figures),
        "figures": {
            "events": figures.events,
            "pending": figures.pending,
            "oldest": figures.oldest,
            "p99": figures.p99,
            "behind": behind_seconds(figures),
            "span": figures.span,
        },
        "receivers": figures.receivers,
        "kafka": None
        if figures.kafka is None
        else {"problem": figures.kafka.problem, "brokers": figures.kafka.brokers, "missing": figures.kafka.missing},
        "down": outage is not None and outage.ended is None,
        "outage": outage,
        "lanes": figures.lanes,
        "lake": figures.lake,
        "tables": figures.tables,
        "quarantined": figures.quarantined,
        "sources": figures.sources,
        "history": [point for point in model.history if (point["time"] or 0) > since],
    }


def _plain(value: object) -> Any:
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError
