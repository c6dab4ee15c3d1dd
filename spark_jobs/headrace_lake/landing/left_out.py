"""Records that a batch leaves out: resends, and what was erased. They are listed while the batch is written, and become rows of
the table `duplicates`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from headrace_lake.tables.append import arrow_rows
from headrace_lake.tables.layout import DAY, DUPLICATES, SCHEMAS

_LISTED: Final = "left out"


class LeftOut(NamedTuple):
    """The place and id of a record that is left out, and the protocol by which it came."""

    topic_id: str
    partition: int
    offset: int
    event_id: str
    protocol: str | None


def listed(which: Column, column: str) -> Column:
    """Returns an aggregate to observe: the rows `which` are left out, with their id in `column`. `read` reads its value."""
    row = sf.array("topic_id", sf.col("partition").cast("string"), sf.col("offset").cast("string"), column, "protocol")
    return sf.to_json(sf.collect_list(sf.when(which, row))).alias(_LISTED)


def read(seen: Mapping[str, Any]) -> list[LeftOut]:
    """Returns the records in the value of `listed`."""
    return [LeftOut(each[0], int(each[1]), int(each[2]), *each[3:]) for each in json.loads(seen[_LISTED])]


def rows(left_out: Iterable[LeftOut], landed_at: datetime) -> pa.Table:
    """Returns rows of the table `duplicates`."""
    when = {"landed_at": landed_at, DAY: landed_at.date()}
    values = [each._asdict() | when for each in left_out]
    return arrow_rows(values, SCHEMAS[DUPLICATES])
