"""What a seed means: anything, or one of some shapes of scenarios."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.simulation.scenario import CROWD, FATAL, SMALL_LIMITS, STRANGE, ClientPlan, Fault, Scenario

WEATHER = ("down", "silent", "unheard", "appended", "passing", "final", "leaderless", "slow")


def draw(seed: int, protocol: str) -> Scenario:
    """The scenario of a seed: anything, or one of `SHAPES`. In one of six, a process is held up as well; in one of eight,
    clients over TCP speak TLS; in one of four, events equal others; in one of four, Kafka minds single records.
    """
    scenario = minded(undelayed(seed, protocol), random.Random(f"minded/{protocol}/{seed}"))
    if random.Random(f"copies/{protocol}/{seed}").random() < 1 / 4:
        scenario = replace(scenario, clients=tuple(replace(plan, alike=0.4) for plan in scenario.clients))
    if protocol not in ("logjam", "producers") and random.Random(f"secured/{protocol}/{seed}").random() < 1 / 8:
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


def minded(scenario: Scenario, chance: random.Random) -> Scenario:
    """In one of four: the same with records among others at which Kafka fails, or that are too large for it, or a while in
    which it takes none into quarantine; or with frames of many small events.
    """
    crowded = any(plan.count >= CROWD for plan in scenario.clients)
    others = scenario.protocol in ("segment", "logjam", "producers") or scenario.undisturbed or crowded
    if others or chance.random() > 1 / 4:
        return scenario
    kind = chance.choice(("odd", "oversized", "spoilt", "many"))
    if kind == "spoilt":
        lasts = chance.choice((1.0, 10.0))
        scenario = replace(scenario, faults=(*scenario.faults, Fault(kind, chance.uniform(0, 5), lasts)))
        changed: dict[str, Any] = {"faulty": 0.5, "events": 3}
    elif kind == "many":
        changed = {"events": 150, "frames": 2, "padding": 0, "rough": False, "count": 1}
    elif kind == "odd":
        # A search takes some answers for each, and begins again where its frames are given up.
        scenario = replace(scenario, delay=Scenario.delay, kafka={**scenario.kafka, "ack_deadline": 30})
        changed = {kind: 0.2, "events": 3, "padding": 200, "rough": False}
    else:
        changed = {kind: 0.3, "events": 3, "frames": 3, "rough": False}
        kafka = {**scenario.kafka, "ack_deadline": 300}
        scenario = replace(scenario, limits={}, max_message_bytes=131_072, kafka=kafka)
        if chance.random() < 0.5:  # a batch that has waited is too large by then
            lowered = Fault("lowered", chance.uniform(0.2, 1), 0.0)
            scenario = replace(
                scenario, faults=(*scenario.faults, lowered), max_message_bytes=1_048_588, delay=(0.05, 0.4)
            )
            changed |= {"window": 6, "start": 0.0, "count": 2}
    if kind in ("odd", "oversized") and chance.random() < 0.5:  # while their batches are taken apart
        faults = [Fault(chance.choice(("final", "down")), chance.uniform(0, 5), 2.0, 0.5) for _ in range(3)]
        scenario = replace(scenario, faults=(*scenario.faults, *faults))
    clients = (replace(plan, **changed) if plan.kind == "honest" else plan for plan in scenario.clients)
    return replace(scenario, clients=tuple(clients))


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
    shape = SHAPES.get(seed % 16)
    if shape is not None and (shape, protocol) != (portions, "producers"):  # agents wait for no frame so long
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


def portions(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Frames of many batches, each of which takes Kafka a while: clients hear of parts, and go on behind these when a receiver is
    killed, or told to stop while the rest of a frame is on its way.
    """
    slow = chance.random() < 0.5
    clients = [
        ClientPlan(
            chance.getrandbits(32),
            start=chance.uniform(0, 2),
            frames=chance.randint(1, 3),
            events=chance.choice((12, 30)),
            window=chance.choice((1, 2)),
            faulty=chance.choice((0.0, 0.5)),
            cursed=chance.choice((0.0, 0.5)),
            padding=4000,
            dense=True,
            rough=chance.random() < 0.5,
        )
        for _ in range(chance.randint(1, 3))
    ]
    faults = [_death(chance, 20.0) for _ in range(chance.randint(1, 4))]
    faults.append(Fault("term", chance.uniform(0, 5), 0.0))
    return Scenario(
        seed,
        protocol,
        tuple(clients),
        tuple(faults),
        kafka={"ack_deadline": 300, "request_timeout": 30},
        partitions=1,
        max_message_bytes=chance.choice((12_000, 24_000)),
        delay=(0.2, 1.5) if slow else (0.05, 0.4),
    )


