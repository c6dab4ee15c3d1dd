"""Lands the markers of Logjam gaps: sequence numbers that a Logjam consumer never received.

A marker is an event like any other (`headrace_common.record.contract.GAP_TYPE`) and lands as one; here it also becomes a row of
`gaps`. From time to time this looks for the missing numbers among what another consumer may have received of the same source
and device: events, heartbeats and what went to quarantine. When all are there, the row becomes covered. Times are those of our
receivers: producers' clocks say nothing.

A consumer that hears a device for the first time names the numbers before: no loss, and never looked for.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from headrace_common.record.contract import Attribute, GapField, GapReason
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.start import rows_in
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, GAP
from headrace_lake.tables.layout import EVENTS, GAPS, QUARANTINE, SCHEMAS
from headrace_lake.tables.transaction_log import live_rows

_OPEN_FOR: Final = "interval 1 day"  # after that, no consumer will deliver the numbers
_FURTHEST: Final = 86_400_000  # ms: how long before the marker they are looked for at most
_SLACK: Final = 5000  # ms: how much earlier or later another consumer may have received what this one did not
_OURS: Final = f"reason in ('{GapReason.LOGJAM}', '{GapReason.JOINED}')"
_KEY: Final = ("topic_id", "partition", "offset")


class GapMarkers:
    """Lands the markers of one batch after the other, and finds the gaps that other events cover."""

    def __init__(self, epoch: Epoch, *, every: float) -> None:
        """`every`: seconds between two searches."""
        self._epoch = epoch
        self._open: bool | None = None  # whether a gap may be open; None: read the table
        self._every = every
        self._looked = -every

    def land(self, records: DataFrame, ranges: list[Range], found: int, version: int, landed_at: datetime) -> None:
        """Writes the batch's `found` markers, and the rows of gaps that are covered now, in one commit; once per `version`.

        The batch's events must be written before. Blocks: reads the batch once more if it has a marker.
        """
        looks = time.monotonic() - self._looked >= self._every and self._may_be_open()
        if not (found or looks) or self._epoch.fence.written(GAPS, version):
            return
        rows = self._markers(records, ranges, landed_at) if found else None
        condition = [
            f"({_OURS} and topic_id = {decode.quoted(self._epoch.topics.ids[topic])}"
            f" and partition = {partition} and offset >= {start}L and offset < {end}L)"
            for topic, partition, start, end in ranges
            if found and topic == self._epoch.topics.events
        ]
        if looks:
            self._looked = time.monotonic()
            covered, places = self._covered(landed_at)
            if places:
                rows = covered if rows is None else rows.unionByName(covered)
                condition += [
                    f"({_OURS} and topic_id = {decode.quoted(topic_id)} and partition = {partition}"
                    f" and offset = {offset}L)"
                    for topic_id, partition, offset in places
                ]
        if rows is not None:
            # also replaces markers that a job left when it was shut out: this batch has the same rows
            self._epoch.fence.replace(GAPS, rows.coalesce(1), " or ".join(condition), version)
        self._open = None if rows is not None else self._open

    def _markers(self, records: DataFrame, ranges: list[Range], landed_at: datetime) -> DataFrame:
        events = decode.events(records, self._epoch.topics, landed_at).where(f"{GAP} and {FAULT} is null")
        # one that was published again is in the batch, and not in the events table
        mine = [item for item in ranges if item.topic == self._epoch.topics.events]
        landed = rows_in(self._epoch.spark, self._epoch.lake, EVENTS, mine, self._epoch.topics.ids).select(*_KEY)
        events = events.join(landed, list(_KEY), "left_semi")

        def number(name: GapField) -> str:
            return f"try_cast(get_json_object(body, '$.{name}') as bigint)"

        first = f"coalesce({number(GapField.FROM)} = 1 and {number(GapField.AFTER)} is null, false)"
        own = {
            "reason": f"if({first}, '{GapReason.JOINED}', '{GapReason.LOGJAM}')",
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
            "epoch": f"{self._epoch.number}L",
            "landed_at": "landed_at",
        }
        columns = ((field.name, field.dataType.simpleString()) for field in SCHEMAS[GAPS].fields)
        return events.selectExpr(*(f"cast({own.get(name, 'null')} as {kind}) as `{name}`" for name, kind in columns))

    def _may_be_open(self) -> bool:
        if self._open is None:
            self._open = not self._rows().isEmpty()
        return self._open

    def _rows(self) -> DataFrame:
        """Returns the open gaps that may still become covered."""
        recent = sf.col("received_time") > sf.expr(f"current_timestamp() - {_OPEN_FOR}")
        logjam = (sf.col("reason") == str(GapReason.LOGJAM)) & ~sf.col("covered")
        sound = sf.col("to_sequence") > sf.col("from_sequence")
        rows = live_rows(self._epoch.spark, f"{self._epoch.lake}/{GAPS}", SCHEMAS[GAPS].names)
        return rows.where(logjam & recent & sound)

    def _covered(self, now: datetime) -> tuple[DataFrame, list[tuple[str, int, int]]]:
        """Returns the open gaps whose numbers have all landed, as covered rows; and the places of their markers."""

        def attribute(name: Attribute) -> str:
            return f"try_cast(get_json_object(attributes, '$.{name}') as bigint)"

        gaps = self._rows().localCheckpoint()
        marked = "unix_millis(received_time)"
        began = f"try_cast(get_json_object(detail, '$.{GapField.AFTER}') as bigint)"  # null is ignored below
        oldest = gaps.agg(
            sf.expr(f"min(least({marked}, greatest({began}, {marked} - {_FURTHEST})) - {_SLACK})")
        ).first()
        if oldest is None or oldest[0] is None:
            self._open = False
            return gaps, []
        events, quarantine = (
            self._epoch.spark.read.format("delta").load(f"{self._epoch.lake}/{table}")
            .where(f"received_time >= timestamp_millis({oldest[0]}) and protocol = 'logjam'")
            .selectExpr("source as from_source", f"{attribute(Attribute.DEVICE)} as from_device",
                        f"{attribute(Attribute.SEQUENCE)} as number", "unix_millis(received_time) as received")
            for table in (EVENTS, QUARANTINE)
        )  # fmt: skip
        after, before = (
            f"coalesce(try_cast(get_json_object(detail, '$.{name}') as bigint), received)"
            for name in (GapField.AFTER, GapField.BEFORE)
        )
        fills = (
            "source = from_source and device = from_device and number >= from_sequence and number < to_sequence"
            f" and received between {after} - {_SLACK} and {before} + {_SLACK}"
        )
        full = (
            events.unionByName(quarantine).join(sf.broadcast(gaps), sf.expr(fills), "inner")
            .groupBy(*_KEY, "from_sequence", "to_sequence").agg(sf.count_distinct("number").alias("numbers"))
            .where("numbers = to_sequence - from_sequence").select(*_KEY).localCheckpoint()
        )  # fmt: skip
        places = [(topic_id, partition, offset) for topic_id, partition, offset in full.collect()]
        moment = f"timestamp'{now:%Y-%m-%d %H:%M:%S.%f}Z'"
        rows = gaps.join(sf.broadcast(full), list(_KEY), "left_semi").select(*SCHEMAS[GAPS].names)
        return rows.withColumn("covered", sf.lit(True)).withColumn("covered_at", sf.expr(moment)), places
