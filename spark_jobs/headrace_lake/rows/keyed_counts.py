"""Counts rows by a key while they are written: one aggregate for any number of keys.

An aggregate for each key would cost every row time for every key, and every task a copy of them all. Spark's own
`histogram_numeric` keeps a count for each value that it meets. It is exact as long as it has room for all values, and here it
has. A Kafka partition is read by one task, so no task holds more counts than it has partitions.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

_ROOM: Final = 1 << 30
"""Values for which a histogram has room; it takes memory only for those that it meets."""


def keyed_counts(key: str) -> Column:
    """Returns an aggregate that counts rows by `key` (SQL), a whole number below 2^53; rows where it is null do not count.

    Pass its value to `counts`.
    """
    return sf.expr(f"to_json(histogram_numeric(double({key}), {_ROOM}))")


def counts(value: str | None) -> Counter[int]:
    """Returns key -> number of rows, from the value of `keyed_counts`."""
    found: Counter[int] = Counter()
    for entry in json.loads(value or "[]"):
        found[int(entry["x"])] += int(entry["y"])
    return found
