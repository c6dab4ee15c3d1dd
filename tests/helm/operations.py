"""A release on a real node, from its installation to its removal: ``python -m tests.helm.operations``. See tests/README.md.

Prints each step as it ends and writes `benchmarks/results/node.md`; the status is 1 if an event was lost or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.contract.waiting import wait_for
from tests.helm.chart import CHART, CI, RefusedError
from tests.helm.cluster import Namespace, kubectl, namespace
from tests.helm.node import FOREIGN, PORTS, TIMEOUT, Clients, counted, landed, program, query, tools, volumes_of

RESULT: Final = Path(__file__).parents[2] / "benchmarks" / "results" / "node.md"
PARTS: Final = ("kafka", "lake", *PORTS)
OURS: Final = "app.kubernetes.io/instance=headrace,app.kubernetes.io/component"
"""Pods of the release, and not its clients."""
SMALL: Final = "receiverDefaults.resources.requests.cpu=20m"
"""Three replicas of all receivers, and a second release, have to fit on a node with two cores."""
TAINT: Final = "headrace.test/pool=ingest:NoSchedule"
TOLERATION: Final = 'podDefaults.tolerations=[{"key": "headrace.test/pool", "operator": "Exists"}]'

KILL: Final = """
import os, signal, sys, time
from pathlib import Path
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
REACH: Final = """
import socket, time
for _ in range(60):
    try:
        socket.create_connection(('headrace-forward', 24224), 5).close()
    except OSError as error:
        print(type(error).__name__)
        break
    time.sleep(1)
else:
    print('reached')
"""
"""A network may let a new pod through at first, until it has heard of it."""


@dataclass
class Operations:
    """What an operator does to the release "headrace", with the time that each step took."""

    place: Namespace
    seconds: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - began)
        print(f"{name}: {self.seconds[name]} s", flush=True)

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

    def confined(self) -> bool:
        """The node is tainted and the namespace denies every connection. Returns whether the network enforces that."""
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
            stranger = tools("stranger", ["python", "-c", REACH], [], [])
            place.kubectl("create", "-f", "-", given=json.dumps(stranger))
            wait_for(lambda: self._unscheduled("stranger"), "a pod without the toleration has no node", 300)
        finally:
            for node in nodes:
                kubectl("taint", "node", node, f"{TAINT}-")
        place.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/stranger", "--timeout=300s", seconds=360)
        said = place.kubectl("logs", "pod/stranger").strip()
        place.kubectl("delete", "networkpolicy", "deny")
        print(f"a pod without a policy of its own: {said}")
        return said != "reached"

    def _unscheduled(self, name: str) -> bool:
        conditions = self.place.get("pod", name)["status"].get("conditions", [])
        return any(each.get("reason") == "Unschedulable" for each in conditions)

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


def operate() -> dict[str, Any]:
    """Everything, once. Returns the times and counts."""
    with tempfile.TemporaryDirectory() as folder, namespace() as place, volumes_of(place):
        assert refuses(place), "the admission does not enforce pod security"
        foreign = program(Path(folder))
        run = Operations(place)
        run.install()
        run.tried("`helm test`")
        enforced = run.confined()
        run.beside_another()
        place.upgrade(*TIMEOUT, "--set", f"receiverDefaults.replicas=1,{SMALL}")
        began, load = time.monotonic(), os.getloadavg()[2]
        told = run.replaced_under(Clients(place, foreign))
        minutes = (time.monotonic() - began) / 60
        wait_for(lambda: landed(place), "everything has landed", 900)
        wrong = counted(place, told)
        query(place, "proof", "--named", "exactly-once")
        run.removed(run.rows("before"))
        version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        return {
            "kubernetes": version,
            "cores": os.cpu_count(),
            "load": [round(load, 1), round(os.getloadavg()[2], 1)],
            "policies_enforced": enforced,
            "minutes_of_traffic": round(minutes, 1),
            "seconds": run.seconds,
            "clients": {
                name: {**told[name], "lost": lost, "doubled": doubled} for name, (lost, doubled) in wrong.items()
            },
        }


def table(run: dict[str, Any]) -> str:
    """Returns the times and counts of a run."""
    lines = [
        'The chart on a node of Kubernetes, from its installation to its removal; pods of the standard "restricted" only.',
        "Written by `tests.helm.operations`.",
        "",
        f"Kubernetes {run['kubernetes']}, {run['cores']} cores, load (15 minutes) "
        f"{run['load'][0]:g} when the clients began and {run['load'][1]:g} at the end. The network enforced policies: "
        f"{'yes' if run['policies_enforced'] else 'no'}.",
        "",
        "| step | seconds |",
        "|---|---|",
        *(f"| {name} | {seconds} |" for name, seconds in run["seconds"].items()),
        "",
        f"Clients, {run['minutes_of_traffic']:g} minutes, from the upgrade to the killed landing job:",
        "",
        "| client | protocol | acknowledged | lost | doubled | longest wait |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in run["clients"].items():
        of = (f"{each[what]:,}" for what in ("acknowledged", "lost", "doubled"))
        whose = name if name in FOREIGN else "ours"
        lines.append(f"| {whose} | {FOREIGN.get(name, name)} | {' | '.join(of)} | {each['longest_wait']:g} s |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.helm.operations", description=f"Operates {CHART.name} on the node of the tests."
    )
    parser.parse_args()
    if os.environ.get("HEADRACE_TEST_CLUSTER") != "node":
        print("HEADRACE_TEST_CLUSTER is not `node`: tests/README.md says how to have one.", file=sys.stderr)
        return 78
    entry = operate()
    print(json.dumps(entry), flush=True)
    RESULT.write_text(table(entry))
    return int(any(each["lost"] or each["doubled"] for each in entry["clients"].values()))


if __name__ == "__main__":
    sys.exit(main())
