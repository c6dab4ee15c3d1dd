"""Computes from NetworkPolicies which connections a network would let through, as Kubernetes defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Final

from tests.helm.chart import Object, matches, workloads

NAMESPACE: Final = "logs"
"""Where the chart is rendered to."""


@dataclass(frozen=True)
class Place:
    """One end of a connection: a pod, or an address outside of the cluster (`address`)."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def all_namespace_labels(self) -> Mapping[str, str]:
        return {"kubernetes.io/metadata.name": self.namespace, **self.namespace_labels}


def pods(objects: Sequence[Object]) -> dict[str, Place]:
    """Returns the pods that the objects make, by component."""
    made: dict[str, Place] = {}
    for _, pod in workloads(objects):
        made |= _pod(pod["metadata"]["labels"], pod["spec"]["containers"][0].get("ports", []))
    return made


def _pod(labels: Mapping[str, str], ports: Sequence[Mapping[str, Any]]) -> dict[str, Place]:
    named = {port["name"]: port["containerPort"] for port in ports}
    return {labels["app.kubernetes.io/component"]: Place(NAMESPACE, labels, named)}


def allowed(policies: Sequence[Object], source: Place, target: Place, port: int, protocol: str = "TCP") -> bool:
    """Whether all `policies` together let `source` connect to `target`."""
    return _side("egress", policies, source, target, target, port, protocol) and _side(
        "ingress", policies, target, source, target, port, protocol
    )


def _side(
    way: str, policies: Sequence[Object], here: Place, there: Place, target: Place, port: int, protocol: str
) -> bool:
    """One end's policies: without any for this way everything passes, else what one rule admits."""
    if here.address:
        return True
    mine = [
        each
        for each in policies
        if each["metadata"]["namespace"] == here.namespace
        and way.capitalize() in each["spec"]["policyTypes"]
        and selects(each["spec"]["podSelector"], here.labels)
    ]
    peers = {"ingress": "from", "egress": "to"}[way]
    return not mine or any(
        _port(rule.get("ports"), target, port, protocol) and _peer(rule.get(peers), each, there)
        for each in mine
        for rule in each["spec"].get(way, [])
    )


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects these labels; an empty one selects all."""
    assert selector.keys() <= {"matchLabels"}, "the chart's policies have no expressions"
    return matches(selector.get("matchLabels", {}), labels)


def _port(ports: Sequence[Mapping[str, Any]] | None, target: Place, port: int, protocol: str) -> bool:
    if not ports:
        return True
    for each in ports:
        wanted = each.get("port")
        number = target.ports.get(wanted) if isinstance(wanted, str) else wanted
        if each.get("protocol", "TCP") == protocol and (
            wanted is None or (number is not None and number <= port <= each.get("endPort", number))
        ):
            return True
    return False


def _peer(peers: Sequence[Mapping[str, Any]] | None, policy: Object, there: Place) -> bool:
    if not peers:
        return True
    for peer in peers:
        if block := peer.get("ipBlock"):
            address = ip_address(there.address) if there.address else None
            excepted = block.get("except", [])
            if (
                address is not None
                and address in ip_network(block["cidr"])
                and not any(address in ip_network(each) for each in excepted)
            ):
                return True
        elif not there.address:
            spaces = peer.get("namespaceSelector")
            near = there.namespace == policy["metadata"]["namespace"]
            right = near if spaces is None else selects(spaces, there.all_namespace_labels)
            if right and selects(peer.get("podSelector", {}), there.labels):
                return True
    return False
