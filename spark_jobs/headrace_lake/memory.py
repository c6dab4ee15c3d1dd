"""What is remembered of the events that landed lately, and the one rule by which duplicates are told.

An event is a duplicate when another with the same id is remembered whose Kafka timestamp is at most the horizon away, before
or after. If the very record (by its place) is remembered, it is none: so what a batch decided is decided again when the batch
is landed again. What is no duplicate is remembered. An id is forgotten when its time is over (`Memory.expire`) and room is
wanted, or when there is no room: then the oldest go, and are counted.

There are two memories, with the same answers and different costs. `map_memory`: in the JVM that runs the tasks; the writing
query asks it row by row; for one JVM only. `arrays_memory`: in the driver's Python; a first query brings it the ids of the
batch, and the writing query leaves out what it names; for any number of executors, nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

DUPLICATE: Final = "duplicate"
"""Column of judged rows: the event was landed before. False where there is a fault: that is no event."""

OFFSET_BITS: Final = 44
"""Bits of a place that hold the offset; above them the partition, and the sign tells `u.` ids from `d.` ids."""

ELSEWHERE: Final = (1 << 63) - 1
"""The place of an event of a topic that is no more (a topic made anew has the same offsets): no record is there."""


class Kind(IntEnum):
    """What is asked about an event; the numbers stand in RecentIds.java, too."""

    ORDINARY = 0  # a `d.` id
    REPUBLISHED = 1
    UNIQUE = 2  # a `u.` id, not republished itself: a duplicate when a republished copy was there first; not remembered
    LANDED = 3  # it is in the table: remember it


class State(NamedTuple):
    """What a memory holds."""

    ids: int  # entries
    bytes: int
    forgotten: int  # entries that had to go before their time, since the start
    forgotten_to: int | None  # the latest time, in ms, of one of those


Write = Callable[[DataFrame], dict[str, Any]]
"""Writes judged rows and returns what was measured on the way. Called again when a batch has to be judged again."""

Glance = Callable[[], DataFrame]
"""Makes the frame of `decode.glance`, for a memory that wants it."""


class Memory(Protocol):
    """Ids of what landed lately, and how duplicates are told by them."""

    def rebuild(self, since: int) -> None:
        """Fills the empty memory with what the events table holds since `since` (ms). Blocks for as long as it takes."""

    def expire(self, keep_from: int) -> None:
        """Ids from before this time, in ms, may go when room is needed."""

    def judged(self, decoded: DataFrame, glance: Glance | None, write: Write) -> dict[str, Any]:
        """Hands `decoded` (see `decode.events`) with the column `DUPLICATE` to `write`, and returns what that returned.

        `glance` is of the same records, and None where faulty ones are likely. Blocks.
        """

    def state(self) -> State:
        """What it holds."""

    def close(self) -> None:
        """Lets it go."""


class NoMemory:
    """Nothing is a duplicate."""

    def rebuild(self, since: int) -> None:
        """As `Memory`."""

    def expire(self, keep_from: int) -> None:
        """As `Memory`."""

    def judged(self, decoded: DataFrame, glance: Glance | None, write: Write) -> dict[str, Any]:
        """As `Memory`."""
        return write(decoded.withColumn(DUPLICATE, sf.lit(False)))

    def state(self) -> State:
        """As `Memory`."""
        return State(0, 0, 0, None)

    def close(self) -> None:
        """As `Memory`."""
