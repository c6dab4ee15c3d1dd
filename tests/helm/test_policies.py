"""Which connections the chart's NetworkPolicies admit, in a namespace that denies everything else."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.helm.chart import Object, component, of, one, rendered, scenario
from tests.helm.policies import NAMESPACE, Place, allowed, pods

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

DENY: Final[Object] = {
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny", "namespace": NAMESPACE},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}
"""What the namespace's administrator has set."""

PORTS: Final = {"forward": 24224, "lumberjack": 5044, "courier": 5043, "logjam": 9604, "segment": 12345}
KAFKA: Final = Place("kafka", {"app": "kafka"})
OUTSIDE: Final = {
    "kafka": KAFKA,
    "zookeeper": Place("kafka", {"app": "zookeeper"}),
    "dns": Place("kube-system", {"k8s-app": "kube-dns"}),
    "shop": Place("shop", {"app": "till"}, {}, {"team": "shop"}),
    "monitoring": Place("monitoring", {"app": "prometheus"}),
    "stranger": Place("games", {"app": "chess"}),
    "neighbour": Place(NAMESPACE, {"app": "chess"}),
    "office": Place(address="10.20.3.4"),
    "elsewhere": Place(address="10.21.3.4"),
    "internet": Place(address="192.0.2.7"),
}

PASSES: Final = (
    *((part, "kafka", 9092, "TCP") for part in (*PORTS, "topics", "test", "lake", "live")),
    *((part, "dns", 53, "UDP") for part in (*PORTS, "topics", "test", "lake", "live")),
    ("topics", "dns", 5353, "TCP"),
    *((client, part, port, "TCP") for client in ("shop", "test", "office") for part, port in PORTS.items()),
    ("shop", "forward", 24224, "UDP"),
    ("test", "logjam", 9605, "TCP"),
    *((asks, part, 8080, "TCP") for asks in ("monitoring", "live") for part in (*PORTS, "lake")),
    ("monitoring", "live", 8080, "TCP"),
)
"""What the parts, their clients, `helm test` and monitoring need: (from, to, port, protocol)."""

FAILS: Final = (
    *(("stranger", part, port, "TCP") for part, port in PORTS.items()),
    ("neighbour", "forward", 24224, "TCP"),
    ("elsewhere", "forward", 24224, "TCP"),
    ("monitoring", "forward", 24224, "TCP"),
    ("shop", "forward", 8080, "TCP"),
    ("shop", "forward", 5044, "TCP"),
    ("shop", "lake", 8080, "TCP"),
    ("shop", "live", 8080, "TCP"),
    ("office", "lake", 8080, "TCP"),
    ("test", "forward", 8080, "TCP"),
    ("test", "internet", 443, "TCP"),
    ("topics", "forward", 24224, "TCP"),
    ("shop", "topics", 8080, "TCP"),
    ("neighbour", "test", 8080, "TCP"),
    ("forward", "internet", 443, "TCP"),
    ("forward", "lake", 8080, "TCP"),
    ("forward", "zookeeper", 9092, "TCP"),
    ("forward", "kafka", 2181, "TCP"),
    ("lake", "internet", 443, "TCP"),
    ("lake", "forward", 24224, "TCP"),
    ("live", "internet", 443, "TCP"),
    ("live", "forward", 24224, "TCP"),
)
"""What nobody needs, and would be a way in or out."""


def passes(objects: Any, source: str, target: str, port: int, protocol: str = "TCP") -> bool:
    places = {**OUTSIDE, **pods(objects)}
    return allowed([DENY, *of(objects, "NetworkPolicy")], places[source], places[target], port, protocol)


@pytest.mark.parametrize(("source", "target", "port", "protocol"), PASSES)
def test_what_is_needed_passes(source: str, target: str, port: int, protocol: str) -> None:
    assert passes(scenario("default-deny"), source, target, port, protocol)


@pytest.mark.parametrize(("source", "target", "port", "protocol"), FAILS)
def test_what_nobody_needs_does_not(source: str, target: str, port: int, protocol: str) -> None:
    assert not passes(scenario("default-deny"), source, target, port, protocol)


def test_without_the_charts_policies_nothing_passes() -> None:
    objects = rendered("--set", "networkPolicy.enabled=false,live.enabled=true")
    places = {**OUTSIDE, **pods(objects)}
    inside = [row for row in PASSES if row[0] in places and row[1] in places]
    assert not any(allowed([DENY], places[a], places[b], port, protocol) for a, b, port, protocol in inside)


def test_a_hooks_pod_has_its_policy_before_it_runs() -> None:
    """The topics job runs before the release's other objects are there."""
    objects = scenario("default-deny")
    policy = one(objects, "NetworkPolicy", "headrace-topics")["metadata"]["annotations"]
    job = one(objects, "Job", "headrace-topics")["metadata"]["annotations"]
    assert policy["helm.sh/hook"] == job["helm.sh/hook"]
    assert int(policy["helm.sh/hook-weight"]) < int(job.get("helm.sh/hook-weight", 0))
    assert "annotations" not in next(
        each["metadata"] for each in of(scenario("defaults"), "NetworkPolicy") if component(each) == "topics"
    )


def test_the_development_broker_is_for_the_pods_of_its_release() -> None:
    objects = rendered("--set", "networkPolicy.egress=true,live.enabled=true")
    for part in (*PORTS, "topics", "test", "lake", "live"):
        assert passes(objects, part, "kafka", 9092), part
    other = pods(rendered("--set", "networkPolicy.egress=true", release="other"))
    policies = of(objects, "NetworkPolicy")
    assert not allowed(policies, other["forward"], pods(objects)["kafka"], 9092)
    assert not passes(objects, "stranger", "kafka", 9092)
    assert not passes(objects, "neighbour", "kafka", 9092)
