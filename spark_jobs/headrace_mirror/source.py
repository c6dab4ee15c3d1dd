"""One version of a Delta table: its columns, and the files that its log lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.properties import is_foreign, strange_features

VERSION: Final = "headrace.delta-version"
"""Property of a snapshot: the version of the Delta table whose files it lists."""
IDENTITY: Final = "headrace.delta-id"
"""Property of a snapshot: Delta's id of that table: one that is created again at the same place has another."""
_PATH: Final = "headrace.delta-path"
"""Property of a snapshot: where that table was."""
_COMMIT: Final = "headrace.delta-commit"
"""Property of a snapshot: a digest of what the log says of that version: after a backup was put back, another commit has the same
number.
"""
_OPTIONS: Final = {"max_retries": "3", "retry_timeout": "30s", "connect_timeout": "10s"}
"""How long deltalake tries a store that does not answer. All else it takes from the environment: AWS_…, AZURE_…, GOOGLE_…"""


@dataclass(frozen=True)
class DeltaSource:
    """The content of a Delta table at one version."""

    columns: pa.Schema
    partitioned_by: tuple[str, ...]
    files: Mapping[str, tuple[Any, ...]]
    """Path -> values of `partitioned_by`; a date as days since 1970."""


class Source:
    """The newest version of the Delta table at the folder or URL `path`. Reads the store, and may raise what deltalake does."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        self.path = path
        self._table = table
        self.version: Final = table.version()
        said = json.dumps(table.history(1), sort_keys=True, default=str)
        self.stamp: Final = {
            VERSION: str(self.version),
            IDENTITY: str(table.metadata().id),
            _PATH: path,
            _COMMIT: sha256(said.encode()).hexdigest(),
        }
        """The properties of the snapshot that shows it."""

    def content(self) -> DeltaSource:
        """Returns the content. Raises `HaltError` if the files hold other rows than the log says."""
        protocol, about = self._table.protocol(), self._table.metadata()
        if strange := strange_features(
            {
                "minReaderVersion": protocol.min_reader_version,
                "readerFeatures": protocol.reader_features,
                "writerFeatures": protocol.writer_features,
            }
        ):
            raise HaltError(
                f"the table {self.path} has the feature {', '.join(strange)}, which the mirror does not know"
            )
        keys = tuple(about.partition_columns)
        listed = self._table.get_add_actions(flatten=True)
        paths = listed.column("path").to_pylist()
        if foreign := next(filter(is_foreign, paths), None):
            raise HaltError(f"the table {self.path} is a clone, whose files belong to another table ({foreign})")
        values = [[_plain(each) for each in listed.column(f"partition.{key}").to_pylist()] for key in keys]
        partitions = list(zip(*values, strict=True)) if keys else [()] * len(paths)
        files = {f"{self.path}/{each}": values for each, values in zip(paths, partitions, strict=True)}
        return DeltaSource(pa.schema(self._table.schema().to_arrow()), keys, files)


def newest(path: str) -> Source | None:
    """Returns the Delta table at `path`; None if it is missing."""
    try:
        return Source(path, DeltaTable(path, storage_options=_OPTIONS if "://" in path else None))
    except TableNotFoundError:
        return None


def _plain(value: Any) -> Any:
    """Returns a partition's value as Iceberg stores it."""
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
