"""Rates between two looks at the same parts, by service. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace_cli.operating.exposition import Scrape

LAG: Final = "headrace_lake_lag_offsets"


@dataclass(frozen=True)
class ServiceRow:
    """A service over all its replicas. Times are in seconds; None: it has no such figure, or nothing happened.

    `quarantined` and `unacknowledgeable` count since the replicas started; `oldest` is the longest of them.
    """

    service: str
    parts: int
    ready: int
    events_per_second: float | None = None
    connections: int | None = None
    ack_p50: float | None = None
    ack_p99: float | None = None
    budget_used_bytes: int | None = None
    pending: int | None = None
    oldest: float | None = None
    quarantined: int | None = None
    lag: int | None = None
    freshness_p50: float | None = None
    freshness_p95: float | None = None
    problems: tuple[str, ...] = ()


def rows(before: Sequence[Scrape], after: Sequence[Scrape]) -> list[ServiceRow]:
    """A row for each service of `after`, in that order."""
    earlier = {found.url: found for found in before if not found.problem}
    services: dict[str, list[Scrape]] = defaultdict(list)
    for found in after:
        services[found.service].append(found)
    return [_row(name, found, earlier) for name, found in services.items()]


def _row(name: str, parts: Sequence[Scrape], earlier: Mapping[str, Scrape]) -> ServiceRow:
    answering = [part for part in parts if not part.problem]
    pairs = [(earlier[part.url], part) for part in answering if part.url in earlier]
    problems = []
    for part in parts:
        where = f"{part.url}: " if len(parts) > 1 else ""
        problems += [f"{where}{text}" for text in ([part.problem] if part.problem else part.notes)]
    row = ServiceRow(name, len(parts), sum(part.ready for part in answering), problems=tuple(problems))
    if any(part.has("headrace_lake_records_total") for part in answering):
        return replace(
            row,
            events_per_second=rate(pairs, "headrace_lake_records_total"),
            lag=_sum(answering, LAG) if any(part.has(LAG) for part in answering) else None,  # unknown is not 0
            quarantined=_sum(answering, "headrace_lake_quarantined_total"),
            freshness_p50=_last(answering, "0.5"),
            freshness_p95=_last(answering, "0.95"),
        )
    if not any(part.has("headrace_connections") for part in answering):
        return row
    buckets = between(pairs, "headrace_ack_seconds")
    return replace(
        row,
        events_per_second=rate(pairs, "headrace_events_stored_total"),
        connections=_sum(answering, "headrace_logjam_clients" if name == "logjam" else "headrace_connections"),
        ack_p50=quantile(buckets, 0.5),
        ack_p99=quantile(buckets, 0.99),
        budget_used_bytes=_sum(answering, "headrace_budget_used_bytes"),
        pending=_sum(answering, "headrace_frames_pending"),
        oldest=max((part.total("headrace_oldest_pending_seconds") for part in answering), default=None),
        quarantined=_sum(answering, "headrace_events_quarantined_total"),
    )


def _sum(parts: Sequence[Scrape], name: str) -> int:
    return int(sum(part.total(name) for part in parts))


def _last(parts: Sequence[Scrape], quantile: str) -> float | None:
    found = [
        part.values.get("headrace_lake_freshness_last_seconds", {}).get((("quantile", quantile),)) for part in parts
    ]
    return max((value for value in found if value is not None), default=None)


def grown(before: float, after: float) -> float:
    """How much a counter has grown; one that is smaller has begun again."""
    return after - before if after >= before else after


def rate(pairs: Sequence[tuple[Scrape, Scrape]], name: str) -> float | None:
    """How much a counter has grown in a second, over all parts; None if nobody was asked twice."""
    rates = [
        grown(before.total(name), after.total(name)) / (after.at - before.at)
        for before, after in pairs
        if after.at > before.at
    ]
    return sum(rates) if rates else None


def between(pairs: Sequence[tuple[Scrape, Scrape]], name: str) -> dict[float, float]:
    """The histogram of what was observed between the two looks, over all parts; cumulative."""
    found: dict[float, float] = defaultdict(float)
    for before, after in pairs:
        old, new = before.buckets(name), after.buckets(name)
        restarted = new.get(float("inf"), 0) < old.get(float("inf"), 0)
        for bound, count in new.items():
            found[bound] += count if restarted else count - old.get(bound, 0)
    return dict(found)


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """The value below which `share` of the observations lie, interpolated within its bucket as Prometheus does.

    None if there is no observation; above the last bound, that bound.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    wanted = share * buckets[bounds[-1]]
    below, under = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted and count > under:
            return below if bound == float("inf") else below + (bound - below) * (wanted - under) / (count - under)
        below, under = (below if bound == float("inf") else bound), count
    return below
