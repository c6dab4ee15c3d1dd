"""What a seed means: settings, clients and faults, drawn once, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiokafka import errors

KIB = 1 << 10

FATAL = (errors.InvalidProducerEpoch, errors.OutOfOrderSequenceNumber, errors.UnknownProducerId)
"""The producer is dead with it."""
STRANGE = (errors.OffsetMetadataTooLargeError,)
"""Not for producers: nothing is stored."""

SMALL_LIMITS = {
    "frame_bytes": 64 * KIB,
    "event_bytes": 32 * KIB,
    "inflated_bytes": 256 * KIB,
    "connection_budget": 384 * KIB,
    "process_budget": 768 * KIB,
    "frame_time": 10,
}
"""So small that a few clients use up the budgets."""


@dataclass(frozen=True)
class ClientPlan:
    """One client. `kind`: honest, or a way of not being so (a method of `clients.Hostile`)."""

    seed: int
    kind: str = "honest"
    start: float = 0.0
    frames: int = 3
    events: int = 3
    window: int = 2
    """Frames on their way at a time."""
    pause: float = 0.0
    """Longest pause between two frames."""
    faulty: float = 0.0
    """Chance that a frame holds an event that cannot be understood."""
    cursed: float = 0.0
    """Chance that it holds one that Kafka refuses."""
    oversized: float = 0.0
    """Chance that it holds one that is too large for the topic."""
    padding: int = 0
    """Longest text in an event."""
    cut: float = 0.0
    """Chance that a connection is cut somewhere while faults last."""
    rough: bool = False
    """The connection splits and delays what is sent, and holds little."""
    slow: float = 0.0
    """Longest time between two reads."""
    dense: bool = False
    """Its texts do not compress."""
    compressed: bool = False
    """Its frames are compressed, where the protocol leaves that to the client."""
    alike: float = 0.0
    """Chance that an event equals the one before it, and that a frame has the events of an earlier frame of any client."""
    finishes: bool = False
    """It ends its side after its last frame, and waits for the receiver's end."""
    restarts: float = 0.0
    """Chance that it leaves after a frame, and comes again; that a device is killed after a burst, and starts anew."""
    count: int = 1
    """Clients of this plan: a crowd."""


@dataclass(frozen=True)
class Fault:
    """`kind`: a field of `kafka.Weather` and its `value`; or kill (at a step of the process), or term (restart)."""

    kind: str
    at: float
    lasts: float
    value: Any = None
    where: int = 0
    """Which of several processes dies."""

    def __str__(self) -> str:
        return f"{self.kind} {'' if self.value is None else self.value} at {self.at:.2f} for {self.lasts:.2f} s"


@dataclass(frozen=True)
class Scenario:
    """Everything that a run depends on, apart from the code."""

    seed: int
    protocol: str
    clients: tuple[ClientPlan, ...] = ()
    faults: tuple[Fault, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict)
    kafka: dict[str, Any] = field(default_factory=dict)
    partitions: int = 2
    creep: float = 2e-6
    max_message_bytes: int = 1_048_588
    delay: tuple[float, float] = (0.0005, 0.004)
    """Seconds that a message to or from Kafka takes."""
    backlog: int = 1 << 16
    """Connections that wait to be accepted, at most: what else comes is not heard, and comes again a second later."""
    replicas: int = 1
    """Processes behind one address."""
    undisturbed: bool = False
    """Nothing but SIGTERM happens: whoever is connected is served on that connection."""

    @property
    def faults_end(self) -> float:
        """When the last fault is over, and all clients have come."""
        ends = [fault.at + fault.lasts for fault in self.faults]
        return max([*ends, *(plan.start for plan in self.clients)], default=0.0)

    @property
    def patience(self) -> float:
        """Seconds after the last fault within which all honest clients must be served: where only Kafka and others are to blame,
        as long as a batch may be without an answer, and then a request to a broker.
        """
        calm = all(not plan.cut and not plan.rough and not plan.slow for plan in self.clients if plan.kind in KEPT)
        return (120.0 if calm and self.delay[1] < 1 else 600.0) + self.kafka.get("request_timeout", 30)


KEPT = ("honest", "teller", "reader", "device", "producer", "pusher", "logger")
"""Kinds of clients to which something is promised."""
