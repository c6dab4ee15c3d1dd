"""The chart on a real node, from its installation to its removal: each step ends, and nothing is lost or doubled.

The nodes have the images. Where the cluster has no storage class, HEADRACE_TEST_VOLUMES names a folder of its only node, which is
this machine, for volumes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.contract.waiting import wait_for
from tests.helm.chart import CI, RefusedError
from tests.helm.cluster import Namespace, kubectl, namespace
from tests.helm.node import PORTS, TIMEOUT, Clients, check_rows, landed, query, tools, volumes_of

LONG = 3600
"""Seconds. Not a guess about speed: each step ends when the thing is there."""

pytestmark = [pytest.mark.requires("helm", "k8s", "node"), pytest.mark.full, pytest.mark.timeout(LONG)]

PARTS: Final = ("kafka", "lake", *PORTS)
OURS: Final = "app.kubernetes.io/instance=headrace,app.kubernetes.io/component"
"""Pods of the release, and not its clients."""
SMALL: Final = "receiverDefaults.resources.requests.cpu=20m"
"""Three replicas of all receivers, and a second release, have to fit on a node with two cores."""
TAINT: Final = "headrace.test/pool=ingest:NoSchedule"
TOLERATION: Final = 'podDefaults.tolerations=[{"key": "headrace.test/pool", "operator": "Exists"}]'

KILL: Final = """
import os, signal, sys, time
def last(kind):
    paths = Path("/var/lib/headrace/checkpoint").glob("epoch-*/" + kind + "/*")
    return max((int(path.name) for path in paths if path.name.isdigit()), default=-1)
while last("offsets") <= last("commits"):
    time.sleep(0.005)
for path in Path("/proc").glob("[0-9]*/comm"):
    if path.read_text().strip() == "java":
        os.kill(int(path.parent.name), signal.SIGKILL)
