"""The catalogue: names, units, and that each says what to conclude."""

from __future__ import annotations

import re

import pytest
from headrace_common.operations.metrics import (
    KEPT_SOURCES,
    SOURCE_NAME,
    TOP_SOURCES,
    Catalogue,
    ReceiverMetrics,
    TopSources,
)
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


class Sources:
    """What sources send, at a time of the test's."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counted = TopSources(lambda: self.now)

    def send(self, source: str, events: int = 1, size: int = 100) -> None:
        self.counted.add(source, events, size, self.now)

    def shown(self) -> list[tuple[str, float, float]]:
        events, size = (
            [(each.labels["source"], each.value) for each in metric.samples] for metric in self.counted.collect()
        )
        assert [name for name, _ in events] == [name for name, _ in size]
        return [(name, count, total) for (name, count), (_, total) in zip(events, size, strict=True)]


def test_the_sources_that_sent_most_come_first() -> None:
    sources = Sources()
    for number in range(TOP_SOURCES + 1):
        for _ in range(number + 1):
            sources.send(f"10.0.0.{number}")
    assert [name for name, _, _ in sources.shown()] == [f"10.0.0.{number}" for number in range(TOP_SOURCES, 0, -1)]
    sources.send("few but large", size=1 << 20)
    assert sources.shown()[0] == ("few%20but%20large", 1, 1 << 20)


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    sources = Sources()
    sources.send("a", events=3)
    for now, left in ((1059.0, 3), (1060.0, 0)):
        sources.now = now
        assert sum(events for _, events, _ in sources.shown()) == left
    sources.send("b")
    assert len(sources.counted._windows) == 1


def test_memory_is_bounded_and_a_heavy_source_stays() -> None:
    sources, sizes = Sources(), set()
    for number in range(20 * KEPT_SOURCES):
        sources.send(f"light-{number}")
        if number % 50 == 0:
            sources.send("heavy", events=9)
        (window,) = sources.counted._windows.values()
        sizes.add(len(window))
    assert max(sizes) == 2 * KEPT_SOURCES
    assert sources.shown()[0][:2] == ("heavy", 9 * 20 * KEPT_SOURCES / 50)


def test_a_name_of_any_bytes_is_a_short_label() -> None:
    sources = Sources()
    for end in ("", "x", "y"):
        sources.send('\x00\n"é\ud800' + "n" * (SOURCE_NAME - 17 - len("%22")) + end)
    names = [name for name, _, _ in sources.shown()]
    assert len(names) == len(set(names))
    assert all(len(name) <= SOURCE_NAME and name.isascii() and name.isprintable() for name in names)
