"""The landing job's metrics. Each help text says what an operator should conclude; docs/metrics.md is generated from them."""

from __future__ import annotations

from typing import Final

from headrace_common.operations.metrics import Catalogue

from headrace_lake.landing.plan import OTHER, REASONS

TASKS: Final = ("compact", "retain", "vacuum", "clean_log")
"""The tasks of maintenance; a label of metrics."""

BATCH_BUCKETS: Final = (0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800)
FRESHNESS_BUCKETS: Final = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60, 120, 300, 900, 3600, 21_600, 86_400)


class LakeMetrics(Catalogue):
    """The landing job's metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.batches_landed = self.counter("lake_batches", "Batches landed since the start.")
        self.records_landed = self.counter("lake_records", "Records landed since the start, of both topics.")
        self.events_landed = self.counter("lake_events", "Rows landed in the events table since the start.")
        self.duplicates = self.counter(
            "lake_duplicates",
            "Resends left out since the start, by protocol: an event with the same id had landed within LAKE__HORIZON, or was"
            " erased.",
            ("protocol",),
        )
        self.remembered_ids = self.gauge("lake_remembered_ids", "Ids remembered now, to recognise duplicates.")
        self.remembered_bytes = self.gauge(
            "lake_remembered_bytes", "Bytes that the remembered ids take of LAKE__DEDUP_MEMORY."
        )
        self.remembered_seconds = self.gauge(
            "lake_remembered_seconds",
            "The job recognises a resend within this time: LAKE__HORIZON, or less if LAKE__DEDUP_MEMORY is too small for it.",
        )
        self.records_quarantined = self.counter(
            "lake_quarantined",
            "Rows landed in the quarantine table since the start, by reason: what receivers and this job refused.",
            ("reason",),
            (*REASONS, OTHER),
        )
        self.batch_seconds = self.histogram("lake_batch_seconds", "Time to land a batch.", BATCH_BUCKETS)
        self.last_landed = self.gauge(
            "lake_last_landed_timestamp_seconds",
            "Unix time when the last batch landed; after a start, when that of the newest rows began.",
        )
        self.freshness = self.histogram(
            "lake_freshness_seconds",
            "Time from the receipt of a record to the landing of its batch.",
            FRESHNESS_BUCKETS,
        )
        self.lag_offsets = self.gauge(
            "lake_lag_offsets",
            "Lag: offsets between what has landed and the partition's end, also of a transaction that nobody has ended. Absent"
            " while Kafka does not answer.",
            ("topic", "partition"),
        )
        self.retention_margin_offsets = self.gauge(
            "lake_retention_margin_offsets",
            "Offsets between the first record in Kafka and the oldest that has not landed. At 0, records are being lost.",
            ("topic", "partition"),
        )
        self.group_failures = self.counter(
            "lake_group_failures", "Failed reports: of the lag, or of offsets to the consumer group."
        )
        self.files = self.gauge("lake_files", "Data files of the table.", ("table",))
        self.small_files = self.gauge(
            "lake_small_files", "Data files of the table that compaction may still merge.", ("table",)
        )
        self.table_bytes = self.gauge("lake_table_bytes", "Size of the table's data files.", ("table",))
        self.maintenance_runs = self.counter(
            "lake_maintenance_runs",
            "Pieces of maintenance done, by task: compact, retain, vacuum, clean_log.",
            ("task",),
            TASKS,
        )
        self.maintenance_seconds = self.counter(
            "lake_maintenance_seconds", "Time spent on maintenance, by task, beside landing.", ("task",), TASKS
        )
        self.maintenance_failures = self.counter(
            "lake_maintenance_failures",
            "Pieces of maintenance that failed, by task. They are tried again; the log says why.",
            ("task",),
            TASKS,
        )
        self.clock_ahead = self.gauge(
            "lake_clock_ahead_seconds",
            "The job's clock minus the timestamp of the newest record when it landed.",
        )
        self.clocks_disagree = self.gauge(
            "lake_clocks_disagree",
            "1 while these differ by more than five minutes: retention, vacuum and the clean-up of the log wait meanwhile.",
        )
