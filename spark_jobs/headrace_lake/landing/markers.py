"""Lands the markers of Logjam gaps: sequence numbers that a Logjam consumer never received.

A marker is an event like any other (`headrace_common.record.contract.GAP_TYPE`) and lands as one; here it also becomes a row of
`gaps`. Which numbers no consumer has stored is a query (`headrace_reader.logjam`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from headrace_common.record.contract import GapField, GapReason
from pyspark.sql import DataFrame

from headrace_lake.kafka.checkpoint import Range
from headrace_lake.kafka.epoch import Epoch
from headrace_lake.kafka.start import rows_in, within
from headrace_lake.rows import decode
from headrace_lake.rows.decode import FAULT, GAP
from headrace_lake.tables.layout import EVENTS, GAPS, KEY, SCHEMAS

_OURS: Final = f"reason = '{GapReason.LOGJAM}'"


class GapMarkers:
    """Lands the markers of one batch after the other."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch

    def land(self, records: DataFrame, ranges: list[Range], found: int, version: int, landed_at: datetime) -> None:
        """Writes the batch's `found` markers in one commit.

        The batch's events must be written before. Blocks: reads the batch once more if it has a marker.
        """
        if not found:
            return
        rows = self._markers(records, ranges, landed_at)
        inside = within(self._epoch.of_events(ranges), self._epoch.topics.ids)
        # also replaces markers that a job left when it was shut out: this batch has the same rows
        self._epoch.fence.replace(GAPS, rows.coalesce(1), f"{_OURS} and ({inside})", version)

    def _markers(self, records: DataFrame, ranges: list[Range], landed_at: datetime) -> DataFrame:
        events = decode.events(records, self._epoch.topics, landed_at).where(f"{GAP} and {FAULT} is null")
        # one that was published again is in the batch, and not in the events table
        mine = [item for item in ranges if item.topic == self._epoch.topics.events]
        landed = rows_in(self._epoch.spark, self._epoch.lake, EVENTS, within(mine, self._epoch.topics.ids)).select(*KEY)
        events = events.join(landed, list(KEY), "left_semi")

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
            "detail": "coalesce(body, string(payload))",
            "received_time": "received_time",
            "epoch": f"{self._epoch.number}L",
            "landed_at": "landed_at",
        }
        columns = ((field.name, field.dataType.simpleString()) for field in SCHEMAS[GAPS].fields)
        return events.selectExpr(*(f"cast({own.get(name, 'null')} as {kind}) as `{name}`" for name, kind in columns))
