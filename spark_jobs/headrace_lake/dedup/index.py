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
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from headrace_lake.spark.literals import OURS, quoted
from headrace_lake.tables.layout import EVENTS
from headrace_lake.tables.transaction_log import live_rows, since_time

DUPLICATE: Final = f"{OURS}duplicate"
"""Column of checked rows: the event is a duplicate. False for a row with a fault: that is not an event."""

ASKED: Final = ("event_id", "received_time", "partition", "offset")
"""The columns by which an index knows an event."""
TIME: Final = "unix_millis(received_time)"
"""SQL: the Kafka timestamp of a row."""
OFFSET_BITS: Final = 44
"""Bits of a place that hold the offset. The partition is above them."""
PLACE: Final = f"shiftleft(bigint(partition), {OFFSET_BITS}) | `offset`"
"""SQL: the place of a row."""
_ELSEWHERE: Final = ((1 << 63 - OFFSET_BITS) - 1, (1 << OFFSET_BITS) - 1)
"""Partition and offset of an event from a deleted topic, whose offsets a recreated topic uses again. No record has them."""


class IndexState(NamedTuple):
    """The size of an index."""

    ids: int  # entries
    bytes: int
    forgotten_to: int | None  # the latest time, in ms, of an entry that was forgotten

    def span(self, newest: int, horizon: float) -> float:
        """Returns the seconds within which a duplicate of an event at `newest` (ms) is found: `horizon`, or less."""
        return horizon if self.forgotten_to is None else min(horizon, max(0, newest - self.forgotten_to) / 1000)


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


def landed(spark: SparkSession, lake: str, since: int, topic_id: str) -> DataFrame:
    """Returns `ASKED` of the events that the table holds since `since` (ms). Skips files by their times."""
    rows = live_rows(spark, f"{lake}/{EVENTS}", (*ASKED, "topic_id"), partial(since_time, "received_time", since))
    here = f"topic_id = {quoted(topic_id)}"
    partition, offset = _ELSEWHERE
    return rows.where(f"received_time >= timestamp_millis({max(0, since)}L)").selectExpr(
        *ASKED[:2], f"if({here}, partition, {partition}) as partition", f"if({here}, offset, {offset}L) as offset"
    )