"""
"""Waits for a batch that is under way, and kills Spark. A process may not kill the first one of its container."""
DENY: Final = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}


@dataclass
class Operations:
    """What an operator does to the release "headrace"; says how long each step took."""

    place: Namespace

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)

    def settled(self, *parts: str) -> None:
        """Every part has as many ready pods as it should, and none that ends."""
        for part in parts:
            kind = "statefulset" if part == "kafka" else "deployment"
            self.place.kubectl("rollout", "status", f"{kind}/headrace-{part}", "--timeout=900s", seconds=960)

    def install(self) -> None:
        with self.step("ready after an installation without a value"):
            self.place.install(*TIMEOUT)

    def tried(self, name: str, release: str = "headrace") -> None:
        """An event by each protocol is acknowledged, and on the topic."""
        with self.step(name):
            said = self.place.helm("test", "--logs", "--timeout", "10m", release=release)
        assert "Phase:          Succeeded" in said
        for protocol in PORTS:
            assert protocol in said

    def replaced_under(self, clients: Clients) -> dict[str, dict[str, Any]]:
        """Everything is replaced while the clients send. Returns what they were told."""
        place = self.place
        with self.step("upgrade that replaces every pod"):
            place.upgrade(*TIMEOUT, "--set", f"receiverDefaults.replicas=1,{SMALL},podDefaults.podAnnotations.turn=two")
            self.settled(*PARTS)
        with self.step("rollback"):
            place.helm("rollback", *TIMEOUT)
            self.settled(*PARTS)
        for replicas, name in ((3, "1 to 3 replicas"), (1, "3 to 1 replicas")):
            with self.step(name):
                place.upgrade(*TIMEOUT, "--set", f"receiverDefaults.replicas={replicas},{SMALL}")
                self.settled(*PORTS)
        for part, name in (("kafka", "Kafka's pod deleted"), (",".join(PORTS), "every receiver's pod deleted")):
            with self.step(name):
                place.kubectl("delete", "pod", "--selector", f"{OURS} in ({part})", "--wait=true", seconds=300)
                self.settled(*PARTS)
        with self.step("node drained"):
            self.drain()
        with self.step("landing job killed in the middle of a batch"):
            self.kill_landing()
        return clients.finish()

    def drain(self) -> None:
        """The node of Kafka's pod; its pods come back when it may be used again, or before on another."""
        node = self.place.get("pod", "headrace-kafka-0")["spec"]["nodeName"]
        try:
            kubectl(
                "drain", node, f"--pod-selector={OURS}", "--delete-emptydir-data", "--ignore-daemonsets",
                "--timeout=600s", seconds=660,
            )  # fmt: skip
        finally:
            kubectl("uncordon", node)
        self.settled(*PARTS)

    def kill_landing(self) -> None:
        def restarts() -> int:
            (pod,) = self.place.pods("lake")
            return int(pod["status"]["containerStatuses"][0]["restartCount"])

        before = restarts()
        (pod,) = self.place.pods("lake")
        with contextlib.suppress(RefusedError):  # the container may end before the command does
            self.place.kubectl(
                "exec", pod["metadata"]["name"], "--", "/opt/headrace/bin/python", "-c", KILL, seconds=600
            )
        wait_for(lambda: restarts() > before, "the landing job has been started again", 600)
        self.settled("lake")

    def beside_another(self) -> None:
        """A second release in the namespace, which is tried and removed; the first one's pods stay as they are."""

        def pods() -> set[str]:
            found = self.place.get("pods", "", "--selector", OURS)
            return {pod["metadata"]["uid"] for pod in found if pod["metadata"]["labels"].get(NAME) != "test"}

        before = pods()
        less = f"{SMALL},lake.resources.requests.cpu=50m,kafka.development.resources.requests.cpu=50m"
        with self.step("second release in the namespace, ready"):
            values = ("--values", str(CI / "small-values.yaml"), "--set", less)
            self.place.install(*TIMEOUT, *values, release="other")
        self.tried("`helm test` of the second", "other")
        with self.step("second release removed"):
            self.place.helm("uninstall", "--wait", release="other")
        assert pods() == before

    def confined(self) -> None:
        """The node is tainted, and the namespace denies every connection that the chart's policies do not allow."""
        place = self.place
        nodes = [each["metadata"]["name"] for each in json.loads(kubectl("get", "nodes", "-o", "json"))["items"]]
        place.kubectl("create", "-f", "-", given=json.dumps(DENY))
        for node in nodes:
            kubectl("taint", "node", node, TAINT)
        try:
            with self.step("upgrade for a tainted node and a namespace that denies every connection"):
                given = f"receiverDefaults.replicas=1,{SMALL},networkPolicy.egress=true"
                place.upgrade(*TIMEOUT, "--set", given, "--set-json", TOLERATION)
                self.settled(*PARTS)
            self.tried("`helm test` there")
        finally:
            for node in nodes:
                kubectl("taint", "node", node, f"{TAINT}-")
        place.kubectl("delete", "networkpolicy", "deny")

    def removed(self, rows: int) -> None:
        """The release is gone, its claims are not, and the table has the rows it had."""
        with self.step("removed"):
            self.place.helm("uninstall", "--wait")
        claims = {each["metadata"]["name"] for each in self.place.get("persistentvolumeclaims")}
        assert claims == {"headrace-lake", "data-headrace-kafka-0"}
        assert self.rows("kept") >= rows

    def rows(self, name: str) -> int:
        (row,) = json.loads(query(self.place, name, "--json", "select count(*) as n from events"))
        return int(row["n"])


NAME: Final = "app.kubernetes.io/component"


def refuses(place: Namespace) -> bool:
    """Whether the namespace's admission refuses a pod that is not restricted."""
    pod = tools("unrestricted", ["true"], [], [])
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    try:
        place.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(pod))
    except RefusedError as error:
        return "restricted" in str(error)
    return False


def test_nothing_is_lost_or_doubled_from_installation_to_removal() -> None:
    with namespace() as place, volumes_of(place):
        assert refuses(place), "the admission does not enforce pod security"
        run = Operations(place)
        run.install()
        run.tried("`helm test`")
        run.confined()
        run.beside_another()
        place.upgrade(*TIMEOUT, "--set", f"receiverDefaults.replicas=1,{SMALL}")
        told = run.replaced_under(Clients(place))
        print(json.dumps(told))
        wait_for(lambda: landed(place), "everything has landed", 900)
        check_rows(place, told)
        query(place, "proof", "--named", "exactly-once")
        run.removed(run.rows("before"))
