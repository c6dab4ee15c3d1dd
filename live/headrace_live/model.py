"""Figures from successive looks: those of now, and points for the last ten minutes. No clock, no socket; memory is bounded."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace_cli.operating.exposition import Scrape, busiest

from headrace_live.looks import Figures, Lake, Lane, Look, Outage, ReceiverLook, Replica, added

SPAN: Final = 600.0
"""Seconds of the history."""
WINDOW: Final = 2.5
"""Rates of receivers are over at least this time."""
LAKE_WINDOW: Final = 30.0
"""Rates of the landing job: it lands in batches, some seconds apart."""
STANDS_STILL: Final = 3.0
"""Seconds: if frames have waited for longer while nothing was stored, Kafka has stopped."""
_STORED: Final = ("headrace_events_stored_total", "headrace_events_quarantined_total", "headrace_batches_total")


class Model:
    def __init__(self) -> None:
        self.history: deque[dict[str, float | None]] = deque()
        self._looks: deque[Look] = deque()
        self._reasons: deque[tuple[float, Counter[str]]] = deque()
        self._quarantined: Counter[str] = Counter()  # the sum of them
        self._outage: Outage | None = None
        self._first: float | None = None

    def add(self, look: Look) -> Figures:
        """Return the present figures. `look` is later than those before."""
        if self._first is None:
            self._first = look.at
        before = self._looks[-1] if self._looks else None
        self._looks.append(look)
        while len(self._looks) > 2 and self._looks[1].at <= look.at - LAKE_WINDOW:
            self._looks.popleft()
        self._count_reasons(before, look)
        receivers = self._receivers(look)
        stored = self._stored(before, look)
        self._judge_kafka(look, receivers, stored=stored > 0)
        lanes = self._lanes(look)
        figures = Figures(
            at=look.at,
            time=look.time,
            receivers=receivers,
            lanes=lanes,
            lake=replace(self._lake(look), lag=whole([lane.lag for lane in lanes])),
            kafka=look.kafka,
            tables=look.tables,
            outage=self._outage,
            quarantined=dict(self._quarantined.most_common()),
            span=min(SPAN, look.at - self._first),
            sources=busiest(scrape for scrape in look.scrapes if not scrape.problem),
        )
        self._note(figures)
        return figures

    def _earlier(self, look: Look, window: float) -> Look | None:
        """Return the latest look that is at least `window` back, else the first that is kept, else None."""
        found = [each for each in self._looks if each is not look]
        return next((each for each in reversed(found) if each.at <= look.at - window), found[0] if found else None)

    def _count_reasons(self, before: Look | None, look: Look) -> None:
        found: Counter[str] = Counter()
        for old, new in _pairs(before, look.scrapes):
            values = new.values.get("headrace_events_quarantined_total", {})
            past = old.values.get("headrace_events_quarantined_total", {})
            for labels, value in values.items():
                if more := int(grown(past.get(labels, 0), value)):
                    found[dict(labels).get("reason", "")] += more
        if found:
            self._reasons.append((look.at, found))
            self._quarantined += found
        while self._reasons and self._reasons[0][0] < look.at - SPAN:
            self._quarantined -= self._reasons.popleft()[1]

    def _stored(self, before: Look | None, look: Look) -> float:
        """Return how many events and batches Kafka has stored since the last look."""
        return sum(
            grown(old.total(name), new.total(name))
            for old, new in _pairs(before, look.scrapes)
            if new.has("headrace_connections")
            for name in _STORED
        )

    def _judge_kafka(self, look: Look, receivers: Sequence[ReceiverLook], *, stored: bool) -> None:
        """Note when an outage begins and ends. It ends when Kafka answers and stores again what waits."""
        why = look.kafka.problem if look.kafka is not None else ""
        pending = sum(receiver.pending for receiver in receivers)
        oldest = max((receiver.oldest for receiver in receivers), default=0)
        if not why and not stored and pending and oldest >= STANDS_STILL:
            why = "it stores nothing of what waits"
        if not why and not stored and any(receiver.kafka_down for receiver in receivers):
            why = "receivers cannot use it"
        if why and (self._outage is None or self._outage.ended is not None):
            self._outage = Outage(look.at - oldest, why=why)
        elif why and self._outage is not None:
            self._outage = replace(self._outage, why=why)
        elif self._outage is not None and self._outage.ended is None:
            self._outage = replace(self._outage, ended=look.at)
        elif self._outage is not None and (self._outage.ended or 0) < look.at - SPAN:
            self._outage = None

    def _receivers(self, look: Look) -> list[ReceiverLook]:
        earlier = self._earlier(look, WINDOW)
        found: dict[str, list[Scrape]] = {}
        for scrape in look.scrapes:
            if not _of_lake(scrape):
                found.setdefault(scrape.service, []).append(scrape)
        return [self._receiver(name, scrapes, earlier, look.time) for name, scrapes in found.items()]

    def _receiver(self, name: str, scrapes: Sequence[Scrape], earlier: Look | None, time: float) -> ReceiverLook:
        answering = [scrape for scrape in scrapes if not scrape.problem]
        pairs = _pairs(earlier, answering)
        buckets = between(pairs, "headrace_ack_seconds")

        def total(metric: str) -> int:
            return int(sum(scrape.total(metric) for scrape in answering))

        return ReceiverLook(
            name,
            self._replicas(scrapes, time),
            events=rate(pairs, "headrace_events_stored_total"),
            bytes=rate(pairs, "headrace_received_bytes_total"),
            # sockets of ZeroMQ and of datagrams, which the gauge counts as well, are no client
            connections=max(0, total("headrace_connections_opened_total") - total("headrace_connections_closed_total")),
            p50=quantile(buckets, 0.5),
            p99=quantile(buckets, 0.99),
            used=total("headrace_budget_used_bytes"),
            budget=total("headrace_budget_bytes"),
            pending=total("headrace_frames_pending"),
            oldest=max((scrape.total("headrace_oldest_pending_seconds") for scrape in answering), default=0),
            paused=total("headrace_connections_paused"),
            quarantined=total("headrace_events_quarantined_total"),
            lost=total("headrace_logjam_lost_messages_total"),
            kafka_down=sum(scrape.most("headrace_kafka_up") == 0 for scrape in answering),
        )

    def _replicas(self, scrapes: Iterable[Scrape], time: float) -> list[Replica]:
        made = []
        for scrape in scrapes:
            start = scrape.most("process_start_time_seconds")
            state = "away" if scrape.problem else "ready" if scrape.ready else "unready"
            note = scrape.problem or "; ".join(scrape.notes)
            up = None if start is None else max(0.0, time - start)
            cores = [dict(labels).get("native", "") for labels in scrape.values.get("headrace_build_info", {})]
            made.append(Replica(scrape.url, state, note[:300], up, "".join(cores)))
        return sorted(made, key=lambda replica: replica.state == "ready")

    def _lake(self, look: Look) -> Lake:
        scrapes = [scrape for scrape in look.scrapes if _of_lake(scrape)]
        if not scrapes:
            return Lake()
        answering = [scrape for scrape in scrapes if not scrape.problem]
        replicas = self._replicas(scrapes, look.time)
        if not answering:
            return Lake(replicas)

        pairs = _pairs(self._earlier(look, LAKE_WINDOW), answering)
        fresh = between(pairs, "headrace_lake_freshness_seconds")
        last = max((scrape.total("headrace_lake_last_landed_timestamp_seconds") for scrape in answering), default=0)
        return Lake(
            replicas,
            landed=rate(pairs, "headrace_lake_records_total"),
            p50=quantile(fresh, 0.5),
            p95=quantile(fresh, 0.95),
            ago=max(0.0, look.time - last) if last else None,
        )

    def _lanes(self, look: Look) -> list[Lane]:
        if look.kafka is None:
            return []
        earlier = self._earlier(look, WINDOW)
        past: Mapping[tuple[str, int], int] = {}
        if earlier is not None and earlier.kafka is not None:
            past = {(each.topic, each.number): each.end for each in earlier.kafka.partitions}
        made = []
        for each in look.kafka.partitions:
            place = (each.topic, each.number)
            speed = None
            if place in past and earlier is not None and look.at > earlier.at and not look.kafka.problem:
                speed = grown(past[place], each.end) / (look.at - earlier.at)
            short = each.in_sync < each.replicas
            lag = None if each.landed is None else max(0, each.end - each.landed)
            made.append(Lane(each.topic, each.number, each.end, speed, lag, each.leader is None, short))
        return made

    def _note(self, figures: Figures) -> None:
        down = figures.outage is not None and figures.outage.ended is None
        quarantined = sum(self._reasons[-1][1].values()) if self._reasons and self._reasons[-1][0] == figures.at else 0
        point: dict[str, float | None] = {
            "stored": figures.events,
            "landed": figures.lake.landed,
            "p50": max((receiver.p50 for receiver in figures.receivers if receiver.p50 is not None), default=None),
            "p99": figures.p99,
            "pending": figures.pending,
            "oldest": figures.oldest,
            "used": added(receiver.used for receiver in figures.receivers),
            "lag": figures.lake.lag,
            "fresh": figures.lake.p50,
            "quarantined": quarantined,
            "kafka": 0 if down else 1,
        }
        # four digits each, so that ten minutes of them stay small
        short = {name: value and float(f"{value:.4g}") for name, value in point.items()}
        self.history.append({"time": round(figures.time, 1), **short})
        while (self.history[0]["time"] or 0) < figures.time - SPAN:
            self.history.popleft()


def whole(parts: Sequence[int | None]) -> int | None:
    """Return the sum; None if any is unknown, or without any: a part of a lag is no lag."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _of_lake(scrape: Scrape) -> bool:
    return scrape.service == "lake" or scrape.has("headrace_lake_records_total")


