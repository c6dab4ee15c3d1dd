"""What a seed means: anything, or one of some shapes of scenarios.

A shape names its fields. Of a list or a range one item is drawn, of `Within` a number, and of a dictionary each of its values;
whatever else is there is meant.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tests.simulation.scenario import FATAL, SMALL_LIMITS, STRANGE, ClientPlan, Fault, Scenario

WEATHER = ("down", "silent", "unheard", "appended", "passing", "final", "leaderless", "slow")
EITHER: Final = [False, True]
LIMITS: Final = [{}, SMALL_LIMITS]
TIMES: Final = {"ack_deadline": [5, 30, 300], "request_timeout": [1, 5, 30]}
PARTITIONS: Final = range(1, 4)
CREEP: Final = [1e-6, 2e-5, 4e-4]

Fields = dict[str, Any]
"""Of a plan or a scenario."""


class Within(NamedTuple):
    """Any number between two."""

    least: float
    most: float


def drawn(chance: random.Random, meant: Any) -> Any:
    """What is meant by a field, or by several."""
    if isinstance(meant, Within):
        return chance.uniform(*meant)
    if isinstance(meant, list | range):
        return drawn(chance, chance.choice(meant))
    if isinstance(meant, dict):
        return {name: drawn(chance, each) for name, each in meant.items()}
    return meant


def plans(chance: random.Random, number: Any = 1, /, **fields: Any) -> tuple[ClientPlan, ...]:
    """So many plans of these fields, each with a seed."""
    return tuple(ClientPlan(chance.getrandbits(32), **drawn(chance, fields)) for _ in range(drawn(chance, number)))


def draw(seed: int, protocol: str) -> Scenario:
    """The scenario of a seed: anything, or one of `SHAPES`. In one of four, events equal others; in one of four, Kafka
    minds single records.
    """
    scenario = minded(usual(seed, protocol), random.Random(f"minded/{protocol}/{seed}"))
    if random.Random(f"copies/{protocol}/{seed}").random() < 1 / 4:
        return replace(scenario, clients=tuple(replace(plan, alike=0.4) for plan in scenario.clients))
    return scenario


def minded(scenario: Scenario, chance: random.Random) -> Scenario:
    """In one of four: the same with records among others that are too large for Kafka, or a while in which it takes none into
    quarantine; or with frames of many small events.
    """
    others = scenario.protocol in ("segment", "logjam", "producers") or scenario.undisturbed
    if others or chance.random() > 1 / 4:
        return scenario
    kind = chance.choice(("oversized", "oversized", "spoilt", "many"))
    faults, kafka, more = list(scenario.faults), dict(scenario.kafka), Fields()
    if kind == "spoilt":
        faults.append(Fault(kind, chance.uniform(0, 5), chance.choice((1.0, 10.0))))
        changed: Fields = {"faulty": 0.5, "events": 3}
    elif kind == "many":
        changed = {"events": 150, "frames": 2, "padding": 0, "rough": False, "count": 1}
    else:
        kafka["ack_deadline"] = 300
        more |= {"limits": {}, "max_message_bytes": 131_072}
        changed = {kind: 0.3, "events": 3, "frames": 3, "rough": False}
        if chance.random() < 0.5:  # a batch that has waited is too large by then
            faults.append(Fault("lowered", chance.uniform(0.2, 1), 0.0))
            more |= {"max_message_bytes": Scenario.max_message_bytes, "delay": (0.05, 0.4)}
            changed |= {"window": 6, "start": 0.0, "count": 2}
    if kind == "oversized" and chance.random() < 0.5:  # while their batches are taken apart
        faults += [Fault(chance.choice(("final", "down")), chance.uniform(0, 5), 2.0, 0.5) for _ in range(3)]
    clients = (replace(plan, **changed) if plan.kind == "honest" else plan for plan in scenario.clients)
    return replace(scenario, clients=tuple(clients), faults=tuple(faults), kafka=kafka, **more)


def usual(seed: int, protocol: str) -> Scenario:
    """A scenario of one of the shapes."""
    chance = random.Random(f"{protocol}/{seed}")
    scenario = Scenario(seed, protocol, **drawn(chance, shape(seed, protocol)(chance)))
    return of_producers(scenario, chance) if protocol == "producers" else scenario


def shape(seed: int, protocol: str) -> Callable[[random.Random], Fields]:
    """Anything, or one of `SHAPES`."""
    if protocol in ("logjam", "segment"):
        return devices if protocol == "logjam" else replicas
    if seed % 32 == 5 and protocol != "producers":  # they share the account of their socket
        return beside
    if protocol == "forward" and seed % 16 == 9:
        return unasked
    found = SHAPES.get(seed % 16, anything)
    return anything if (found, protocol) == (portions, "producers") else found  # agents wait for no frame so long


def unasked(chance: random.Random) -> Fields:
    """As many clients again, which ask for no acknowledgement."""
    fields = chance.choice((anything, full, drain, drain, drain))(chance)
    changed: Fields = {"kind": "teller", "faulty": 0.0}
    if fields.get("undisturbed") and fields.get("faults"):  # while a process stops, something is on its way
        changed |= {"frames": 100, "events": 1, "pause": 0.08}
    untold = (replace(plan, **changed) for plan in fields["clients"] if plan.kind == "honest")
    return {**fields, "clients": (*fields["clients"], *untold)}


def anything(chance: random.Random) -> Fields:
    """Any clients and faults."""
    small, calm, span = chance.random() < 0.5, chance.random() < 0.1, chance.choice((0.5, 5.0, 30.0))
    clients = plans(chance, range(1, 5), **honest(span, small=small))
    if chance.random() < 0.5:
        kinds = ["garbage", "half", "deaf", "bomb", "silent", "leaver", "truncated"]
        when: Fields = {"start": Within(0, span), "frames": range(1, 5), "pause": span / 4}
        clients += plans(chance, range(1, 4), kind=kinds, rough=EITHER, **when)
    if chance.random() < 0.02:
        many = {**honest(0.5, small=small), "count": range(20, 61), "frames": 1, "padding": 0}
        clients += plans(chance, **many)
    partitions = drawn(chance, PARTITIONS)
    faults = [] if calm else [_fault(chance, span, partitions) for _ in range(chance.randint(1, 4))]
    if not calm and chance.random() < 0.4:
        faults += [_death(chance, span) for _ in range(chance.randint(1, 2))]
    return {
        "clients": clients,
        "faults": tuple(faults),
        "limits": LIMITS[small],
        "kafka": TIMES,
        "partitions": partitions,
        "creep": CREEP,
        "max_message_bytes": [1_048_588, 1_048_588, 131_072],
    }


def honest(span: float, *, small: bool) -> Fields:
    """Of a client's plan."""
    return {
        "start": Within(0, span / 2),
        "frames": range(1, 7),
        "events": [1, 1, 3, 12],
        "window": [1, 2, 6],
        "pause": [0.0, span / 4],
        "faulty": [0.0, 0.3],
        "cursed": [0.0, 0.0, 0.2],
        "padding": [0, 0, 200, 4000 if small else 20_000],
        "cut": [0.0, 0.6],
        "rough": EITHER,
        "slow": [0.0, 0.0, 0.5],
    }


