"""The chart's NetworkPolicies as a table of who reaches whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.helm.chart import Object, component, of, rendered, scenario

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

NAMES: Final = "53/UDP 53 5353/UDP 5353 : everybody"
BROKERS: Final = "9092 : kafka app=kafka"
OPS: Final = "ops : monitoring, live"
TRIED: Final = "team=shop, 10.20.0.0/16, test"
RECEIVERS: Final = {
    "forward": "forward heartbeat/UDP",
    "lumberjack": "lumberjack",
    "courier": "courier",
    "logjam": "logjam logjam-pull logjam-pub",
    "segment": "segment",
    "otlp": "otlp",
    "relp": "relp",
    "syslog": "syslog syslog-udp/UDP",
}
TABLE: Final = {
    **{name: ({f"{ports} : {TRIED}", OPS}, {NAMES, BROKERS}) for name, ports in RECEIVERS.items()},
    "topics": (set(), {NAMES, BROKERS}),
    "test": (set(), {NAMES, BROKERS, *(f"{ports} : {name}" for name, ports in RECEIVERS.items())}),
    "lake": ({OPS}, {NAMES, BROKERS}),
    "live": (
        {"live : monitoring"},
        {NAMES, BROKERS, "8080 : courier, forward, logjam, lumberjack, otlp, relp, segment, syslog, lake"},
    ),
}
"""By the pods' component what may come in and what may go out, in a namespace that denies everything else."""


def peer(given: Any) -> str:
    """A peer: what its namespace and its pods must have, or its network."""
    labels = [
        value if name in {"kubernetes.io/metadata.name", "app.kubernetes.io/component"} else f"{name}={value}"
        for selector in ("namespaceSelector", "podSelector")
        for name, value in given.get(selector, {}).get("matchLabels", {}).items()
        if name not in {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
    ]
    return " ".join(labels) or given.get("ipBlock", {}).get("cidr", "any pod")


def rules(given: Sequence[Any], peers: str) -> set[str]:
    found = set()
    for rule in given:
        ports = " ".join(
            f"{each['port']}{'/UDP' if each.get('protocol') == 'UDP' else ''}" for each in rule.get("ports", [])
        )
        found.add(f"{ports} : {', '.join(peer(each) for each in rule.get(peers, [])) or 'everybody'}")
    return found


def table(objects: Sequence[Object]) -> dict[str, tuple[set[str], set[str]]]:
    found = {}
    for each in of(objects, "NetworkPolicy"):
        spec = each["spec"]
        assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == component(each)
        found[component(each)] = rules(spec["ingress"], "from"), rules(spec.get("egress", []), "to")
    return found


def test_what_is_needed_passes_and_nothing_else() -> None:
    objects = scenario("default-deny")
    assert table(objects) == TABLE
    assert {tuple(each["spec"]["policyTypes"]) for each in of(objects, "NetworkPolicy")} == {("Ingress", "Egress")}


def test_every_part_reaches_the_development_broker() -> None:
    found = table(rendered("--set", "networkPolicy.egress=true,live.enabled=true"))
    assert {part for part, (_, egress) in found.items() if "9092 : kafka" in egress} == found.keys()
