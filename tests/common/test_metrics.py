"""The catalogue: names, units, and that each says what to conclude."""

from __future__ import annotations

import re

import pytest
from headrace_common.operations.metrics import Catalogue, ReceiverMetrics
from headrace_common.record.contract import Reason, RecordFault
from headrace_lake.upkeep.metrics import TASKS, LakeMetrics
from headrace_segment.metrics import SegmentMetrics


def from_the_start(catalogue: Catalogue, name: str) -> set[str]:
    """The values of the single label of a counter with which it is exported before anything has happened."""
    text = catalogue.exposition().decode()
    return set(re.findall(rf'^headrace_{name}_total{{\w+="([^"]*)"}} 0\.0$', text, re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("events_quarantined", {reason.value for reason in Reason}),
        ("connections_closed", {"age", "deaf", "drain", "handshake", "peer", "protocol_error"}),
        ("limit_hits", {"LIMITS__FRAME_BYTES", "LIMITS__CONNECTIONS", "SEGMENT__SEGMENTS"}),
    ],
)
def test_each_value_is_there_from_the_start(name: str, values: set[str]) -> None:
    """To Prometheus, a series that begins with 1 has not increased."""
    metrics = ReceiverMetrics()
    SegmentMetrics(metrics)
    assert from_the_start(metrics, name) >= values


def test_what_the_landing_job_counts_is_there_from_the_start() -> None:
    """All but counters by protocol or table, whose names it learns from what it lands."""
    metrics = LakeMetrics()
    for row in metrics.table():
        if row.kind == "counter" and row.labels and not {"protocol", "table"} & set(row.labels):
            told = from_the_start(metrics, row.name.removeprefix("headrace_").removesuffix("_total"))
            assert told >= ({*Reason, *RecordFault, "other"} if row.labels == ("reason",) else set(TASKS)), row.name
