"""Looks as a test imagines them."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import AsyncMock

from headrace_cli.operating.exposition import Scrape
from headrace_live.looks import KafkaLook, Look, PartitionLook, TablesLook

UNIX = 1_795_000_000.0
INF = float("inf")


Labelled = dict[tuple[tuple[str, str], ...], float]


def receiver(
    at: float,
    stored: float = 0,
    *,
    url: str = "http://h:1",
    service: str = "forward",
    ready: bool = True,
    **values: float,
) -> Scrape:
    figures = {
        "headrace_connections": 4.0, "headrace_events_stored_total": stored, "headrace_budget_bytes": 1000.0,
        "headrace_connections_opened_total": 5.0, "headrace_connections_closed_total": 2.0,
        "headrace_kafka_up": 1.0, "process_start_time_seconds": UNIX, **values,
    }  # fmt: skip
    notes = () if ready else ("Kafka is away",)
    return Scrape(service, url, at, ready, notes, {name: {(): value} for name, value in figures.items()})


def quarantined(at: float, **reasons: float) -> Scrape:
    scrape = receiver(at)
    counts: Labelled = {(("reason", reason),): value for reason, value in reasons.items()}
    return replace(scrape, values={**scrape.values, "headrace_events_quarantined_total": counts})


def away(at: float, *, url: str = "http://h:1", service: str = "forward") -> Scrape:
    return Scrape(service, url, at, problem="does not answer (Connection refused)")


def lake(at: float, records: float = 0, *, last: float = UNIX, ready: bool = True) -> Scrape:
    buckets: Labelled = {(("le", "1"),): 0, (("le", "2"),): records, (("le", "+Inf"),): records}
    values: dict[str, Labelled] = {
        "headrace_lake_records_total": {(): records},
        "headrace_lake_last_landed_timestamp_seconds": {(): last},
        "headrace_lake_freshness_seconds_bucket": buckets,
    }
    return Scrape("lake", "http://h:9", at, ready, (), values)


def kafka(
    end: int = 0, *, problem: str = "", landed: int | None = None, leader: int | None = 1, missing: tuple[int, ...] = ()
) -> KafkaLook:
    partition = PartitionLook("headrace.events", 0, end, leader, landed=landed)
    return KafkaLook(problem, None if problem else 1, missing, (partition,))


def look(at: float, *scrapes: Scrape, kafka: KafkaLook | None = None, tables: TablesLook | None = None) -> Look:
    return Look(at, UNIX + at, scrapes, kafka, tables)


no_parts = AsyncMock(return_value=())
"""In place of what finds the parts."""
