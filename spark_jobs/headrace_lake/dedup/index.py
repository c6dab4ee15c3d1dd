"""The index of the ids that landed lately, and the rule for duplicates.

An event is a duplicate if the index holds an event with the same id whose Kafka timestamp is at most the horizon away, before
or after. It is not a duplicate if the index holds this very record (by its place): so a batch that lands again gets the same
answers. The index adds every event that is not a duplicate. When its memory is full, it forgets the ids with the oldest
timestamps.

Two indexes give the same answers at different costs. `map_index` lives in the JVM that runs the tasks, and the
writing query asks it row by row; it needs a single JVM. `arrays_index` lives in the driver's Python: it reads the ids in the
files that a batch has written, and commits them if there is no duplicate; it works with any number of executors and compiles
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from typing_extensions import override

from headrace_lake.spark.literals import OURS

DUPLICATE: Final = f"{OURS}duplicate"
"""Column of checked rows: the event is a duplicate. False for a row with a fault: that is not an event."""

OFFSET_BITS: Final = 44
"""Bits of a place that hold the offset. The partition is above them; the sign bit is set for `u.` ids."""

ELSEWHERE: Final = (1 << 63) - 1
"""The place of an event from a deleted topic, whose offsets a recreated topic uses again. No record has this place."""


class IdKind(IntEnum):
    """How the index treats an event. RecentIds.java has the same numbers."""

    ORDINARY = 0  # a `d.` id
    REPUBLISHED = 1
    UNIQUE = 2  # a `u.` id, not republished: a duplicate if a republished copy came first; never added
    LANDED = 3  # it is in the table: only add it


class IndexState(NamedTuple):
    """The size of an index."""

    ids: int  # entries
    bytes: int
    forgotten_to: int | None  # the latest time, in ms, of an entry that was forgotten


Accept = Callable[[Sequence[str]], None]
"""Looks at the files that were written, by their paths, before they are committed. If it raises, they are not."""


class WriteRows(Protocol):
    """Writes checked rows and returns the measures. Called again if the batch has to be checked again."""

    def __call__(self, rows: DataFrame, accept: Accept | None = None, /) -> dict[str, Any]:
        """`accept` is not asked if another run has written the batch."""


class DedupIndex(Protocol):
    """An index of the ids that landed lately; finds duplicates."""

    def add_landed(self, since: int) -> None:
        """Adds the events table's ids since `since` (ms). Blocks until done."""

    def deduplicate(self, decoded: DataFrame, write: WriteRows) -> dict[str, Any]:
        """Adds the column `DUPLICATE` to `decoded` (see `decode.events`), passes it to `write`, and returns what that returns.

        Blocks.
        """

    def state(self) -> IndexState:
        """Returns the size of the index."""

    def close(self) -> None:
        """Frees the index."""


class NoIndex(DedupIndex):
    """Finds no duplicates."""

    @override
    def add_landed(self, since: int) -> None:
        pass

    @override
    def deduplicate(self, decoded: DataFrame, write: WriteRows) -> dict[str, Any]:
        return write(decoded.withColumn(DUPLICATE, sf.lit(False)))

    @override
    def state(self) -> IndexState:
        return IndexState(0, 0, None)

    @override
    def close(self) -> None:
        pass
