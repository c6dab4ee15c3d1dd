"""Markers of numbers that a Logjam consumer never received: rows of the table of gaps, covered once others brought them.

A marker is an event like any other and lands as one (`headrace_common.event.GAP_TYPE`). Here it becomes a row of `gaps`
too. Every now and then the numbers that are open are looked for among the events of the same source and device: when all of
them are there, the row is covered.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from headrace_common.event import Attribute, GapField, GapReason, Protocol
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace_lake import decode
from headrace_lake.checkpoint import Range
from headrace_lake.decode import FAULT, GAP, Topics
from headrace_lake.fence import Fence
from headrace_lake.tables import EVENTS, GAPS, SCHEMAS

_LOOK: Final = 600.0
"""Seconds between two looks for what covers the open gaps: each reads the attributes of the events since the oldest."""
_OPEN_FOR: Final = "interval 1 day"  # what nobody brought by then, nobody will
_AHEAD: Final = "interval 1 hour"  # how long before a marker another consumer's events may have been received
_SLACK: Final = 1000  # ms: devices say the second in which a message was made
_KEY: Final = ("topic_id", "partition", "offset")


class Markers:
    """Lands the markers of one batch after the other, and looks for what covers them."""

    def __init__(self, spark: SparkSession, lake: str, *, epoch: int, topics: Topics, fence: Fence) -> None:
        self._spark = spark
        self._lake = lake
        self._epoch = epoch
        self._topics = topics
        self._fence = fence
        self._open: bool | None = None  # whether a row may be open; None: the table knows
        self._looked = -_LOOK

    def land(self, records: DataFrame, ranges: list[Range], found: int, version: int, landed_at: datetime) -> None:
        """Writes the batch's markers, `found` in number, and what is covered now, in one commit. Once for each `version`.

        The batch's events must be written. Blocks: a pass over the batch if it has a marker.
        """
        looks = time.monotonic() - self._looked >= _LOOK and self._may_be_open()
        if not (found or looks) or self._fence.written(GAPS, version):
            return
        rows = self._markers(records, landed_at) if found else None
        condition = [
            f"(reason = '{GapReason.LOGJAM}' and topic_id = {decode.quoted(self._topics.ids[topic])}"
            f" and partition = {partition} and offset >= {start}L and offset < {end}L)"
            for topic, partition, start, end in ranges
            if found and topic == self._topics.events
        ]
        if looks:
            self._looked = time.monotonic()
            covered, places = self._covered(landed_at)
            if places:
                rows = covered if rows is None else rows.unionByName(covered)
                condition += [
                    f"(reason = '{GapReason.LOGJAM}' and topic_id = {decode.quoted(topic_id)} and partition = {partition}"
                    f" and offset = {offset}L)"
                    for topic_id, partition, offset in places
                ]
        if rows is not None:
            # also of markers that a job left here when it was shut out: this batch brings the same rows
            self._fence.replace(GAPS, rows.coalesce(1), " or ".join(condition), version)
        self._open = None if rows is not None else self._open

    def _markers(self, records: DataFrame, landed_at: datetime) -> DataFrame:
        events = decode.events(records, self._topics, landed_at).where(f"{GAP} and {FAULT} is null")

        def number(name: GapField) -> str:
            return f"try_cast(get_json_object(body, '$.{name}') as bigint)"

        own = {
            "reason": f"'{GapReason.LOGJAM}'",
            "topic": "topic",
            "topic_id": "topic_id",
            "partition": "partition",
            "offset": "offset",
            "source": "source",
            "consumer": f"get_json_object(body, '$.{GapField.CONSUMER}')",
            "device": number(GapField.DEVICE),
            "from_sequence": number(GapField.FROM),
            "to_sequence": number(GapField.TO),
            "covered": "false",
            "detail": "coalesce(body, string(payload))",
            "received_time": "received_time",
            "epoch": f"{self._epoch}L",
            "landed_at": "landed_at",
        }
        columns = ((field.name, field.dataType.simpleString()) for field in SCHEMAS[GAPS].fields)
        return events.selectExpr(*(f"cast({own.get(name, 'null')} as {kind}) as `{name}`" for name, kind in columns))

    def _may_be_open(self) -> bool:
        if self._open is None:
            self._open = not self._rows().isEmpty()
        return self._open

    def _rows(self) -> DataFrame:
        """The open gaps that somebody may still cover."""
        recent = sf.col("received_time") > sf.expr(f"current_timestamp() - {_OPEN_FOR}")
        logjam = (sf.col("reason") == str(GapReason.LOGJAM)) & ~sf.col("covered")
        sound = sf.col("to_sequence") > sf.col("from_sequence")
        return self._spark.read.format("delta").load(f"{self._lake}/{GAPS}").where(logjam & recent & sound)

    def _covered(self, now: datetime) -> tuple[DataFrame, list[tuple[str, int, int]]]:
        """Rows of open gaps whose numbers all have landed, as covered; and where their markers lie."""

        def attribute(name: Attribute) -> str:
            return f"try_cast(get_json_object(attributes, '$.{name}') as bigint)"

        gaps = self._rows().localCheckpoint()
        oldest = gaps.agg(sf.expr(f"unix_micros(min(received_time) - {_AHEAD})")).first()
        if oldest is None or oldest[0] is None:
            self._open = False
            return gaps, []
        events = (
            self._spark.read.format("delta").load(f"{self._lake}/{EVENTS}")
            .where(f"received_time >= timestamp_micros({oldest[0]}) and protocol = '{Protocol.LOGJAM}'")
            .selectExpr("source as from_source", f"{attribute(Attribute.DEVICE)} as from_device",
                        f"{attribute(Attribute.SEQUENCE)} as number", f"{attribute(Attribute.CREATED)} as created")
        )  # fmt: skip
        after, before = (
            f"coalesce(try_cast(get_json_object(detail, '$.{name}') as bigint), created)"
            for name in (GapField.AFTER, GapField.BEFORE)
        )
        fills = (
            "source = from_source and device = from_device and number >= from_sequence and number < to_sequence"
            f" and coalesce(created between {after} - {_SLACK} and {before} + {_SLACK}, true)"
        )
        full = (
            events.join(sf.broadcast(gaps), sf.expr(fills), "inner")
            .groupBy(*_KEY, "from_sequence", "to_sequence").agg(sf.count_distinct("number").alias("numbers"))
            .where("numbers = to_sequence - from_sequence").select(*_KEY).localCheckpoint()
        )  # fmt: skip
        places = [(topic_id, partition, offset) for topic_id, partition, offset in full.collect()]
        moment = f"timestamp'{now:%Y-%m-%d %H:%M:%S.%f}Z'"
        rows = gaps.join(sf.broadcast(full), list(_KEY), "left_semi").select(*SCHEMAS[GAPS].names)
        return rows.withColumn("covered", sf.lit(True)).withColumn("covered_at", sf.expr(moment)), places