def refused(seed: int, protocol: str, chance: random.Random) -> Scenario:
    """Kafka ends each producer, or is silent for longer than anybody waits, while frames come that are given up one after the
    other; some of them wait for memory.
    """
    kind = chance.choices(("silent", "unheard", "final", "quarantine_ends"), (1, 3, 3, 2))[0]
    at, silent = chance.uniform(0, 3), kind in ("silent", "unheard")
    if kind == "unheard":  # batches of one event, which could be taken for one another
        single = ClientPlan(0, frames=1, events=1, window=1, pause=1.0)
        one, other = (
            replace(single, seed=chance.getrandbits(32), start=at + begin) for begin in (0, chance.uniform(5, 25))
        )
        fault = Fault(kind, at, chance.uniform(25, 100), 1.0)
        deadline = {"ack_deadline": chance.choice((20, 20, 300)), "request_timeout": 5}
        return Scenario(seed, protocol, (one, other), (fault,), kafka=deadline, partitions=1)
    clients = [
        ClientPlan(
            chance.getrandbits(32),
            start=chance.uniform(0, 6),
            frames=chance.randint(1, 6),
            events=chance.choice((1, 3)),
            window=6,
            pause=1.0,
            faulty=0.4,
            padding=chance.choice((0, 0, 16_000)),
            dense=True,
            compressed=chance.random() < 0.5,
            count=2,
        )
        for _ in range(chance.randint(2, 3))
    ]
    lasts = 150.0 if silent else chance.choice((8.0, 16.0))
    return Scenario(
        seed,
        protocol,
        tuple(clients),
        (Fault(kind, at, lasts, 1.0), Fault("errors", at, lasts, chance.choice((FATAL, STRANGE)))),
        dict(SMALL_LIMITS) if chance.random() < 0.5 else {},
        {"ack_deadline": chance.choice((20, 300)) if silent else 5, "request_timeout": 5},
        partitions=1,
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
    keepers = chance.choice((0, 0, 0, 2, 3))
    if keepers:  # what a checkpoint has is told by one that began with it
        deaths = (replace(_death(chance, 1.0), at=chance.uniform(2.0, 10.0), where=place) for place in range(count))
        faults += deaths
    for _ in range(keepers):
        old, pause = chance.random() < 0.25, chance.choice((0.0, 0.5, 1.0))
        clients.append(replace(plan("keeper", chance.choice((10, 20, 40))), compressed=old, pause=pause))
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
            faulty=chance.choice((0.0, 0.1, 0.4)),
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
    """The same with clients of each kind that Logjam has, of which some do not wait for answers. In one of eight, these and
    others speak at once for one application.
    """
    mixed = random.Random(f"mixed/{scenario.seed}")
    together = mixed.random() < 1 / 8 and not (scenario.undisturbed and scenario.faults)

    def kind(plan: ClientPlan) -> str:
        if plan.kind == "honest":
            if together:
                return mixed.choice(("producer", "logger"))
            return chance.choices(("producer", "pusher", "logger", "pinger"), (12, 5, 2, 1))[0]
        return chance.choice((plan.kind, plan.kind, "endless", "huge"))

    def pushing(plan: ClientPlan) -> ClientPlan:
        """While a process stops, something is on its way."""
        return replace(plan, frames=200, events=1, pause=0.04) if plan.kind in ("pusher", "logger") else plan

    clients = tuple(replace(plan, kind=kind(plan), finishes=False) for plan in scenario.clients)
    if together:
        alone: dict[str, Any] = {"start": 0.0, "window": 1, "events": 1, "rough": False, "frames": 6}
        alone["padding"] = 4_000 if scenario.limits else 20_000
        clients = tuple(replace(plan, **alone, count=max(3, plan.count)) for plan in clients)
        scenario = replace(scenario, max_message_bytes=131_072)  # so that a frame takes several batches
    stops = scenario.undisturbed and scenario.faults
    return replace(scenario, clients=tuple(map(pushing, clients)) if stops else clients)


SHAPES: dict[int, Callable[[int, str, random.Random], Scenario]] = {
    3: full,
    4: portions,
    7: drain,
    11: orphaned,
    12: refused,
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
