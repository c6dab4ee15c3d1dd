"""The proof of exactly once: the command line's own code, over tables in memory that are written to a disk for it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
from deltalake import CommitProperties, Transaction
from headrace_lake.tables.erasures import ERASURES
from headrace_lake.tables.erasures import SCHEMA as OF_ERASURES
from headrace_lake.tables.layout import DAY, SCHEMAS
from headrace_lake.tables.properties import APP_ID, ERASED_APP, RETAINED_APP
from headrace_reader import proof, tables

from tests.lake.model.tables import Disk, Row
from tests.lake.test_query import append


def contradictions(disk: Disk, now: float) -> list[str]:
    """Returns the checks of the proof that do not hold at the time `now`."""

    def connect(lake: str) -> duckdb.DuckDBPyConnection:
        connection = tables.connect(lake, threads=1)
        connection.execute(f"create macro now() as to_timestamp({now})")
        return connection

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(proof, "connect", connect):
        for name, table in disk.tables.items():
            last = {app: table.last(app) for app in (APP_ID, ERASED_APP, RETAINED_APP)}
            told = [Transaction(app, version) for app, version in last.items() if version >= 0]
            schema = OF_ERASURES if name == ERASURES else SCHEMAS[name]
            append(Path(folder, name), schema, [*map(_typed, table.rows)], CommitProperties(app_transactions=told))
        return [f"{row['check']}: {row['detail']}" for row in proof.exactly_once(folder) if not row["ok"]]


def _typed(row: Mapping[str, Any]) -> Row:
    """Days and times of Kafka as the tables have them."""
    at = row.get("received_time")
    typed = {**row, "received_time": None if at is None else datetime.fromtimestamp(at / 1000, UTC)}
    return {**typed, DAY: date.fromisoformat(row[DAY])} if DAY in row else typed
