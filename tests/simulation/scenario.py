"""What a seed means: settings, clients and faults, drawn once. What is drawn is plain data, so that a failure can be shrunk."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from headrace_common.publishing.delivery import SILENCE_TIME

KIB = 1 << 10

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
    """Chance that it is killed after a burst, and starts anew: a device."""
    count: int = 1
    """Clients of this plan: a crowd."""


@dataclass(frozen=True)
class Fault:
    """`kind`: a field of `kafka.Weather` and its `value`; or kill (at a step of the process), term (restart), or
    held up (it does not run for a while; `value`: its timers run before it sees what has come meanwhile).
    """

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
    shuffled: bool = False
    max_message_bytes: int = 1_048_588
    delay: tuple[float, float] = (0.0005, 0.004)
    """Seconds that a message to or from Kafka takes."""
    backlog: int = 1 << 16
    """Connections that wait to be accepted, at most: what else comes is not heard, and comes again a second later."""
    replicas: int = 1
    """Processes behind one address."""
    secured: bool = False
    """All clients speak TLS."""
    undisturbed: bool = False
    """Nothing but SIGTERM happens: whoever is connected is served on that connection."""

    def of(self, kind: str) -> list[Fault]:
        """The faults of a kind."""
        return [fault for fault in self.faults if fault.kind == kind]

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
        return (SILENCE_TIME if calm else 600.0) + self.kafka.get("request_timeout", 30)

    def smaller(self) -> Iterator[Scenario]:
        """Scenarios with less in them: fewer faults, fewer clients, fewer frames."""
        for index in range(len(self.faults)):
            yield replace(self, faults=self.faults[:index] + self.faults[index + 1 :])
        for index, plan in enumerate(self.clients):
            rest = self.clients[:index], self.clients[index + 1 :]
            yield replace(self, clients=rest[0] + rest[1])
            for less in (
                {"count": plan.count // 2} if plan.count > 1 else None,
                {"frames": plan.frames // 2} if plan.frames > 1 else None,
                {"events": plan.events // 2} if plan.events > 1 else None,
                {"rough": False} if plan.rough else None,
                {"slow": 0.0} if plan.slow else None,
                {"restarts": 0.0} if plan.restarts else None,
                {"cut": 0.0} if plan.cut else None,
                {"pause": 0.0} if plan.pause else None,
                {"faulty": 0.0, "cursed": 0.0} if plan.faulty or plan.cursed else None,
                {"padding": 0} if plan.padding else None,
                {"alike": 0.0} if plan.alike else None,
            ):
                if less is not None:
                    yield replace(self, clients=(*rest[0], replace(plan, **less), *rest[1]))
        if self.shuffled:
            yield replace(self, shuffled=False)
        if self.secured:
            yield replace(self, secured=False)


KEPT = ("honest", "teller", "writer", "today", "reader", "device", "producer", "pusher", "logger", "pinger")
"""Kinds of clients to which something is promised."""

WEATHER = ("down", "silent", "unheard", "appended", "passing", "final", "leaderless", "slow")


def draw(seed: int, protocol: str) -> Scenario:
    """The scenario of a seed: anything, or one of `SHAPES`. In one of six, a process is held up as well; in one of sixteen,
    clients over TCP speak TLS; in one of four, events equal others.
    """
    scenario = undelayed(seed, protocol)
    if random.Random(f"copies/{protocol}/{seed}").random() < 1 / 4:
        scenario = replace(scenario, clients=tuple(replace(plan, alike=0.4) for plan in scenario.clients))
    if protocol not in ("logjam", "producers") and random.Random(f"secured/{protocol}/{seed}").random() < 1 / 16:
        scenario = replace(scenario, secured=True)
    chance = random.Random(f"held/{protocol}/{seed}")
    if protocol in ("logjam", "producers") or scenario.undisturbed or chance.random() > 1 / 6:
        return scenario
    fault = Fault(
        "held up",
        chance.uniform(0, max(5.0, scenario.faults_end)),
        chance.choice((0.5, 5.0, 20.0, 70.0, 140.0)),
        chance.random() < 0.5,
        chance.randrange(scenario.replicas),
    )
    return replace(scenario, faults=(*scenario.faults, fault))


def undelayed(seed: int, protocol: str) -> Scenario:
    """A scenario in which every process runs whenever it may."""
    chance = random.Random(f"{protocol}/{seed}")
    if protocol == "segment":
        return replicas(seed, chance)
    if protocol == "logjam":
        return devices(seed, chance)
    scenario = shaped(seed, protocol, chance)
    return of_producers(scenario, chance) if protocol == "producers" else scenario


def shaped(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Anything, or one of `SHAPES`, or a crowd."""
    if seed % 1000 == 500:
        return crowd(seed, protocol, chance)
    if seed % 32 == 5 and protocol != "producers":  # they share the account of their socket
        return beside(seed, protocol, chance)
    if protocol == "forward" and seed % 16 == 9:
        return unasked(seed, protocol, chance)
    if (shape := SHAPES.get(seed % 16)) is not None:
        return shape(seed, protocol, chance)
    return anything(seed, protocol, chance)


