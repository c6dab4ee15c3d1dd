"""Follows the lake's Delta tables with Iceberg tables, round by round."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.health import Health
from headrace_common.operations.log import Log
from headrace_lake.configuration.settings import location
from headrace_lake.spark.halt import HaltError
from pyiceberg.catalog import Catalog
from typing_extensions import override

from headrace_mirror.catalog import opened
from headrace_mirror.metrics import MirrorMetrics
from headrace_mirror.settings import MirrorSettings
from headrace_mirror.source import DeltaSource, Tables
from headrace_mirror.target import COMMIT, IDENTITY, PATH, IcebergTarget

_BATCHES: Final = "batches"
_TABLES: Final = ("events", "quarantine", "duplicates", "gaps", "erasures")


class Follower(Health):
    """The mirror of one lake."""

    def __init__(self, settings: MirrorSettings, metrics: MirrorMetrics, log: Log) -> None:
        self._properties = {name: value.get_secret_value() for name, value in settings.catalog.items()}
        self._namespace = Catalog.identifier_to_tuple(self._properties.pop("namespace", "headrace"))
        self._tables = Tables(location(settings.lake))
        self._every = settings.every
        self._metrics = metrics
        self._log = log
        self._targets: dict[str, IcebergTarget] = {}
        self._trouble = "it has not looked yet"
        self._stopping = threading.Event()

    @cached_property
    def _catalog(self) -> Catalog:
        return opened(self._properties)

    def stop(self, *_: object) -> None:
        """Makes `run` return after the round that is under way."""
        self._stopping.set()

    def run(self) -> None:
        """Mirrors until `stop`. Raises `ConfigError` and `HaltError`; after any other failure it tries again."""
        while not self._stopping.is_set():
            try:
                self.once()
            except (ConfigError, HaltError):
                raise
            except Exception as error:
                self._failed(error)
            self._stopping.wait(self._every)

    def once(self) -> None:
        """Brings every Iceberg table to the newest version of its Delta table.

        `batches` is read first and written last, so that a reader of one of its lines finds the line's rows.
        """
        catalog = self._catalog
        batches = self._tables.newest(_BATCHES)
        there = [name for name in (_BATCHES, *_TABLES) if name == _BATCHES or self._tables.newest(name)]
        if batches is None:
            raise FileNotFoundError(f"there are no tables in {self._tables.lake} yet")
        for name in there:
            if (target := self._targets.get(name)) is not None:  # before the catalog is asked, which may be away
                self._metrics.lag.labels(name).set(max(0, self._tables.opened(name).version() - target.version))
        if not catalog.namespace_exists(self._namespace):
            catalog.create_namespace_if_not_exists(self._namespace)
        for source in reversed([source for name in there if (source := self._behind(name)) is not None]):
            self._mirror(source)
        self._metrics.current.set_to_current_time()
        self._trouble = ""

    def _behind(self, name: str) -> DeltaSource | None:
        """Reads the Delta table, if its Iceberg table shows another version. Raises `ConfigError` if it shows another table."""
        table = self._tables.opened(name)
        target = self._targets.setdefault(name, IcebergTarget(self._catalog, (*self._namespace, name)))
        shown = target.mirrored()
        if shown.get(IDENTITY) not in (None, str(table.metadata().id)):
            raise ConfigError(
                f"{'.'.join(self._namespace)}.{name} shows another Delta table than {self._tables.path(name)}: give another"
                " `namespace` in MIRROR__CATALOG, or drop the Iceberg table if the Delta table was created again"
            )
        behind = table.version() - target.version
        self._metrics.lag.labels(name).set(max(0, behind))
        same = (shown.get(PATH), shown.get(COMMIT)) == (self._tables.path(name), self._tables.commit(name))
        return self._tables.source(name) if behind or not same else None

    def _mirror(self, source: DeltaSource) -> None:
        added, removed = self._targets[source.name].write(source, self._tables.lake)
        self._metrics.files_added.labels(source.name).inc(added)
        self._metrics.files_removed.labels(source.name).inc(removed)
        self._metrics.lag.labels(source.name).set(0)
        self._log.info("mirrored", table=source.name, version=source.version, added=added, removed=removed)

    def _failed(self, error: Exception) -> None:
        self._metrics.failures.inc()
        self._tables.forget()
        if self._trouble != (trouble := f"{type(error).__name__}: {error}"):
            self._log.warning("mirror failed", reason=trouble)
        self._trouble = trouble

    @override
    def live_problems(self) -> list[str]:
        return []

    @override
    def ready_problems(self) -> list[str]:
        return [self._trouble] if self._trouble else []
