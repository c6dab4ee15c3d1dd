"""The state of a headrace at one moment, and the figures that follow. Times are in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace_cli.operating.exposition import BusySource, Scrape


@dataclass(frozen=True)
class PartitionLook:
    """A partition as Kafka describes it. `end`: the next offset; `leader` is None if it has none; `landed`: the position of the
    landing job's group, None if that is not known.
    """

    topic: str
    number: int
    end: int
    leader: int | None = None
    replicas: int = 1
    in_sync: int = 1
    landed: int | None = None


@dataclass(frozen=True)
class KafkaLook:
    """Kafka's answers. `problem`: why it gave none; `missing`: ids of absent brokers that have replicas."""

    problem: str = ""
    brokers: int | None = None
    missing: Sequence[int] = ()
    partitions: Sequence[PartitionLook] = ()


@dataclass(frozen=True)
class GapTotal:
    """Missing offsets (`retention`, `recreated`) or numbers of devices, over all rows of one reason."""

    reason: str
    rows: int
    lost: int | None


@dataclass(frozen=True)
class TablesLook:
    """The figures of the tables. `landed`: Unix time of the last batch."""

    problem: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)
    landed: float | None = None
    gaps: Sequence[GapTotal] = ()


@dataclass(frozen=True)
class Look:
    """One look at everything. `at`: of a clock that never goes back; `time`: Unix time. None: it is not known here."""

    at: float
    time: float
    scrapes: Sequence[Scrape]
    kafka: KafkaLook | None = None
    tables: TablesLook | None = None


@dataclass(frozen=True)
class Replica:
    """One process. `state`: ready, unready or away; `native`: its core, on or off."""

    url: str
    state: str
    note: str = ""
    up: float | None = None
    native: str = ""


@dataclass(frozen=True)
class ReceiverLook:
    """A receiver over its replicas. None: it has no such figure, or nothing happened in the last seconds.

    `quarantined` and `lost` count since the replicas started.
    """

    service: str
    replicas: Sequence[Replica]
    events: float | None = None
    bytes: float | None = None
    connections: int = 0
    p50: float | None = None
    p99: float | None = None
    used: int = 0
    budget: int = 0
    pending: int = 0
    oldest: float = 0
    paused: int = 0
    quarantined: int = 0
    lost: int = 0
    kafka_down: int = 0


@dataclass(frozen=True)
class Lane:
    """A partition with its rate, and how many of its records have not landed."""

    topic: str
    number: int
    end: int | None
    rate: float | None
    lag: int | None
    leaderless: bool = False
    short: bool = False


@dataclass(frozen=True)
class Outage:
    """Time in which Kafka could not be used. `ended` is None while it lasts; both are of the clock of `Look.at`."""

    began: float
    ended: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Lake:
    """The landing job. `landed`: records per second; `ago`: time since the last batch."""

    replicas: Sequence[Replica] = ()
    landed: float | None = None
    lag: int | None = None
    p50: float | None = None
    p95: float | None = None
    ago: float | None = None

    @property
    def ready(self) -> int:
        return sum(replica.state == "ready" for replica in self.replicas)


@dataclass(frozen=True)
class Figures:
    """Everything that the page shows but its history. `kafka` and `tables` are None if they are not known here.

    `quarantined`: by reason, in the time that the history holds.
    """

    at: float
    time: float
    receivers: Sequence[ReceiverLook]
    lanes: Sequence[Lane]
    lake: Lake
    kafka: KafkaLook | None = None
    tables: TablesLook | None = None
    outage: Outage | None = None
    quarantined: Mapping[str, int] = field(default_factory=dict)
    span: float = 0
    sources: Sequence[BusySource] = ()

    @property
    def events(self) -> float | None:
        """Events stored per second."""
        return added(receiver.events for receiver in self.receivers)

    @property
    def pending(self) -> int:
        return sum(receiver.pending for receiver in self.receivers)

    @property
    def oldest(self) -> float:
        return max((receiver.oldest for receiver in self.receivers), default=0)

    @property
    def p99(self) -> float | None:
        return max((receiver.p99 for receiver in self.receivers if receiver.p99 is not None), default=None)


def added(values: Iterable[float | None]) -> float | None:
    """Return the sum of those that are not None; None without any."""
    found = [value for value in values if value is not None]
    return sum(found) if found else None
