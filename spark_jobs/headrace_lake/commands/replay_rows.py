"""Which rows of one step of a replay are resends. Frames in, frames out."""

from __future__ import annotations

from typing import Final

from headrace_common.record.contract import DETERMINISTIC, Attribute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake.spark.literals import OURS
from headrace_lake.tables.layout import EVENTS, KEY

WANTED: Final = f"{OURS}wanted"
"""Column of rows: they land."""

_COPY, _COPY_TIME, _COPY_PLACE, _RESEND = (f"{OURS}{name}" for name in ("copy", "copy_time", "copy_place", "resend"))


def without_resends(spark: SparkSession, lake: str, events: DataFrame, horizon: float) -> DataFrame:
    """Sets `WANTED` to false for an event that is sent again, if a copy is in the table or earlier in the step.

    Also in a range that had no resends: a copy may have landed since somebody deleted the event.
    """
    micros = sf.unix_micros("received_time")
    bounds = events.agg(sf.min(micros).alias("low"), sf.max(micros).alias("high")).first()
    if bounds is None or bounds["low"] is None:
        return events.withColumn(WANTED, sf.lit(True))
    low, high = (sf.timestamp_micros(sf.lit(bounds[side])) for side in ("low", "high"))
    reach = sf.expr(f"make_dt_interval(0, 0, 0, {horizon:.6f})")
    time_ = sf.col("received_time")
    recognisable = sf.col("event_id").startswith(DETERMINISTIC.decode()) | (
        sf.get_json_object("attributes", f"$.{Attribute.REPUBLISHED}") == "true"
    )
    resends = events.where(recognisable)
    landed = (
        spark.read.format("delta").load(f"{lake}/{EVENTS}")
        .where((time_ >= low - reach) & (time_ <= high + reach))
        .select(sf.col("event_id").alias(_COPY), time_.alias(_COPY_TIME))
    )  # fmt: skip
    earlier = events.select(
        sf.col("event_id").alias(_COPY),
        time_.alias(_COPY_TIME),
        sf.struct("received_time", *KEY).alias(_COPY_PLACE),
    )
    same = (sf.col("event_id") == sf.col(_COPY)) & (time_ <= sf.col(_COPY_TIME) + reach)
    same &= time_ >= sf.col(_COPY_TIME) - reach
    before = sf.struct("received_time", *KEY) > sf.col(_COPY_PLACE)
    found = (
        resends.join(landed, same, "left_semi").select(*KEY)
        .unionAll(resends.join(earlier, same & before, "left_semi").select(*KEY))
        .distinct().withColumn(_RESEND, sf.lit(True))
    )  # fmt: skip
    return events.join(found, list(KEY), "left").withColumn(WANTED, sf.col(_RESEND).isNull())