def _pairs(before: Look | None, scrapes: Iterable[Scrape]) -> list[tuple[Scrape, Scrape]]:
    """Return the same process in both looks, if it answered both times."""
    known = {scrape.url: scrape for scrape in before.scrapes if not scrape.problem} if before is not None else {}
    return [(known[new.url], new) for new in scrapes if not new.problem and new.url in known]


def grown(before: float, after: float) -> float:
    """Return how much a counter has grown; one that is smaller has begun again."""
    return after - before if after >= before else after


def rate(pairs: Sequence[tuple[Scrape, Scrape]], name: str) -> float | None:
    """Return how much a counter has grown in a second, over all parts; None if no part answered twice."""
    rates = [
        grown(before.total(name), after.total(name)) / (after.at - before.at)
        for before, after in pairs
        if after.at > before.at
    ]
    return sum(rates) if rates else None


def between(pairs: Sequence[tuple[Scrape, Scrape]], name: str) -> dict[float, float]:
    """Return the histogram of the observations between the two looks, over all parts; cumulative."""
    found: dict[float, float] = defaultdict(float)
    for before, after in pairs:
        old, new = before.buckets(name), after.buckets(name)
        restarted = new.get(float("inf"), 0) < old.get(float("inf"), 0)
        for bound, count in new.items():
            found[bound] += count if restarted else count - old.get(bound, 0)
    return dict(found)


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the value below which `share` of the observations lie, interpolated within its bucket as Prometheus does.

    None without observations; above the last bound, that bound.
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
