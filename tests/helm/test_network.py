"""The chart's NetworkPolicies on a node whose network enforces them: real connections between pods with the parts' labels.

The pods are no receivers: each listens wherever a row needs it. Addresses outside of the cluster are in `test_policies.py` alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest

from tests.contract.waiting import wait_for
from tests.helm.chart import Object, component, of, scenario, workloads
from tests.helm.cluster import Namespace, kubectl, namespace
from tests.helm.node import tools

pytestmark = [pytest.mark.requires("helm", "k8s", "node", "policies"), pytest.mark.full, pytest.mark.timeout(1800)]

Row = tuple[str, str, int, str]
NAMESPACE: Final = "logs"
"""Where the chart is rendered to."""


class Place(NamedTuple):
    """A pod, by what policies know of it."""

    namespace: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str] = {}


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
    "shop": Place("shop", {"app": "till"}, {"team": "shop"}),
    "monitoring": Place("monitoring", {"app": "prometheus"}),
    "stranger": Place("games", {"app": "chess"}),
    "neighbour": Place(NAMESPACE, {"app": "chess"}),
}

PASSES: Final = (
    *((part, "kafka", 9092, "TCP") for part in (*PORTS, "topics", "test", "lake", "live")),
    *((part, "dns", 53, "UDP") for part in (*PORTS, "topics", "test", "lake", "live")),
    ("topics", "dns", 5353, "TCP"),
    *((client, part, port, "TCP") for client in ("shop", "test") for part, port in PORTS.items()),
    ("shop", "forward", 24224, "UDP"),
    ("test", "logjam", 9605, "TCP"),
    *((asks, part, 8080, "TCP") for asks in ("monitoring", "live") for part in (*PORTS, "lake")),
    ("monitoring", "live", 8080, "TCP"),
)
"""What the parts, their clients, `helm test` and monitoring need: (from, to, port, protocol)."""

FAILS: Final = (
    *(("stranger", part, port, "TCP") for part, port in PORTS.items()),
    ("neighbour", "forward", 24224, "TCP"),
    ("monitoring", "forward", 24224, "TCP"),
    ("shop", "forward", 8080, "TCP"),
    ("shop", "forward", 5044, "TCP"),
    ("shop", "lake", 8080, "TCP"),
    ("shop", "live", 8080, "TCP"),
    ("test", "forward", 8080, "TCP"),
    ("topics", "forward", 24224, "TCP"),
    ("shop", "topics", 8080, "TCP"),
    ("neighbour", "test", 8080, "TCP"),
    ("forward", "lake", 8080, "TCP"),
    ("forward", "zookeeper", 9092, "TCP"),
    ("forward", "kafka", 2181, "TCP"),
    ("lake", "forward", 24224, "TCP"),
    ("live", "forward", 24224, "TCP"),
)
"""What nobody needs, and would be a way in or out."""

LISTEN = """
import asyncio, json, sys
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, address):
        self.transport.sendto(data, address)
