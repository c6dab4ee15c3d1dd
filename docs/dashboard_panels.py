"""The panels of the two Grafana dashboards, declared once: `dashboards.py` makes of it what Grafana reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Panel:
    """A graph, or a number (`stat`). `queries`: PromQL, and what its lines are called."""

    title: str
    meaning: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    stat: bool = False
    alarm: float | None = None
    """The value from which on it is red."""


@dataclass(frozen=True)
class Row:
    """Panels beside each other."""

    title: str
    panels: Sequence[Panel]


OF_RELEASE: Final = '{namespace="$namespace", release="$release"}'
"""Two releases in one Prometheus are never added up."""

OF_ONE: Final = '{namespace="$namespace", release="$release", job=~"$job", instance=~"$instance"}'


def _rate(metric: str, labels: str = OF_ONE) -> str:
    return f"rate({metric}{labels}[$__rate_interval])"


def _quantiles(metric: str, by: str = "", labels: str = OF_ONE) -> list[tuple[str, str]]:
    groups = f"le, {by}" if by else "le"
    shown = f" {{{{{by}}}}}" if by else ""
    return [
        (
            f"histogram_quantile({share}, sum by ({groups}) ({_rate(metric + '_bucket', labels)}))",
            f"p{share * 100:.0f}{shown}",
        )
        for share in (0.5, 0.99)
    ]


RECEIVERS: Final = (
    Row(
        "Is the promise kept?",
        (
            Panel(
                "Acknowledgeable events",
                "Events a second of frames that are stored in Kafka and whose clients wait to be told so.",
                [(f"sum by (job) ({_rate('headrace_events_acknowledgeable_total')})", "{{job}}")],
                "cps",
            ),
            Panel(
                "Time to store a frame",
                "From a frame's last byte until Kafka has stored all of it. It rises first when Kafka is slow.",
                _quantiles("headrace_ack_seconds", "job"),
                "s",
            ),
            Panel(
                "Longest wait",
                "How long the longest-waiting frame has waited. Above 30 s readiness turns red if nothing at all is stored.",
                [(f"max by (job, instance) (headrace_oldest_pending_seconds{OF_ONE})", "{{job}} {{instance}}")],
                "s",
                alarm=30,
            ),
        ),
    ),
    Row(
        "What comes in",
        (
            Panel(
                "Events stored",
                "Events a second on the events topic, also those whose clients asked for no acknowledgement.",
                [
                    (f"sum by (job) ({_rate('headrace_events_stored_total')})", "{{job}}"),
                    (f"sum ({_rate('headrace_events_unacknowledgeable_total')})", "not acknowledgeable"),
                ],
                "cps",
            ),
            Panel(
                "Bytes received",
                "Bytes a second from clients, as they come, compressed or not.",
                [(f"sum by (job) ({_rate('headrace_received_bytes_total')})", "{{job}}")],
                "Bps",
            ),
            Panel(
                "Connections",
                "Open connections. After a rollout they should even out within LIMITS__CONNECTION_AGE.",
                [(f"sum by (job, instance) (headrace_connections{OF_ONE})", "{{job}} {{instance}}")],
            ),
        ),
    ),
    Row(
        "What goes wrong",
        (
            Panel(
                "Quarantine",
                "Events a second that could not be understood, by reason. They are kept byte for byte.",
                [(f"sum by (reason) ({_rate('headrace_events_quarantined_total')}) > 0", "{{reason}}")],
                "cps",
            ),
            Panel(
                "Limits that clients hit",
                "Hits a second, by the setting that names the limit.",
                [(f"sum by (limit) ({_rate('headrace_limit_hits_total')})", "{{limit}}")],
                "cps",
            ),
            Panel(
                "Connections closed",
                "By reason. peer, idle, age and drain are ordinary; abandoned is Kafka's fault, internal a bug.",
                [(f"sum by (why) ({_rate('headrace_connections_closed_total')})", "{{why}}")],
                "cps",
            ),
        ),
    ),
    Row(
        "Sent again",
        (
            Panel(
                "Frames abandoned",
                "Frames that Kafka refused or did not store within KAFKA__ACK_DEADLINE.",
                [(f"sum by (job) (increase(headrace_frames_abandoned_total{OF_ONE}[5m]))", "{{job}}")],
                alarm=1,
            ),
            Panel(
                "Republished events",
                "Events of batches that were given up in doubt, and sent again under another identity. The lake collapses them.",
                [
                    (f"sum ({_rate('headrace_events_republished_total')})", "sent again by a producer"),
                ],
                "cps",
            ),
        ),
    ),
    Row(
        "Room",
        (
            Panel(
                "Budget used",
                "Bytes in flight, against LIMITS__PROCESS_BUDGET.",
                [(f"max by (job, instance) (headrace_budget_used_bytes{OF_ONE})", "{{job}} {{instance}}")],
                "bytes",
            ),
            Panel(
                "Connections paused",
                "Connections that are not read now because a budget is used up.",
                [(f"sum by (job, instance) (headrace_connections_paused{OF_ONE})", "{{job}} {{instance}}")],
                alarm=1,
            ),
            Panel(
                "CPU",
                "CPU seconds a second, by process. One receiver uses at most one core.",
                [(f"sum by (job, instance) ({_rate('process_cpu_seconds_total')})", "{{job}} {{instance}}")],
                alarm=0.9,
            ),
            Panel(
                "Memory",
                "Resident memory, by process.",
                [(f"max by (job, instance) (process_resident_memory_bytes{OF_ONE})", "{{job}} {{instance}}")],
                "bytes",
            ),
        ),
    ),
    Row(
        "Logjam",
        (
            Panel(
                "Answers",
                "What producers heard, a second. late: nothing was said, because Kafka took too long.",
                [(f"sum by (answer) ({_rate('headrace_logjam_answers_total')})", "{{answer}}")],
                "cps",
            ),
            Panel(
                "Messages of devices that did not come",
                "Each is in a marker, which the lake lands in the table gaps.",
                [(f"sum by (endpoint) (increase(headrace_logjam_lost_messages_total{OF_ONE}[5m]))", "{{endpoint}}")],
                alarm=1,
            ),
        ),
    ),
)

LAKE: Final = (
    Row(
        "Is it keeping up?",
        (
            Panel(
                "Margin to retention",
                "Offsets until Kafka deletes what has not landed, the least of all partitions. At 0, records are being lost.",
                [(f"min(headrace_lake_retention_margin_offsets{OF_RELEASE})", "margin")],
                stat=True,
            ),
            Panel(
                "Records behind",
                "Offsets between the job and the ends of the partitions.",
                [(f"sum(headrace_lake_lag_offsets{OF_RELEASE})", "lag")],
                stat=True,
            ),
            Panel(
                "Since the last batch",
                "Time since the last batch landed.",
                [(f"time() - max(headrace_lake_last_landed_timestamp_seconds{OF_RELEASE})", "ago")],
                "s",
                stat=True,
            ),
        ),
    ),
    Row(
        "Landing",
        (
            Panel(
                "Rows landed",
                "Rows a second in the table events, and what was left out as sent again.",
                [
                    (f"sum({_rate('headrace_lake_events_total', OF_RELEASE)})", "events"),
                    (
                        f"sum by (protocol) ({_rate('headrace_lake_duplicates_total', OF_RELEASE)})",
                        "duplicates {{protocol}}",
                    ),
                ],
                "cps",
            ),
            Panel(
                "Freshness",
                "From the receipt of a record to the landing of its batch.",
                _quantiles("headrace_lake_freshness_seconds", "", OF_RELEASE),
                "s",
                alarm=120,
            ),
            Panel(
                "Lag by topic",
                "Offsets between the job and the end, by topic.",
                [(f"sum by (topic) (headrace_lake_lag_offsets{OF_RELEASE})", "{{topic}}")],
            ),
        ),
    ),
    Row(
        "Batches",
        (
            Panel(
                "Time of a batch",
                "How long batches take.",
                _quantiles("headrace_lake_batch_seconds", "", OF_RELEASE),
                "s",
            ),
            Panel(
                "Where the time goes",
                "Steps of the last trigger, by Spark's names.",
                [(f"max by (step) (headrace_lake_step_seconds{OF_RELEASE})", "{{step}}")],
                "s",
            ),
            Panel(
                "Records in a batch",
                "Records of both topics, over the number of batches.",
                [
                    (
                        f"sum({_rate('headrace_lake_records_total', OF_RELEASE)})"
                        f" / sum({_rate('headrace_lake_batches_total', OF_RELEASE)})",
                        "records",
                    )
                ],
            ),
        ),
    ),
    Row(
        "What is not an event",
        (
            Panel(
                "Quarantine",
                "Rows a second in the table quarantine, by reason.",
                [
                    (f"sum by (reason) ({_rate('headrace_lake_quarantined_total', OF_RELEASE)}) > 0", "{{reason}}"),
                ],
                "cps",
            ),
            Panel(
                "Margin to retention",
                "By topic: the offsets between the first record that Kafka holds and the oldest that has not landed.",
                [(f"min by (topic) (headrace_lake_retention_margin_offsets{OF_RELEASE})", "{{topic}}")],
            ),
            Panel(
                "Remembered ids",
                "Within this time a resend is recognised. Below LAKE__HORIZON, memory is full.",
                [
                    (f"max(headrace_lake_remembered_seconds{OF_RELEASE})", "time"),
                    (f"max(headrace_lake_remembered_bytes{OF_RELEASE})", "bytes"),
                ],
            ),
        ),
    ),
    Row(
        "Tables",
        (
            Panel(
                "Size",
                "Bytes of each table's data files.",
                [(f"max by (table) (headrace_lake_table_bytes{OF_RELEASE})", "{{table}}")],
                "bytes",
            ),
            Panel(
                "Small files",
                "Files that compaction may still merge. Rising for long: it does not keep up.",
                [(f"max by (table) (headrace_lake_small_files{OF_RELEASE})", "{{table}}")],
            ),
            Panel(
                "Maintenance",
                "Share of the time, by task, and failures.",
                [
                    (f"sum by (task) ({_rate('headrace_lake_maintenance_seconds_total', OF_RELEASE)})", "{{task}}"),
                    (
                        f"sum by (task) (increase(headrace_lake_maintenance_failures_total{OF_RELEASE}[5m])) > 0",
                        "failed {{task}}",
                    ),
                ],
                "percentunit",
            ),
        ),
    ),
)
