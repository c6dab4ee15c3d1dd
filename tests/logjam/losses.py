"""Asks which numbers were lost, of records as the lake has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import duckdb
import pyarrow as pa
from headrace_reader.logjam import LOSSES

Row = tuple[str, str, int]
"""Id, attributes, and when it was received (ms)."""


@cache
def _lake() -> duckdb.DuckDBPyConnection:
    """One for all: to plan the query takes longer than to answer it."""
    lake = duckdb.connect(config={"threads": 1})
    lake.execute("create table stored (attributes varchar, ms bigint)")
    lake.execute(
        "create view events as select *, '/logjam/one' as source, 'logjam' as protocol,"
        " make_timestamptz(ms * 1000) as received_time from stored"
    )
    lake.execute("create view quarantine as select * from events where false")
    lake.execute(f"prepare losses as select device, from_sequence, to_sequence from ({LOSSES}) order by all")
    return lake


def losses(rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    """The ranges that the query finds: device, first, and one past the last."""
    kept = {row[0]: row for row in reversed(rows)}.values()  # the lake keeps the first of an id
    given = pa.table({"attributes": [row[1] for row in kept], "ms": [row[2] for row in kept]})
    lake = _lake()
    lake.execute("delete from stored")
    lake.register("given", given).execute("insert into stored select * from given")
    found = lake.execute("execute losses").fetchall()
    return [(int(device), int(start), int(end)) for device, start, end in found]