def bombs(chance: random.Random) -> Fields:
    """Bombs that grow to the limits, a crowd of established and of new clients, and a broker that is killed once meanwhile."""
    some = range(2, 9)
    before = plans(chance, frames=6, events=2, window=1, pause=2.0, count=some)
    bomb = plans(chance, kind="bomb", start=1.0, frames=range(1, 5), count=range(2, 13), pause=3.0)
    after = plans(chance, start=Within(3, 12), frames=2, events=2, count=some)
    at = chance.uniform(0.5, 6)
    faults = [Fault("down", at, chance.uniform(0.5, 8))]
    if chance.random() < 0.5:
        faults.append(Fault("leaderless", at, chance.uniform(1, 15), frozenset({0})))
    if chance.random() < 0.5:
        faults.append(Fault("unheard", at - 0.3, 0.6, 0.5))
    around: Fields = {"limits": SMALL_LIMITS, "kafka": TIMES, "partitions": PARTITIONS, "creep": [2e-5, 4e-4]}
    return {"clients": before + bomb + after, "faults": tuple(faults), **around}


def full(chance: random.Random) -> Fields:
    """Honest clients alone, whose large frames use up the budgets while Kafka takes its time."""
    large: Fields = {"frames": range(2, 5), "events": [1, 3], "window": [1, 2, 6], "padding": [2_000, 16_000, 20_000]}
    how: Fields = {"dense": True, "compressed": EITHER, "finishes": EITHER}
    return {
        "clients": plans(chance, 2, start=Within(0, 0.2), count=range(2, 9), **large, **how),
        "limits": SMALL_LIMITS,
        "kafka": {"ack_deadline": 300},
        "partitions": PARTITIONS,
        "creep": [1e-6, 2e-5],
        "delay": [(0.01, 0.05), (0.05, 0.4)],
        "undisturbed": True,
    }


