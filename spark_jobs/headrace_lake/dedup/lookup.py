"""The index's questions about events as SQL, and look-ups of ids in the events table."""

from __future__ import annotations

from typing import Final

from headrace_common.record.contract import DETERMINISTIC, REPUBLISHED, UNIQUE
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.dedup.index import ELSEWHERE, OFFSET_BITS, IdKind
from headrace_lake.rows.decode import FAULT, quoted
from headrace_lake.tables.layout import EVENTS
from headrace_lake.tables.transaction_log import live_rows

PLACE: Final = f"shiftleft(bigint(partition), {OFFSET_BITS}) | `offset`"
_UNIQUE: Final = f"startswith(event_id, '{UNIQUE.decode()}')"
_REPUBLISHED: Final = f"endswith(attributes, '{REPUBLISHED.decode()}')"

_FAR_OUT: Final = 9_000_000_000_000_000  # ms; still within the range of timestamps

_OF_INDEX: Final = ("event_id", "received_time", "attributes", "topic_id", "partition", "offset")

TIME: Final = "unix_millis(received_time)"
"""SQL: the Kafka timestamp of a row."""


NO_EVENT: Final = f"{FAULT} is not null"
"""SQL: a decoded row is not an event."""


def kind(*, uniques: bool, no_event: str = NO_EVENT) -> str:
    """Returns SQL: the `IdKind` of a row; null if the index need not be asked, as where `no_event` is true.

    `uniques`: whether the index holds any `u.` ids.
    """
    others = f" when {_UNIQUE} then {int(IdKind.UNIQUE)}" if uniques else ""
    return (
        f"case when {no_event} then null"
        f" when startswith(event_id, '{DETERMINISTIC.decode()}') then {int(IdKind.ORDINARY)}"
        f" when {_REPUBLISHED} then {int(IdKind.REPUBLISHED)}{others} end"
    )


def place(topic_id: str | None = None) -> str:
    """Returns SQL: the place of a row; `ELSEWHERE` for a topic other than `topic_id`."""
    here = PLACE if topic_id is None else f"if(topic_id = {quoted(topic_id)}, {PLACE}, {ELSEWHERE})"
    return f"if({_UNIQUE}, ({here}) | shiftleft(1L, 63), {here})"


def landed(spark: SparkSession, lake: str, since: int, topic_id: str) -> DataFrame:
    """Returns (event_id, time, place) of the table's events since `since` (ms) that an index should hold.

    Skips files by their times.
    """
    rows = live_rows(spark, f"{lake}/{EVENTS}", _OF_INDEX, ("received_time", since))
    rows = rows.where(f"received_time >= {_moment(since)}")
    rows = rows.where(f"startswith(event_id, '{DETERMINISTIC.decode()}') or {_REPUBLISHED}")
    return rows.selectExpr("event_id", f"{TIME} as time", f"{place(topic_id)} as place")


def of_republished(
    spark: SparkSession, lake: str, decoded: DataFrame, horizon: int, topic_id: str
) -> tuple[DataFrame, DataFrame]:
    """Returns (event_id, time, place) of all events with `u.` ids that the batch `decoded` holds republished: two frames.

    The first is from the table, the second from the batch itself. Blocks; `horizon` in ms.
    """
    unique = decoded.where(f"{FAULT} is null and {_UNIQUE}")
    found = unique.where(_REPUBLISHED).select("event_id", sf.expr(TIME)).collect()
    ids = sf.broadcast(spark.createDataFrame([(name,) for name, _ in found], "event_id string"))
    first, last = (limit(time for _, time in found) for limit in (min, max))
    near = f"received_time between {_moment(first - horizon)} and {_moment(last + horizon)}"
    there = _events(spark, lake).where(near).join(ids, "event_id", "left_semi")
    here = unique.join(ids, "event_id", "left_semi")
    return (
        there.selectExpr("event_id", f"{TIME} as time", f"{place(topic_id)} as place"),
        here.selectExpr("event_id", f"{TIME} as time", f"{place()} as place"),
    )


def _events(spark: SparkSession, lake: str) -> DataFrame:
    return spark.read.format("delta").load(f"{lake}/{EVENTS}")


def _moment(milliseconds: int) -> str:
    """Returns SQL; a time beyond the range of timestamps becomes its first or last."""
    return f"timestamp_millis({max(-_FAR_OUT, min(_FAR_OUT, milliseconds))}L)"
