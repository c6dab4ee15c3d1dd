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
from pyiceberg.catalog import Catalog, load_catalog
from typing_extensions import override

from headrace_mirror.catalog import install
from headrace_mirror.metrics import MirrorMetrics
from headrace_mirror.settings import MirrorSettings
from headrace_mirror.source import IDENTITY, VERSION, Source, newest
from headrace_mirror.target import IcebergTarget

_BATCHES: Final = "batches"
_TABLES: Final = ("events", "quarantine", "duplicates", "gaps", "erasures")


class Follower(Health):
    """The mirror of one lake."""

    def __init__(self, settings: MirrorSettings, metrics: MirrorMetrics, log: Log) -> None:
        self._properties = {name: value.get_secret_value() for name, value in settings.catalog.items()}
        self._namespace = Catalog.identifier_to_tuple(self._properties.pop("namespace", "headrace"))
        lake = location(settings.lake)
        self._lake = f"s3{lake.removeprefix('s3a')}" if lake.startswith("s3a://") else lake
        self._every = settings.every
        self._metrics = metrics
        self._log = log
        self._trouble = "it has not looked yet"
        self._stopping = threading.Event()

    @cached_property
    def _catalog(self) -> Catalog:
        install()
        return load_catalog("headrace", **self._properties)

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
        found = {
            name: source for name in (_BATCHES, *_TABLES) if (source := newest(f"{self._lake}/{name}")) is not None
        }
        if _BATCHES not in found:
            raise FileNotFoundError(f"there are no tables in {self._lake} yet")
        catalog = self._catalog
        if not catalog.namespace_exists(self._namespace):
            catalog.create_namespace_if_not_exists(self._namespace)
        for name in reversed([name for name, source in found.items() if self._is_behind(name, source)]):
            added, removed = self._target(name).write(found[name], self._lake)
            self._metrics.lag.labels(name).set(0)
            self._log.info("mirrored", table=name, version=found[name].version, added=added, removed=removed)
        self._metrics.current.set_to_current_time()
        self._trouble = ""

    def _is_behind(self, name: str, source: Source) -> bool:
        """Returns whether the Iceberg table shows another version. Raises `ConfigError` if it shows another table."""
        shown = self._target(name).shown()
        if shown.get(IDENTITY) not in (None, source.stamp[IDENTITY]):
            raise ConfigError(
                f"{'.'.join(self._namespace)}.{name} shows another Delta table than {source.path}: give another"
                " `namespace` in MIRROR__CATALOG, or drop the Iceberg table if the Delta table was created again"
            )
        self._metrics.lag.labels(name).set(max(0, source.version - int(shown.get(VERSION, -1))))
        return any(shown.get(key) != value for key, value in source.stamp.items())

    def _target(self, name: str) -> IcebergTarget:
        return IcebergTarget(self._catalog, (*self._namespace, name))

    def _failed(self, error: Exception) -> None:
        self._metrics.failures.inc()
        if self._trouble != (trouble := f"{type(error).__name__}: {error}"):
            self._log.warning("mirror failed", reason=trouble)
        self._trouble = trouble

    @override
    def live_problems(self) -> list[str]:
        return []

    @override
    def ready_problems(self) -> list[str]:
        return [self._trouble] if self._trouble else []