def drain(chance: random.Random) -> Fields:
    """SIGTERM while frames wait for a slow Kafka."""
    sizes: Fields = {"frames": range(1, 7), "events": [1, 3, 12], "window": [1, 3, 6], "padding": [0, 200]}
    return {
        "clients": plans(chance, range(1, 7), start=Within(0, 2), pause=[0.0, 1.0], finishes=EITHER, **sizes),
        "faults": tuple(Fault("term", chance.uniform(0, 4), 0.0) for _ in range(chance.randint(1, 3))),
        "kafka": {"ack_deadline": 300},
        "partitions": PARTITIONS,
        "delay": [(0.01, 0.1), (0.2, 1.0)],
        "undisturbed": True,
    }


def portions(chance: random.Random) -> Fields:
    """Frames of many batches, each of which takes Kafka a while: clients hear of parts, and go on behind these when a receiver is
    killed, or told to stop while the rest of a frame is on its way.
    """
    sizes: Fields = {"frames": range(1, 4), "events": [12, 30], "window": [1, 2], "padding": 4000, "dense": True}
    bad: Fields = {"faulty": [0.0, 0.5], "cursed": [0.0, 0.5], "rough": EITHER}
    deaths = [_death(chance, 20.0) for _ in range(chance.randint(1, 4))]
    return {
        "clients": plans(chance, range(1, 4), start=Within(0, 2), **sizes, **bad),
        "faults": (*deaths, Fault("term", chance.uniform(0, 5), 0.0)),
        "kafka": {"ack_deadline": 300, "request_timeout": 30},
        "partitions": 1,
        "max_message_bytes": [12_000, 24_000],
        "delay": [(0.2, 1.5), (0.05, 0.4)],
    }


def refused(chance: random.Random) -> Fields:
    """Kafka ends each producer, or is silent for longer than anybody waits, while frames come that are given up one after the
    other; some of them wait for memory.
    """
    kind = chance.choices(("silent", "unheard", "final", "quarantine_ends"), (1, 3, 3, 2))[0]
    at, silent = chance.uniform(0, 3), kind in ("silent", "unheard")
    if kind == "unheard":  # batches that could be taken for one another; nobody sends the first again
        small: Fields = {"frames": 1, "events": 5, "window": 1, "faulty": [0.0, 0.0, 1.0]}
        return {
            "clients": plans(chance, kind="leaver", start=at + 0.1, frames=1)
            + plans(chance, range(2, 4), start=Within(at + 0.2, at + 0.8), **small)
            + plans(chance, range(1, 4), start=Within(at + 2, at + 20), **small),
            "faults": (Fault(kind, at, chance.uniform(20, 40), 1.0),),
            "kafka": {"ack_deadline": 20, "request_timeout": 5},
            "partitions": [1, 2, 2],
        }
    sizes: Fields = {
        "frames": range(1, 7),
        "events": [1, 3],
        "padding": [0, 0, 16_000],
        "dense": True,
        "compressed": EITHER,
    }
    lasts = 150.0 if silent else chance.choice((8.0, 16.0))
    return {
        "clients": plans(chance, range(2, 4), start=Within(0, 6), window=6, pause=1.0, faulty=0.4, count=2, **sizes),
        "faults": (Fault(kind, at, lasts, 1.0), Fault("errors", at, lasts, chance.choice((FATAL, STRANGE)))),
        "limits": LIMITS,
        "kafka": {"ack_deadline": [20, 300] if silent else 5, "request_timeout": 5},
        "partitions": 1,
    }


def orphaned(chance: random.Random) -> Fields:
    """Partitions without leaders for far longer than anybody waits."""
    partitions = drawn(chance, PARTITIONS)
    lost = frozenset(chance.sample(range(partitions), chance.randint(1, partitions)))
    return {
        "clients": plans(chance, range(1, 3), **{**honest(5.0, small=False), "cut": 0.0}),
        "faults": (Fault("leaderless", chance.uniform(0, 2), chance.uniform(150, 170), lost),),
        "kafka": {"ack_deadline": 5, "request_timeout": 5},
        "partitions": partitions,
        "creep": 2e-5,
    }


def changed(chance: random.Random) -> Fields:
    """Anything, and meanwhile the topics change: partitions come, `max.message.bytes` sinks, all is deleted and made anew. The
    listener is full after a few connections.
    """
    fields = anything(chance)
    kinds = chance.sample(("partitions", "lowered", "missing"), chance.randint(1, 3))
    faults = (Fault(kind, chance.uniform(0, 5), 5.0 if kind == "missing" else 0.0) for kind in kinds)
    return {**fields, "faults": (*fields["faults"], *faults), "backlog": [1, 3, 1 << 16]}


