"""How metrics are declared, and those of every receiver. Names have the prefix ``headrace_`` and base units (seconds, bytes).

The help texts say what an operator should conclude. The documentation is generated from them (`table`). A protocol's own metrics
are in its package (`Protocol.metrics`).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple
from urllib.parse import quote

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Reason

disable_created_metrics()  # type: ignore[no-untyped-call]

NAMESPACE: Final = "headrace"
ACK_BUCKETS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
)  # fmt: skip


class CountedHistogram(Collector):
    """A histogram of many equal observations at once. Only one thread fills it: a lock for each frame would cost too much."""

    def __init__(self, name: str, text: str, buckets: tuple[float, ...]) -> None:
        self._name, self._text, self._buckets = name, text, buckets
        self._counts = [0.0] * (len(buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: float = 1) -> None:
        """Adds `times` observations of `value`."""
        self._counts[bisect_left(self._buckets, value)] += times
        self._sum += value * times

    @override
    def collect(self) -> Iterable[Metric]:
        edges = [*map(str, map(float, self._buckets)), "+Inf"]
        totals = list(zip(edges, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, totals, self._sum)


LIMITS: Final = tuple(f"LIMITS__{name.upper()}" for name in LimitSettings.__annotations__)
"""The limits of a client of any protocol. A protocol's own are counted from the start by its package."""


class LoopCounter(Collector):
    """A counter that only one thread raises: prometheus_client's lock and checks for each frame would cost too much."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Adds `amount`, which is not negative."""
        self._value += amount

    @override
    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, self._value)


TOP_SOURCES: Final = 10
"""Sources that are shown, at most."""
KEPT_SOURCES: Final = 100
"""Sources that stay when a window has counted twice as many: the heaviest."""
SOURCE_NAME: Final = 100
"""Characters of a source that are shown, at most."""
_WINDOW: Final = 10.0
_WINDOWS: Final = 6
_EVENT: Final = 256
"""Bytes as which an event counts besides its own: small ones cost, too."""


TOP_GAUGES: Final = {
    "top_source_events": "Events of the last minute of the ten sources that sent most, by address or name in the certificate; of "
    "datagrams and of Logjam the messages that came.",
    "top_source_bytes": "Bytes of the same, as their frames were held.",
}


@dataclass(slots=True)
class SourceCount:
    """What a source has sent."""

    events: int = 0
    bytes: int = 0

    def weight(self) -> int:
        """Returns by what sources are compared."""
        return self.bytes + _EVENT * self.events


class TopSources(Collector):
    """Gauges of the sources that sent most in the last minute, in windows of ten seconds. Only one thread fills it.

    Memory is bounded however many sources there are, so a source may have sent more than what is shown, never less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[int, dict[str, SourceCount]] = {}

    def add(self, source: str, events: int, size: int, now: float) -> None:
        """Counts a frame of `size` bytes. `now`: monotonic seconds."""
        number = int(now // _WINDOW)
        window = self._windows.get(number)
        if window is None:
            self._windows = {at: kept for at, kept in self._windows.items() if at > number - _WINDOWS}
            window = self._windows[number] = {}
        found = window.get(source)
        if found is None:
            if len(window) >= 2 * KEPT_SOURCES:  # seldom: to look for the lightest each time would cost 10 µs a frame
                for name in sorted(window, key=lambda name: window[name].weight())[:-KEPT_SOURCES]:
                    del window[name]
            found = window[source] = SourceCount()
        found.events += events
        found.bytes += size

    @override
    def collect(self) -> Iterable[Metric]:
        sums: dict[str, SourceCount] = {}
        since = int(self._clock() // _WINDOW) - _WINDOWS
        for window in [kept for at, kept in list(self._windows.items()) if at > since]:
            for source, count in list(window.items()):
                name = quote(source, errors="replace")[:SOURCE_NAME]
                total = sums.setdefault(name, SourceCount())
                total.events += count.events
                total.bytes += count.bytes
        top = sorted(sums, key=lambda name: (-sums[name].weight(), name))[:TOP_SOURCES]
        for (name, text), value in zip(TOP_GAUGES.items(), ("events", "bytes"), strict=True):
            family = GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=("source",))
            for source in top:
                family.add_metric((source,), getattr(sums[source], value))
            yield family


class MetricDeclaration(NamedTuple):
    """A metric, for the documentation and for what checks queries. `name` is as in the exposition, without ``_bucket``."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]


