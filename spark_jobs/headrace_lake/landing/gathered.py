"""Fewer tasks than partitions, where each would have little to do: a task writes a file, whatever it has."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame

from headrace_lake.kafka.checkpoint import Range

_LITTLE: Final = 10_000
"""Offsets that are worth a task: reading and writing them takes longer than starting it and its file."""
_ENOUGH: Final = 25_000
"""Offsets that are enough for a task: reading and writing them takes many times as long as starting it and its file."""


def gathered(records: DataFrame, ranges: Iterable[Range]) -> DataFrame:
    """Returns `records`, a frame of the Kafka source with a task for each of `ranges`, in as few tasks as is good."""
    sizes = [item.end - item.start for item in ranges]
    count = tasks(sizes, records.sparkSession.sparkContext.defaultParallelism)
    return records if count == len(sizes) else records.coalesce(count)


def tasks(sizes: list[int], parallelism: int) -> int:
    """Returns how many tasks read ranges of these `sizes`: at most one for each, and enough for all cores if there is much to do.

    Spark gives each task about as many ranges, whatever their sizes: so no task gets far more than is enough, even if it gets
    the largest ones.
    """
    largest = sorted(sizes, reverse=True)
    count = max(min(parallelism, math.ceil(sum(sizes) / _LITTLE)), math.ceil(sum(sizes) / _ENOUGH))
    while count < len(sizes):
        if sum(largest[: math.ceil(len(sizes) / count)]) <= 2 * _ENOUGH:
            return count
        count *= 2
    return len(sizes)