def beside(chance: random.Random) -> Fields:
    """Clients with small frames beside a crowd whose frames take many slices."""
    few = plans(chance, frames=20, events=1, window=1, count=range(1, 4))
    large: Fields = {"frames": range(1, 3), "events": [12, 40], "padding": 4000, "dense": True}
    many = plans(chance, window=1, count=range(15, 31), **large)
    kafka = {"ack_deadline": 300}
    return {"clients": few + many, "kafka": kafka, "partitions": PARTITIONS, "creep": 4e-4, "undisturbed": True}


def replicas(chance: random.Random) -> Fields:
    """Writers and readers of both dialects between replicas of the segment service."""
    span, count, partitions = chance.choice((0.5, 5.0, 20.0)), chance.randint(1, 3), chance.randint(1, 2)
    when: Fields = {"start": Within(0, span / 2), "cut": [0.0, 0.5], "rough": [True, False, False]}
    sizes: Fields = {"frames": [2, 10, 30], "events": [1, 1, 3], "window": [1, 2, 6, 20], "padding": [0, 0, 200]}
    bad: Fields = {"faulty": [0.0, 0.3], "cursed": [0.0, 0.0, 0.2], "restarts": [0.0, 0.1, 0.3]}
    clients = plans(chance, range(1, 5), **when, **sizes, **bad)
    # what is rough takes long
    clients = tuple(replace(plan, frames=min(plan.frames, 5)) if plan.rough else plan for plan in clients)
    clients += plans(chance, range(1, 3), kind="reader", **when)
    if chance.random() < 0.25:
        clients += plans(chance, kind=["garbage", "half", "deaf", "leaver", "truncated"], frames=range(1, 5), **when)
    faults = [_fault(chance, span, partitions) for _ in range(chance.choice((0, 1, 2, 3)))]
    faults += [replace(_death(chance, span), where=chance.randrange(count)) for _ in range(chance.choice((0, 1, 2, 4)))]
    if chance.random() < 0.4:  # what a checkpoint has is told by one that began with it
        faults += (replace(_death(chance, 1.0), at=chance.uniform(2.0, 10.0), where=place) for place in range(count))
    return {
        "clients": clients,
        "faults": tuple(faults),
        "limits": {"event_bytes": 1024},
        "kafka": {"ack_deadline": [5, 30], "request_timeout": [1, 5]},
        "partitions": partitions,
        "creep": [1e-6, 2e-5],
        "replicas": count,
    }


def devices(chance: random.Random) -> Fields:
    """Devices that restart, whose connections break, and a consumer that is killed and stopped."""
    span, partitions = chance.choice((0.5, 5.0, 20.0)), drawn(chance, PARTITIONS)
    sizes: Fields = {"frames": [3, 10, 40], "events": [1, 5, 40], "padding": [0, 0, 200, 4000]}
    faulty: Fields = {"faulty": [0.0, 0.1, 0.4], "cut": [0.0, 0.1, 0.4], "restarts": [0.0, 0.1, 0.3]}
    when: Fields = {"start": Within(0, span / 2), "pause": [0.1, span / 20]}
    faults = [_fault(chance, span, partitions) for _ in range(chance.choice((0, 1, 2, 3)))]
    faults += [_death(chance, span) for _ in range(chance.choice((0, 1, 2, 4)))]
    return {
        "clients": plans(chance, range(1, 4), kind="device", **when, **sizes, **faulty),
        "faults": tuple(faults),
        "limits": LIMITS,
        "kafka": {"ack_deadline": [5, 30], "request_timeout": [1, 5]},
        "partitions": partitions,
        "creep": CREEP,
    }


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
            return chance.choices(("producer", "pusher", "logger"), (12, 5, 2))[0]
        return plan.kind

    def pushing(plan: ClientPlan) -> ClientPlan:
        """While a process stops, something is on its way."""
        return replace(plan, frames=200, events=1, pause=0.04) if plan.kind in ("pusher", "logger") else plan

    clients = tuple(replace(plan, kind=kind(plan), finishes=False) for plan in scenario.clients)
    if together:
        alone: dict[str, Any] = {"start": 0.0, "window": 1, "events": 1, "rough": False, "dense": True, "frames": 6}
        alone["padding"] = 4_000 if scenario.limits else 20_000
        clients = tuple(replace(plan, **alone, count=max(3, plan.count)) for plan in clients)
        scenario = replace(scenario, max_message_bytes=24_000)  # so that a frame takes several batches
    stops = scenario.undisturbed and scenario.faults
    return replace(scenario, clients=tuple(map(pushing, clients)) if stops else clients)


SHAPES: dict[int, Callable[[random.Random], Fields]] = {
    3: full,
    4: portions,
    7: drain,
    11: orphaned,
    12: refused,
    13: changed,
    15: bombs,
}
"""What a seed means whose remainder by 16 is this. The last is the shape that once served nobody."""


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
