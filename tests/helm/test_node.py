"""The chart on a real node: ready without any value, tried by `helm test`, and nothing lost or doubled whatever is replaced.

The nodes have the images. Where the cluster has no storage class, HEADRACE_TEST_VOLUMES names a folder of its only node, which is
this machine, for volumes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.contract.waiting import wait_for
from tests.helm.chart import RefusedError
from tests.helm.cluster import Namespace, namespace
from tests.helm.node import PORTS, TIMEOUT, Clients, check_rows, query, volumes_of

LONG = 2400
"""Seconds. Not a guess about speed: each step ends when the thing is there."""

pytestmark = [pytest.mark.requires("helm", "k8s", "node"), pytest.mark.full, pytest.mark.timeout(LONG)]


@pytest.fixture(scope="module")
def place() -> Iterator[Namespace]:
    """A namespace with the chart, installed without a value."""
    with namespace() as made, volumes_of(made):
        began = time.monotonic()
        made.install(*TIMEOUT)  # without a value
        print(f"ready after {time.monotonic() - began:.0f} s")
        yield made
        made.helm("uninstall", "--wait")


def settled(place: Namespace, *parts: str) -> None:
    """Every part has as many ready pods as it should, and none that ends."""
    for part in parts:
        kind = "statefulset" if part == "kafka" else "deployment"
        place.kubectl("rollout", "status", f"{kind}/headrace-{part}", "--timeout=900s", seconds=960)


def test_it_is_ready_without_a_value_and_each_protocol_works(place: Namespace) -> None:
    said = place.helm("test", "--logs", "--timeout", "10m")
    for protocol in PORTS:
        assert f"{protocol}" in said
    assert "Phase:          Succeeded" in said


def test_nothing_is_lost_or_doubled_whatever_is_replaced(place: Namespace) -> None:
    # three replicas of all receivers have to fit on a node with two cores
    small = "receiverDefaults.resources.requests.cpu=20m"
    place.upgrade(*TIMEOUT, "--set", f"receiverDefaults.replicas=1,{small}")
    clients = Clients(place)
    steps = {}

    def step(name: str, values: str) -> None:
        began = time.monotonic()
        place.upgrade(*TIMEOUT, "--set", f"{values},{small}")
        settled(place, *PORTS)
        steps[name] = round(time.monotonic() - began)

    step("every receiver replaced", "receiverDefaults.replicas=1,receiverDefaults.podAnnotations.turn=two")
    step("1 to 3", "receiverDefaults.replicas=3,receiverDefaults.podAnnotations.turn=two")
    step("3 to 1", "receiverDefaults.replicas=1,receiverDefaults.podAnnotations.turn=two")
    began = time.monotonic()
    place.kubectl("delete", "pod", "headrace-kafka-0", "--wait=true", seconds=300)
    settled(place, "kafka", *PORTS)
    steps["Kafka's pod deleted"] = round(time.monotonic() - began)
    began = time.monotonic()
    (lake,) = place.pods("lake")
    place.kubectl("delete", "pod", lake["metadata"]["name"], "--force", "--grace-period=0")
    settled(place, "lake")
    steps["landing pod killed"] = round(time.monotonic() - began)
    told = clients.finish()
    print(json.dumps({"steps": steps, "clients": told}))

    lag = "import urllib.request as r; print(r.urlopen('http://localhost:8080/metrics').read().decode())"

    def landed() -> bool:
        (pod,) = place.pods("lake")
        try:
            text = place.kubectl("exec", pod["metadata"]["name"], "--", "/opt/headrace/bin/python", "-c", lag)
        except RefusedError:
            return False
        behind = [
            float(line.split()[-1]) for line in text.splitlines() if line.startswith("headrace_lake_lag_offsets{")
        ]
        return bool(behind) and sum(behind) == 0

    wait_for(landed, "everything has landed", 900)
    check_rows(place, told)
    query(place, "proof", "--named", "exactly-once")