def unasked(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """As many clients again, which ask for no acknowledgement."""
    scenario = chance.choice((anything, anything, full, drain))(seed, protocol, chance)
    untold = (replace(plan, kind="teller", faulty=0.0) for plan in scenario.clients if plan.kind == "honest")
    if scenario.undisturbed and scenario.faults:  # while a process stops, something is on its way
        untold = (replace(plan, frames=100, events=1, pause=0.08) for plan in untold)
    return replace(scenario, clients=(*scenario.clients, *untold))


def anything(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Any clients and faults."""
    small = chance.random() < 0.5
    calm = chance.random() < 0.1
    span = chance.choice((0.5, 5.0, 30.0))
    clients = [_honest(chance, span, small) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.5:
        clients += [_hostile(chance, span) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.02:
        clients.append(replace(_honest(chance, 0.5, small), count=chance.randint(20, 60), frames=1, padding=0))
    partitions = chance.randint(1, 3)
    faults = [] if calm else [_fault(chance, span, partitions) for _ in range(chance.randint(1, 4))]
    if not calm and chance.random() < 0.4:
        faults += [_death(chance, span) for _ in range(chance.randint(1, 2))]
    return Scenario(
        seed,
        protocol,
        tuple(clients),
        tuple(faults),
        dict(SMALL_LIMITS) if small else {},
        {"ack_deadline": chance.choice((5, 30, 300)), "request_timeout": chance.choice((1, 5, 30))},
        partitions,
        chance.choice((1e-6, 2e-5, 4e-4)),
        chance.random() < 0.25,
        chance.choice((1_048_588, 1_048_588, 131_072)),
    )


def bombs(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Bombs that grow to the limits, a crowd of established and of new clients, and a broker that is killed once meanwhile."""
    before = ClientPlan(chance.getrandbits(32), frames=6, events=2, window=1, pause=2.0, count=chance.randint(2, 8))
    after = ClientPlan(
        chance.getrandbits(32), start=chance.uniform(3, 12), frames=2, events=2, count=chance.randint(2, 8)
    )
    bomb = ClientPlan(
        chance.getrandbits(32), "bomb", start=1.0, frames=chance.randint(1, 4), count=chance.randint(2, 12), pause=3.0
    )
    at = chance.uniform(0.5, 6)
    faults = [Fault("down", at, chance.uniform(0.5, 8))]
    if chance.random() < 0.5:
        faults.append(Fault("leaderless", at, chance.uniform(1, 15), frozenset({0})))
    if chance.random() < 0.5:
        faults.append(Fault("unheard", at - 0.3, 0.6, 0.5))
    return Scenario(
        seed,
        protocol,
        (before, bomb, after),
        tuple(faults),
        dict(SMALL_LIMITS),
        {"ack_deadline": chance.choice((5, 30, 300)), "request_timeout": chance.choice((1, 5, 30))},
        chance.randint(1, 3),
        chance.choice((2e-5, 4e-4)),
    )


def full(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Honest clients alone, whose large frames use up the budgets while Kafka takes its time."""
    clients = [
        ClientPlan(
            chance.getrandbits(32),
            start=chance.uniform(0, 0.2),
            frames=chance.randint(2, 4),
            events=chance.choice((1, 3)),
            window=chance.choice((1, 2, 6)),
            padding=chance.choice((2_000, 16_000, 20_000)),
            dense=True,
            compressed=chance.random() < 0.5,
            finishes=chance.random() < 0.5,
            count=chance.randint(2, 8),
        )
        for _ in range(2)
    ]
    return Scenario(
        seed,
        protocol,
        tuple(clients),
        limits=dict(SMALL_LIMITS),
        kafka={"ack_deadline": 300},
        partitions=chance.randint(1, 3),
        creep=chance.choice((1e-6, 2e-5)),
        delay=chance.choice(((0.01, 0.05), (0.05, 0.4))),
        undisturbed=True,
    )


def drain(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """SIGTERM while frames wait for a slow Kafka."""
    clients = [
        ClientPlan(
            chance.getrandbits(32),
            start=chance.uniform(0, 2),
            frames=chance.randint(1, 6),
            events=chance.choice((1, 3, 12)),
            window=chance.choice((1, 3, 6)),
            pause=chance.choice((0.0, 1.0)),
            padding=chance.choice((0, 200)),
            finishes=chance.random() < 0.5,
        )
        for _ in range(chance.randint(1, 6))
    ]
    return Scenario(
        seed,
        protocol,
        tuple(clients),
        tuple(Fault("term", chance.uniform(0, 4), 0.0) for _ in range(chance.randint(1, 3))),
        kafka={"ack_deadline": 300},
        partitions=chance.randint(1, 3),
        shuffled=chance.random() < 0.25,
        delay=chance.choice(((0.01, 0.1), (0.2, 1.0))),
        undisturbed=True,
    )


def orphaned(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Partitions without leaders for far longer than anybody waits."""
    partitions = chance.randint(1, 3)
    clients = [replace(_honest(chance, 5.0, False), cut=0.0) for _ in range(chance.randint(1, 2))]
    lost = frozenset(chance.sample(range(partitions), chance.randint(1, partitions)))
    return Scenario(
        seed,
        protocol,
        tuple(clients),
        (Fault("leaderless", chance.uniform(0, 2), chance.uniform(150, 170), lost),),
        kafka={"ack_deadline": 5, "request_timeout": 5},
        partitions=partitions,
        creep=2e-5,
    )


def changed(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Anything, and meanwhile the topics change: partitions come, `max.message.bytes` sinks, all is deleted and made anew. The
    listener is full after a few connections.
    """
    scenario = anything(seed, protocol, chance)
    kinds = chance.sample(("partitions", "lowered", "missing"), chance.randint(1, 3))
    faults = [Fault(kind, chance.uniform(0, 5), 5.0 if kind == "missing" else 0.0) for kind in kinds]
    return replace(scenario, faults=(*scenario.faults, *faults), backlog=chance.choice((1, 3, 1 << 16)))


def crowd(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Two thousand clients at once, and a broker that is killed."""
    plan = ClientPlan(chance.getrandbits(32), frames=1, events=1, count=2000)
    down = Fault("down", chance.uniform(0, 1), 2.0)
    return Scenario(seed, protocol, (plan,), (down,), kafka={"ack_deadline": 30}, creep=2e-5, backlog=128)


def beside(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Clients with small frames beside a crowd whose frames take many slices."""
    few = ClientPlan(chance.getrandbits(32), frames=20, events=1, window=1, count=chance.randint(1, 3))
    many = ClientPlan(
        chance.getrandbits(32),
        frames=chance.randint(1, 2),
        events=chance.choice((12, 40)),
        window=1,
        padding=4000,
        dense=True,
        count=chance.randint(15, 30),
    )
    kafka = {"ack_deadline": 300}
    return Scenario(seed, protocol, (few, many), (), {}, kafka, chance.randint(1, 3), 4e-4, undisturbed=True)


def replicas(seed: int, chance: random.Random) -> Scenario:
    """Writers of both dialects and readers, between replicas of the segment service."""
    span = chance.choice((0.5, 5.0, 20.0))
    count, partitions = chance.randint(1, 3), chance.randint(1, 2)
    events = chance.choice((5, 20, 60))

    def plan(kind: str, events: int) -> ClientPlan:
        return ClientPlan(
            chance.getrandbits(32),
            kind,
            chance.uniform(0, span / 2),
            frames=events,
            cut=chance.choice((0.0, 0.5)),
            rough=chance.random() < 0.3,
        )

    clients = [plan("writer", events) for _ in range(chance.randint(1, 3))]
    clients += [plan("today", chance.choice((5, 30))) for _ in range(chance.randint(0, 2))]
    clients += [plan("reader", 0) for _ in range(chance.randint(1, 2))]
    faults = [_fault(chance, span, partitions) for _ in range(chance.choice((0, 1, 2, 3)))]
    faults += [replace(_death(chance, span), where=chance.randrange(count)) for _ in range(chance.choice((0, 1, 2, 4)))]
    return Scenario(
        seed,
        "segment",
        tuple(clients),
        tuple(faults),
        limits={"event_bytes": 1024},
        kafka={"ack_deadline": chance.choice((5, 30)), "request_timeout": chance.choice((1, 5))},
        partitions=partitions,
        creep=chance.choice((1e-6, 2e-5)),
        shuffled=chance.random() < 0.25,
        replicas=count,
    )


def devices(seed: int, chance: random.Random) -> Scenario:
    """Devices that restart, whose connections break, and a consumer that is killed and stopped."""
    span = chance.choice((0.5, 5.0, 20.0))
    partitions = chance.randint(1, 3)
    clients = tuple(
        ClientPlan(
            chance.getrandbits(32),
            "device",
            chance.uniform(0, span / 2),
            frames=chance.choice((3, 10, 40)),
            events=chance.choice((1, 5, 40)),
            pause=chance.choice((0.1, span / 20)),
            faulty=chance.choice((0.0, 0.0, 0.1)),
            cut=chance.choice((0.0, 0.1, 0.4)),
            restarts=chance.choice((0.0, 0.1, 0.3)),
            padding=chance.choice((0, 0, 200, 4000)),
        )
        for _ in range(chance.randint(1, 3))
    )
    faults = [_fault(chance, span, partitions) for _ in range(chance.choice((0, 1, 2, 3)))]
    faults += [_death(chance, span) for _ in range(chance.choice((0, 1, 2, 4)))]
    return Scenario(
        seed,
        "logjam",
        clients,
        tuple(faults),
        dict(SMALL_LIMITS) if chance.random() < 0.5 else {},
        {"ack_deadline": chance.choice((5, 30)), "request_timeout": chance.choice((1, 5))},
        partitions,
        chance.choice((1e-6, 2e-5, 4e-4)),
        chance.random() < 0.25,
    )


def of_producers(scenario: Scenario, chance: random.Random) -> Scenario:
    """The same with clients of each kind that Logjam has, of which some do not wait for answers."""

    def kind(plan: ClientPlan) -> str:
        if plan.kind == "honest":
            return chance.choices(("producer", "pusher", "logger", "pinger"), (12, 5, 2, 1))[0]
        return chance.choice((plan.kind, plan.kind, "endless", "huge"))

    def pushing(plan: ClientPlan) -> ClientPlan:
        """While a process stops, something is on its way."""
        return replace(plan, frames=200, events=1, pause=0.04) if plan.kind in ("pusher", "logger") else plan

    clients = tuple(replace(plan, kind=kind(plan), finishes=False) for plan in scenario.clients)
    stops = scenario.undisturbed and scenario.faults
    return replace(scenario, clients=tuple(map(pushing, clients)) if stops else clients)


SHAPES: dict[int, Callable[[int, str, random.Random], Scenario]] = {
    3: full,
    7: drain,
    11: orphaned,
    13: changed,
    15: bombs,
}
"""What a seed means whose remainder by 16 is this. The last is the shape that once served nobody."""


def _honest(chance: random.Random, span: float, small: bool) -> ClientPlan:
    return ClientPlan(
        chance.getrandbits(32),
        start=chance.uniform(0, span / 2),
        frames=chance.randint(1, 6),
        events=chance.choice((1, 1, 3, 12)),
        window=chance.choice((1, 2, 6)),
        pause=chance.choice((0.0, span / 4)),
        faulty=chance.choice((0.0, 0.3)),
        cursed=chance.choice((0.0, 0.0, 0.2)),
        padding=chance.choice((0, 0, 200, 4000 if small else 20_000)),
        cut=chance.choice((0.0, 0.6)),
        rough=chance.random() < 0.5,
        slow=chance.choice((0.0, 0.0, 0.5)),
    )


def _hostile(chance: random.Random, span: float) -> ClientPlan:
    kind = chance.choice(("garbage", "half", "deaf", "bomb", "silent", "leaver", "truncated"))
    return ClientPlan(
        chance.getrandbits(32),
        kind,
        chance.uniform(0, span),
        frames=chance.randint(1, 4),
        pause=span / 4,
        rough=chance.random() < 0.5,
    )


def _fault(chance: random.Random, span: float, partitions: int) -> Fault:
    kind = chance.choice(WEATHER)
    value: Any = None
    if kind == "leaderless":
        value = frozenset(chance.sample(range(partitions), chance.randint(1, partitions)))
    elif kind == "slow":
        value = chance.choice((0.2, 2.0))
    elif kind != "down":
        value = chance.choice((0.1, 0.5, 1.0))
    lasts = chance.choice((0.2, span / 4, span, 3 * span))
    return Fault(kind, chance.uniform(0, span), lasts if kind != "final" else min(lasts, 10.0), value)


def _death(chance: random.Random, span: float) -> Fault:
    if chance.random() < 0.3:
        return Fault("term", chance.uniform(0, span), 0.0)
    return Fault("kill", chance.uniform(0, span), 0.0, chance.randint(0, 400))