async def main():
    loop = asyncio.get_running_loop()
    servers = []
    for port, protocol in json.loads(sys.argv[1]):
        if protocol == 'UDP':
            servers.append(await loop.create_datagram_endpoint(Echo, ('0.0.0.0', port)))
        else:
            servers.append(await asyncio.start_server(lambda reader, writer: writer.close(), '0.0.0.0', port))
    print('listening', flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
CONNECT = """
import concurrent.futures, json, socket, sys
def reached(row):
    address, port, protocol = row
    kind = socket.SOCK_DGRAM if protocol == 'UDP' else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as end:
        end.settimeout(5)
        try:
            end.connect((address, port))
            if protocol == 'UDP':
                end.send(b'?')
                end.recv(1)
        except OSError:
            return False
    return True
rows = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
    print(json.dumps(list(pool.map(reached, rows))))
"""


class Network:
    """A pod for each place of the tables, in a namespace for each of theirs."""

    def __init__(self, objects: Sequence[Object], spaces: Mapping[str, Namespace]) -> None:
        own = {component(each): Place(NAMESPACE, pod["metadata"]["labels"]) for each, pod in workloads(objects)}
        self._places = {**OUTSIDE, **own}
        self._ports = {
            component(each): pod["spec"]["containers"][0].get("ports", []) for each, pod in workloads(objects)
        }
        self._spaces = spaces
        self._addresses: dict[str, str] = {}

    def start(self) -> None:
        rows = [*PASSES, *FAILS]
        for name, place in self._places.items():
            wanted = sorted({(port, protocol) for _, target, port, protocol in rows if target == name})
            pod = tools(name, ["python", "-c", LISTEN, json.dumps(wanted)], [], [])
            pod["metadata"]["labels"] = dict(place.labels)
            # names and clients' ports below 1024 are for root alone, unless the pod says otherwise
            pod["spec"]["securityContext"]["sysctls"] = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
            pod["spec"]["containers"][0]["ports"] = self._ports.get(name, [])
            self._spaces[place.namespace].kubectl("create", "-f", "-", given=json.dumps(pod))
        for name, place in self._places.items():
            space = self._spaces[place.namespace]
            space.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=300s", seconds=360)
            wait_for(lambda space=space, name=name: "listening" in space.kubectl("logs", name), f"{name} listens")
            self._addresses[name] = space.get("pod", name)["status"]["podIP"]

    def reached(self, rows: list[Row]) -> set[Row]:
        """The rows whose connection is made."""
        found: set[Row] = set()
        for source in {row[0] for row in rows}:
            mine = [row for row in rows if row[0] == source]
            asked = json.dumps([(self._addresses[target], port, protocol) for _, target, port, protocol in mine])
            space = self._spaces[self._places[source].namespace]
            answers = json.loads(space.kubectl("exec", source, "--", "python", "-c", CONNECT, asked))
            found |= {row for row, answer in zip(mine, answers, strict=True) if answer}
        return found


def moved(policy: Any, spaces: Mapping[str, Namespace]) -> Any:
    """A policy in the namespaces of the test, which it may name."""
    text = json.dumps(policy)
    for name, space in spaces.items():
        text = text.replace(
            f'"kubernetes.io/metadata.name": "{name}"', f'"kubernetes.io/metadata.name": "{space.name}"'
        )
    made = json.loads(text)
    made["metadata"]["namespace"] = spaces[policy["metadata"]["namespace"]].name
    return made


@pytest.fixture(scope="module")
def spaces() -> Iterator[dict[str, Namespace]]:
    with contextlib.ExitStack() as ending:
        made: dict[str, Namespace] = {}
        for place in OUTSIDE.values():
            name = place.namespace
            if name not in made:
                made[name] = ending.enter_context(namespace())
                for label, value in place.namespace_labels.items():
                    kubectl("label", "namespace", made[name].name, f"{label}={value}")
        assert NAMESPACE in made
        yield made


def test_the_network_lets_through_what_is_needed_and_nothing_else(spaces: dict[str, Namespace]) -> None:
    objects = scenario("default-deny")
    network = Network(objects, spaces)
    network.start()
    everything = {*PASSES, *FAILS}
    wait_for(lambda: network.reached([*everything]) == everything, "without a policy every row connects")
    policies = [moved(each, spaces) for each in (DENY, *of(objects, "NetworkPolicy"))]
    for policy in policies:
        spaces[NAMESPACE].kubectl(
            "create", "-f", "-", given=json.dumps({"apiVersion": "networking.k8s.io/v1", **policy})
        )
    found: set[Row] = set()

    def settled() -> bool:
        nonlocal found
        found = network.reached([*everything])
        return found == {*PASSES}

    with contextlib.suppress(AssertionError):  # what differs says more
        wait_for(settled, "the policies hold")
    assert found - {*PASSES} == set()
    assert {*PASSES} - found == set()
