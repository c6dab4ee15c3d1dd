"""Every metric of Headrace, in one catalogue. Names carry the prefix ``headrace_`` and base units (seconds, bytes).

The help texts say what an operator should conclude. Documentation is generated from here (`table`).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace_common.event import Reason

disable_created_metrics()  # type: ignore[no-untyped-call]

PREFIX: Final = "headrace"
ACK_BUCKETS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
)  # fmt: skip


class CountedHistogram(Collector):
    """A histogram of what was counted elsewhere. Thread-safe."""

    def __init__(self, name: str, text: str, buckets: tuple[float, ...]) -> None:
        self._name, self._text, self._buckets = name, text, buckets
        self._counts = [0.0] * (len(buckets) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float, times: float = 1) -> None:
        """`times` observations of `value`."""
        with self._lock:
            self._counts[bisect_left(self._buckets, value)] += times
            self._sum += value * times

    def collect(self) -> Iterable[Metric]:
        """As `prometheus_client` wants it."""
        with self._lock:
            totals, total = list(accumulate(self._counts)), self._sum
        edges = [*map(str, map(float, self._buckets)), "+Inf"]
        yield HistogramMetricFamily(self._name, self._text, list(zip(edges, totals, strict=True)), total)


class Catalogue:
    """Makes metrics in a registry of its own, so that several can live in one test process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        """A counter; the exposition adds ``_total``."""
        return Counter(name, text, labels, namespace=PREFIX, registry=self.registry)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        """A gauge."""
        return Gauge(name, text, labels, namespace=PREFIX, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        """A histogram."""
        return Histogram(name, text, namespace=PREFIX, registry=self.registry, buckets=buckets)

    def counted_histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> CountedHistogram:
        """A histogram that takes many equal observations at once."""
        made = CountedHistogram(f"{PREFIX}_{name}", text, buckets)
        self.registry.register(made)
        return made

    def exposition(self) -> bytes:
        """The Prometheus text format, version 0.0.4."""
        return generate_latest(self.registry)

    def table(self) -> list[tuple[str, str, str]]:
        """(name, kind, meaning) of each metric of ours, for the documentation."""
        rows = []
        for family in self.registry.collect():
            if family.name.startswith(f"{PREFIX}_"):
                name = family.name + ("_total" if family.type == "counter" else "")
                rows.append((name, family.type, family.documentation))
        return rows


class ReceiverMetrics(Catalogue):
    """What each receiver measures."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = self.gauge("connections", "Open connections.")
        self.connections_opened = self.counter("connections_opened", "Connections accepted since start.")
        self.connections_closed = self.counter(
            "connections_closed",
            "Connections closed, by why: peer, idle, age and drain are ordinary; a protocol_error is the client's fault, "
            "abandoned is Kafka's, internal is a mistake of Headrace: its log has the stack.",
            ("why",),
        )
        self.bytes_received = self.counter("received_bytes", "Bytes read from clients.")
        self.events_acknowledged = self.counter(
            "events_acknowledged", "Events stored in Kafka and covered by an acknowledgement that was written."
        )
        self.events_stored = self.counter("events_stored", "Events stored on the events topic.")
        self.events_quarantined = self.counter(
            "events_quarantined", "Stored on the quarantine topic instead, by reason. Look at the table of that name.",
            ("reason",),
        )  # fmt: skip
        self.events_unacknowledgeable = self.counter(
            "events_unacknowledgeable", "Events whose client asked for no acknowledgement: loss would go unnoticed."
        )
        self.frames_abandoned = self.counter(
            "frames_abandoned",
            "Frames that Kafka did not take within KAFKA__ACK_DEADLINE, or refused; not acknowledged.",
        )
        self.events_duplicate = self.counter(
            "events_duplicate", "Events whose ids were seen before on the same connection: a client that sends again."
        )
        self.events_republished = self.counter(
            "events_republished",
            "Events that a fresh producer sent again because it was in doubt whether Kafka has them.",
        )
        self.limit_hits = self.counter("limit_hits", "Limits that a client hit, by setting.", ("limit",))
        self.messages_ignored = self.counter(
            "messages_ignored",
            "Messages that mean nothing here and were passed over, by what they were. Rising: a client of another version.",
            ("kind",),
        )
        self.frames_pending = self.gauge("frames_pending", "Complete frames that wait for Kafka.")
        self.oldest_pending_seconds = self.gauge("oldest_pending_seconds", "Age of the frame that waits longest.")
        self.budget_used_bytes = self.gauge("budget_used_bytes", "Bytes in flight, against LIMITS__PROCESS_BUDGET.")
        self.connections_paused = self.gauge("connections_paused", "Connections that are not read: over a budget.")
        self.ack_seconds = self.histogram(
            "ack_seconds", "From a frame's last byte to Kafka's answer for all of it.", ACK_BUCKETS
        )
        self.batches = self.counter("batches", "Batches that Kafka stored.")
        self.producers_replaced = self.counter(
            "producers_replaced", "Kafka producers thrown away after a failure, by why. A rising count means trouble.",
            ("why",),
        )  # fmt: skip
        self.loop_stall_seconds = self.gauge(
            "loop_stall_seconds", "Longest time in the last minute that the event loop did not turn."
        )
        self.topic_weak = self.gauge(
            "topic_settings_weak", "1 when a topic's settings do not keep the promise on this cluster (see the log)."
        )
        self.certificate_expiry = self.gauge(
            "certificate_expiry_timestamp_seconds", "Unix time when the TLS certificate expires."
        )
        for reason in Reason:
            self.events_quarantined.labels(reason.value)


BATCH_BUCKETS: Final = (0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800)
FRESHNESS_BUCKETS: Final = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60, 120, 300, 900, 3600, 21_600, 86_400)


class LakeMetrics(Catalogue):
    """What the landing job measures."""

    def __init__(self) -> None:
        super().__init__()
        self.batches_landed = self.counter("lake_batches", "Batches landed since start.")
        self.records_landed = self.counter("lake_records", "Records landed since start, of both topics.")
        self.events_landed = self.counter("lake_events", "Rows landed in the events table since start.")
        self.duplicates = self.counter(
            "lake_duplicates",
            "Events left out since start because their id had landed within LAKE__HORIZON, by protocol: clients' resends.",
            ("protocol",),
        )
        self.remembered_ids = self.gauge("lake_remembered_ids", "Ids by which duplicates are told now.")
        self.remembered_bytes = self.gauge("lake_remembered_bytes", "What these take, of LAKE__DEDUP_MEMORY.")
        self.remembered_seconds = self.gauge(
            "lake_remembered_seconds",
            "Time between two sendings over which duplicates are told: LAKE__HORIZON, or less while memory is used up.",
        )
        self.forgotten_ids = self.counter(
            "lake_forgotten_ids",
            "Ids forgotten before their time because LAKE__DEDUP_MEMORY was used up: resends of those land again.",
        )
        self.records_quarantined = self.counter(
            "lake_quarantined",
            "Rows landed in the quarantine table since start: what receivers and this job refused, by reason.",
            ("reason",),
        )
        self.records_skipped = self.counter(
            "lake_skipped", "Records left out since start because a policy says so for their reason.", ("reason",)
        )
        self.records_looked_up = self.counter(
            "lake_headers_looked_up",
            "Records whose headers stood in another order, or not alone: they cost more. Who else writes to the topic?",
        )
        self.batch_seconds = self.histogram("lake_batch_seconds", "Time to land a batch.", BATCH_BUCKETS)
        self.step_seconds = self.gauge(
            "lake_step_seconds",
            "Time that the last trigger spent, by Spark's name of the step: addBatch lands, latestOffset asks Kafka.",
            ("step",),
        )
        self.last_landed = self.gauge("lake_last_landed_timestamp_seconds", "Unix time when the last batch was landed.")
        self.freshness = self.counted_histogram(
            "lake_freshness_seconds", "From a record's receive time until its batch was landed.", FRESHNESS_BUCKETS
        )
        self.freshness_quantile = self.gauge(
            "lake_freshness_last_seconds", "The same of the last batch: p50 and p95 (quantile 0.5 and 0.95).",
            ("quantile",),
        )  # fmt: skip
        self.lag_offsets = self.gauge(
            "lake_lag_offsets", "Offsets that the job is behind the end of the partition.", ("topic", "partition")
        )
        self.retention_margin = self.gauge(
            "lake_retention_margin_seconds",
            "Time until the topic's retention may delete the oldest record that is not landed yet: its timestamp plus "
            "retention.ms, less now; retention.ms when all is landed. At 0 records are being lost.",
            ("topic", "partition"),
        )
        self.retention_margin_offsets = self.gauge(
            "lake_retention_margin_offsets",
            "Offsets between the first record still in Kafka and the oldest that is not landed yet: watch it where "
            "retention.bytes is set.",
            ("topic", "partition"),
        )
        self.group_failures = self.counter(
            "lake_group_commit_failures", "Offsets that could not be committed to the consumer group. Landing goes on."
        )
        self.files = self.gauge("lake_files", "Data files of the table.", ("table",))
        self.small_files = self.gauge("lake_small_files", "Those that compaction may still merge.", ("table",))
        self.table_bytes = self.gauge("lake_table_bytes", "Size of the table's data files.", ("table",))
        self.files_written = self.counter("lake_files_written", "Data files that landing has written.", ("table",))
        self.maintenance_runs = self.counter(
            "lake_maintenance_runs", "Pieces of maintenance done, by task: compact, retain, vacuum.", ("task",)
        )
        self.maintenance_seconds = self.counter(
            "lake_maintenance_seconds", "Time spent on maintenance; no batch begins meanwhile.", ("task",)
        )
        self.maintenance_failures = self.counter(
            "lake_maintenance_failures", "Pieces that failed; they are tried again later. The log says why.", ("task",)
        )
        self.maintenance_removed = self.counter(
            "lake_maintenance_files_removed", "Data files taken out of the tables; vacuum: deleted.", ("task",)
        )
        self.maintenance_added = self.counter(
            "lake_maintenance_files_added", "Data files put into the tables instead.", ("task",)
        )
        self.maintenance_bytes = self.counter(
            "lake_maintenance_bytes", "Size of the files that maintenance took out of the tables.", ("task",)
        )
        self.maintenance_last = self.gauge(
            "lake_maintenance_last_success_timestamp_seconds", "Unix time when the task last succeeded.", ("task",)
        )
