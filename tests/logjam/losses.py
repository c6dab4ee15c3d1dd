"""Asks which numbers were lost, of records as the lake has them."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
from headrace_reader.logjam import LOSSES

Row = tuple[str, str, int]
"""Id, attributes, and when it was received (ms)."""


def losses(rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    """The ranges that the query finds: device, first, and one past the last."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row[0], row)  # the lake keeps the first of an id
    with duckdb.connect() as lake:
        table = pa.table(
            {
                "source": ["/logjam/one"] * len(first),
                "protocol": ["logjam"] * len(first),
                "attributes": [each[1] for each in first.values()],
                "ms": pa.array([each[2] for each in first.values()], pa.int64()),
            }
        )
        lake.register("stored", table)
        lake.execute("create view events as select *, make_timestamptz(ms * 1000) as received_time from stored")
        lake.execute("create view quarantine as select * from events where false")
        found = lake.execute(f"select device, from_sequence, to_sequence from ({LOSSES}) order by all").fetchall()
    return [(int(device), int(start), int(end)) for device, start, end in found]
