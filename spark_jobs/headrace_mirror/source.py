"""One version of a Delta table: its columns, and the files that its log lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from headrace_lake.spark.halt import HaltError
from headrace_lake.tables.properties import strange_features

_OPTIONS: Final = {"max_retries": "3", "retry_timeout": "30s", "connect_timeout": "10s"}
"""How long deltalake tries a store that does not answer. All else it takes from the environment: AWS_…, AZURE_…, GOOGLE_…"""


@dataclass(frozen=True)
class DeltaSource:
    """A Delta table at one version."""

    name: str
    path: str
    identity: str
    """Delta's id of the table: a table that is created again at the same place has another."""
    version: int
    commit: str
    """A digest of what the log says of the commit `version`: after a backup was put back, another commit has the same number."""
    columns: Mapping[str, Any]
    """Name -> type, as in Delta's JSON."""
    partitioned_by: tuple[str, ...]
    counted: tuple[str, ...]
    """The columns that have statistics."""
    files: Mapping[str, tuple[Any, ...]]
    """Path -> values of `partitioned_by`; a date as days since 1970."""


class Tables:
    """Follows the Delta tables of a lake. Every call reads the store and may raise what deltalake does."""

    def __init__(self, lake: str) -> None:
        self.lake = f"s3{lake.removeprefix('s3a')}" if lake.startswith("s3a://") else lake
        self._open: dict[str, DeltaTable] = {}
        self._commits: dict[str, str] = {}  # of the tables in `_open`, as they were found

    def path(self, name: str) -> str:
        """Returns the folder or URL of the table `name`."""
        return f"{self.lake}/{name}"

    def newest(self, name: str) -> DeltaTable | None:
        """Returns the table `name` at its newest version; None if it is missing."""
        table = self._open.get(name)
        if table is not None and _commit(table) == self._commits[name]:
            table.update_incremental()
        else:  # also where a backup was put back: what comes next does not follow what was read
            try:
                table = DeltaTable(self.path(name), storage_options=_OPTIONS if "://" in self.lake else None)
            except TableNotFoundError:
                return None
        self._open[name], self._commits[name] = table, _commit(table)
        return table

    def opened(self, name: str) -> DeltaTable:
        """Returns the table `name` as `newest` last found it."""
        return self._open[name]

    def commit(self, name: str) -> str:
        """Returns `DeltaSource.commit` of the table `name`, as `newest` last found it."""
        return self._commits[name]

    def source(self, name: str) -> DeltaSource:
        """Returns the content of the table `name`, as `newest` last found it. Raises `HaltError` if its files hold other rows
        than its log says, and `ConfigError` if Iceberg has no such columns.
        """
        table = self._open[name]
        protocol, about = table.protocol(), table.metadata()
        path = self.path(name)
        if strange := strange_features(
            {
                "minReaderVersion": protocol.min_reader_version,
                "readerFeatures": protocol.reader_features,
                "writerFeatures": protocol.writer_features,
            }
        ):
            raise HaltError(f"the table {path} has the feature {', '.join(strange)}, which the mirror does not know")
        columns = {each["name"]: each["type"] for each in json.loads(table.schema().to_json())["fields"]}
        keys = tuple(about.partition_columns)
        listed = table.get_add_actions(flatten=True)
        paths = listed.column("path").to_pylist()
        if foreign := next((each for each in paths if "://" in each or each.startswith(("/", "file:"))), None):
            raise HaltError(f"the table {path} is a clone, whose files belong to another table ({foreign})")
        values = [[_plain(each) for each in listed.column(f"partition.{key}").to_pylist()] for key in keys]
        partitions = list(zip(*values, strict=True)) if keys else [()] * len(paths)
        counted = about.configuration.get("delta.dataSkippingStatsColumns", "")
        return DeltaSource(
            name, path, str(about.id), table.version(), self._commits[name], columns, keys,
            tuple(part.strip("` ") for part in counted.split(",") if part.strip("` ")),
            {f"{path}/{each}": values for each, values in zip(paths, partitions, strict=True)},
        )  # fmt: skip

    def forget(self) -> None:
        """Makes the next call open every table again."""
        self._open.clear()


def _commit(table: DeltaTable) -> str:
    return sha256(json.dumps(table.history(1), sort_keys=True, default=str).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a partition's value as Iceberg stores it."""
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
