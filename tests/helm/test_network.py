"""The chart's NetworkPolicies on a node whose network enforces them: real connections between pods with the parts' labels.

The rows are those of `test_policies.py` whose ends are pods. The pods are no receivers: each listens wherever a row needs it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.contract.waiting import wait_for
from tests.helm.chart import Object, component, of, scenario, workloads
from tests.helm.cluster import Namespace, kubectl, namespace
from tests.helm.node import tools
from tests.helm.policies import NAMESPACE, pods
from tests.helm.test_policies import DENY, FAILS, OUTSIDE, PASSES

pytestmark = [pytest.mark.requires("helm", "k8s", "node", "policies"), pytest.mark.full, pytest.mark.timeout(1800)]

Row = tuple[str, str, int, str]

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
        every = {**OUTSIDE, **pods(objects)}
        self._places = {name: place for name, place in every.items() if not place.address}
        self._ports = {
            component(each): pod["spec"]["containers"][0].get("ports", []) for each, pod in workloads(objects)
        }
        self._spaces = spaces
        self._addresses: dict[str, str] = {}

    def between_pods(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if {row[0], row[1]} <= self._places.keys()]

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
            if name and name not in made:
                made[name] = ending.enter_context(namespace())
                for label, value in place.namespace_labels.items():
                    kubectl("label", "namespace", made[name].name, f"{label}={value}")
        assert NAMESPACE in made
        yield made


def test_the_network_lets_through_what_is_needed_and_nothing_else(spaces: dict[str, Namespace]) -> None:
    objects = scenario("default-deny")
    network = Network(objects, spaces)
    needed, unneeded = network.between_pods(PASSES), network.between_pods(FAILS)
    assert len(unneeded) >= 20
    network.start()
    everything = {*needed, *unneeded}
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
        return found == {*needed}

    with contextlib.suppress(AssertionError):  # what differs says more
        wait_for(settled, "the policies hold")
    assert found - {*needed} == set()
    assert {*needed} - found == set()
