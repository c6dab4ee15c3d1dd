"""The proof of exactly once: the command line's own code, over tables in memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import duckdb
import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.erasures import SCHEMA as OF_ERASURES
from headrace_lake.tables.layout import DAY, SCHEMAS
from headrace_reader import proof, tables
from pyspark.sql.pandas.types import to_arrow_schema

from tests.lake.model.tables import Disk, Table

_STORE: Final = "s3://model/"


class Opened:
    """In place of `deltalake.DeltaTable`."""

    def __init__(self, disk: Disk, path: str, storage_options: object = None) -> None:
        folder = path.removeprefix(_STORE)
        if folder not in disk.tables:
            raise TableNotFoundError(path)
        self._table: Table = disk.tables[folder]
        self._schema = _schema(folder.rpartition("/")[2])

    def metadata(self) -> Any:
        return SimpleNamespace(configuration={}, description="")

    def protocol(self) -> Any:
        return SimpleNamespace(min_reader_version=1, reader_features=None, writer_features=None)

    def schema(self) -> Any:
        return SimpleNamespace(fields=[SimpleNamespace(name=name, type="", metadata={}) for name in self._schema.names])

    def file_uris(self) -> list[str]:
        return []

    def transaction_version(self, app: str) -> int | None:
        last = self._table.last(app)
        return None if last < 0 else last

    def to_pyarrow_dataset(self) -> pa.Table:
        rows = self._table.rows
        return pa.table(
            {field.name: pa.array([_value(row, field.name) for row in rows], field.type) for field in self._schema}
        )


@cache
def _schema(name: str) -> pa.Schema:
    return to_arrow_schema(OF_ERASURES if name == ERASURES else SCHEMAS[name], timezone="UTC")


def _value(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if name == DAY and isinstance(value, str):
        return date.fromisoformat(value)
    return value * 1000 if name == "received_time" and value is not None else value


def contradictions(disk: Disk, lake: str, now: float) -> list[str]:
    """Returns the checks of the proof that do not hold at the time `now`."""

    def connect(place: str) -> duckdb.DuckDBPyConnection:
        connection = tables.connect(place, threads=1)
        connection.execute(f"create macro now() as to_timestamp({now})")
        return connection

    with (
        mock.patch.object(tables, "DeltaTable", partial(Opened, disk)),
        mock.patch.object(proof, "connect", connect),
    ):
        return [f"{row['check']}: {row['detail']}" for row in proof.exactly_once(_STORE + lake) if not row["ok"]]