class Catalogue:
    """Makes metrics in a registry of its own, so that several catalogues can exist in one test process."""

    def __init__(self) -> None:
        self._declared: list[MetricDeclaration] = []
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = (), values: Iterable[str] = ()) -> Counter:
        """Makes a counter; the exposition adds ``_total`` to its name.

        `values`: those of its single label that are exported with 0 from the start. To Prometheus a series that begins
        above 0 has not increased, so without them no alert would see the first error of a process.
        """
        made = Counter(name, text, labels, namespace=NAMESPACE, registry=self.registry)
        for value in values:
            made.labels(value)
        self.declare(f"{name}_total", "counter", text, labels)
        return made

    def loop_counter(self, name: str, text: str) -> LoopCounter:
        """Makes a counter for the event loop's thread alone."""
        made = LoopCounter(f"{NAMESPACE}_{name}", text)
        self.registry.register(made)
        self.declare(f"{name}_total", "counter", text)
        return made

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        """Makes a gauge."""
        made = Gauge(name, text, labels, namespace=NAMESPACE, registry=self.registry)
        self.declare(name, "gauge", text, labels)
        return made

    def histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> CountedHistogram:
        """Makes a histogram for one thread alone."""
        made = CountedHistogram(f"{NAMESPACE}_{name}", text, buckets)
        self.registry.register(made)
        self.declare(name, "histogram", text)
        return made

    def declare(self, name: str, kind: str, text: str, labels: tuple[str, ...] = ()) -> None:
        """Notes a metric for `table`."""
        self._declared.append(MetricDeclaration(f"{NAMESPACE}_{name}", kind, text, labels))

    def exposition(self) -> bytes:
        """Returns the Prometheus text format, version 0.0.4."""
        return generate_latest(self.registry)

    def table(self) -> list[MetricDeclaration]:
        """Returns each Headrace metric, in the order of declaration."""
        return list(self._declared)


class ReceiverMetrics(Catalogue):
    """The metrics of every receiver."""

    def __init__(self) -> None:
        super().__init__()
        self.build_info = self.gauge(
            "build_info",
            "1, with the version, and whether the native core encodes plain events (HEADRACE_NATIVE).",
            ("version", "native"),
        )
        self.connections = self.gauge("connections", "Open connections.")
        self.connections_opened = self.counter("connections_opened", "Connections accepted since start.")
        self.connections_closed = self.counter(
            "connections_closed",
            "Connections closed, by reason: peer, age and drain are ordinary; handshake: it ended before TLS or a PROXY header "
            "was through; protocol_error: the client's fault; deaf: a client that stopped reading; silent: an idle one that made "
            "way for another; abandoned: Kafka's fault; internal: a bug in Headrace, with a stack in its log.",
            ("why",),
            ("peer", "age", "drain", "handshake", "protocol_error", "deaf", "silent", "abandoned", "internal"),
        )
        self.bytes_received = self.loop_counter("received_bytes", "Bytes read from clients.")
        self.events_acknowledgeable = self.loop_counter(
            "events_acknowledgeable",
            "Events of stored frames whose client asked for an acknowledgement.",
        )
        self.events_stored = self.loop_counter("events_stored", "Events stored on the events topic.")
        self.events_quarantined = self.counter(
            "events_quarantined",
            "Events stored on the quarantine topic instead, by reason. Look at the quarantine table.",
            ("reason",),
            [reason.value for reason in Reason],
        )
        self.events_unacknowledgeable = self.loop_counter(
            "events_unacknowledgeable",
            "Events of stored frames whose client asked for no acknowledgement: it would not notice a loss.",
        )
        self.frames_abandoned = self.counter(
            "frames_abandoned",
            "Frames that Kafka refused or did not store within KAFKA__ACK_DEADLINE. They were not acknowledged.",
        )
        self.events_republished = self.counter(
            "events_republished",
            "Events that were sent again, though Kafka may have stored them already.",
        )
        self.limit_hits = self.counter(
            "limit_hits",
            "Limits that a client hit, by setting; DEPTH, FRAME_EVENTS and HANDSHAKE_TIME are fixed.",
            ("limit",),
            LIMITS,
        )
        self.messages_ignored = self.counter(
            "messages_ignored",
            "Messages that Headrace does not use and skipped, by kind. If it rises, a client speaks another version.",
            ("kind",),
        )
        self.frames_pending = self.gauge("frames_pending", "Complete frames that wait for Kafka.")
        self.oldest_pending_seconds = self.gauge(
            "oldest_pending_seconds", "How long the longest-waiting frame has waited."
        )
        self.kafka_up = self.gauge(
            "kafka_up",
            "1 while Kafka stores what waits for it; 0: it cannot be used, or frames have waited 10 s in vain.",
        )
        self.budget_used_bytes = self.gauge("budget_used_bytes", "Bytes in flight, against LIMITS__PROCESS_BUDGET.")
        self.budget = self.gauge("budget_bytes", "LIMITS__PROCESS_BUDGET: most bytes in flight.")
        self.connections_paused = self.gauge(
            "connections_paused", "Connections that are not read now because a budget is used up."
        )
        self.ack_seconds = self.histogram(
            "ack_seconds",
            "Time from a frame's last byte until Kafka has stored all of it.",
            ACK_BUCKETS,
        )
        self.sources = TopSources()
        self.registry.register(self.sources)
        for name, text in TOP_GAUGES.items():
            self.declare(name, "gauge", text, ("source",))
        self.batches = self.loop_counter("batches", "Batches that Kafka stored.")
        self.loop_stall_seconds = self.gauge(
            "loop_stall_seconds", "Longest time in the last minute for which the event loop was blocked."
        )
        self.topic_weak = self.gauge(
            "topic_settings_weak", "1 when a topic's settings do not keep the promise on this cluster (see the log)."
        )
        self.certificate_expiry = self.gauge(
            "certificate_expiry_timestamp_seconds", "Unix time when the TLS certificate expires."
        )
        self.kafka_certificate_expiry = self.gauge(
            "kafka_certificate_expiry_timestamp_seconds",
            "Unix time when the certificate in KAFKA__CERTIFICATE expires.",
        )
