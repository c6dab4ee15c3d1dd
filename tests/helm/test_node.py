"""The chart on a real node from its installation to its removal, and Spark without it: nothing is lost or doubled.

The nodes have the images. Where the cluster has no storage class, HEADRACE_TEST_VOLUMES names a folder of its only node, which is
this machine, for volumes.
"""

from __future__ import annotations

from typing import Final

import pytest
import yaml

from tests.contract.waiting import wait_for
from tests.helm.chart import ROOT
from tests.helm.cluster import Namespace, kubectl, namespace
from tests.helm.node import PORTS, Clients, check_rows, metric_of, query, volumes_of

LONG: Final = 5400
"""Seconds. Not a guess about speed: each step ends when the thing is there."""

pytestmark = [pytest.mark.requires("helm", "k8s", "node"), pytest.mark.full, pytest.mark.timeout(LONG)]

WAIT: Final = ("--wait", "--timeout", "15m")
OURS: Final = "app.kubernetes.io/instance=headrace,app.kubernetes.io/component"
"""Pods of the release, and not its clients."""
SMALL: Final = "receiverDefaults.resources.requests.cpu=20m,receiverDefaults.replicas="
"""Three replicas of all receivers have to fit on a node with two cores."""
DENY: Final = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
DRIVER: Final = "headrace-lake-driver"


def tried(place: Namespace) -> None:
    """An event by each protocol is acknowledged, and on the topic."""
    said = place.helm("test", "--logs", "--timeout", "10m")
    assert "Phase:          Succeeded" in said
    for protocol in PORTS:
        assert protocol in said


def confined(place: Namespace) -> None:
    """The namespace denies every connection that the chart's policies do not allow."""
    place.create("NetworkPolicy", "deny", spec=DENY)
    place.upgrade(*WAIT, "--set", f"{SMALL}1,networkPolicy.egress=true")
    tried(place)
    place.kubectl("delete", "networkpolicy", "deny")
    place.upgrade(*WAIT, "--set", f"{SMALL}1")


def settled(place: Namespace, *parts: str) -> None:
    """Each part has as many ready pods as it should, and none that ends."""
    for part in parts:
        kind = "statefulset" if part == "kafka" else "deployment"
        place.kubectl("rollout", "status", f"{kind}/headrace-{part}", "--timeout=900s")


def drain(place: Namespace) -> None:
    """The node of Kafka's pod: all pods of the release end, and come back when it may be used again, or before on another."""
    node = place.get("pod", "headrace-kafka-0")["spec"]["nodeName"]
    try:
        options = ("--delete-emptydir-data", "--ignore-daemonsets", "--timeout=600s")
        kubectl("drain", node, f"--pod-selector={OURS}", *options)
    finally:
        kubectl("uncordon", node)
    settled(place, "kafka", "lake", *PORTS)


def kill_landing(place: Namespace) -> None:
    """SIGKILL; the pod that takes its place, perhaps while the old one still ends, lands batches."""
    place.kubectl("delete", "pod", "--selector", f"{OURS}=lake", "--force", "--grace-period=0")

    def lands() -> bool:
        pods = [pod["metadata"]["name"] for pod in place.get("pods", "", "--selector", f"{OURS}=lake")]
        return any(metric_of(place, pod, 8080, "headrace_lake_batches_total") for pod in pods)

    wait_for(lands, "the landing job lands again", 900)


def manifest() -> str:
    """The user's file, with the values marked `yours`: the tables are on the chart's volume; the node has few cores."""
    objects = list(yaml.safe_load_all((ROOT / "deploy" / "spark" / "kubernetes.yaml").read_text()))
    (configuration,) = (each for each in objects if each["kind"] == "ConfigMap")
    given = {
        "driverEnv.HEADRACE_KAFKA__BOOTSTRAP_SERVERS": "headrace-kafka:9092",
        "driverEnv.HEADRACE_LAKE__PATH": "/var/lib/headrace/lake",
        "driverEnv.HEADRACE_LAKE__CHECKPOINT": "/var/lib/headrace/checkpoint",
    }
    for role in ("driver", "executor"):
        given[f"{role}.volumes.persistentVolumeClaim.data.mount.path"] = "/var/lib/headrace"
        given[f"{role}.volumes.persistentVolumeClaim.data.options.claimName"] = "headrace-lake"
        given[f"{role}.request.cores"] = "100m"
    text = configuration["data"]["spark.conf"]  # the last one of a name counts
    configuration["data"]["spark.conf"] = text + "".join(
        f"spark.kubernetes.{name} {value}\n" for name, value in given.items()
    )
    return yaml.safe_dump_all(objects)


def landed_by_spark(place: Namespace, clients: Clients) -> list[int]:
    """Executors and the driver are killed, until all has landed. Returns how many events are acknowledged."""

    def batches() -> float:
        (job,) = place.get("jobs", "", "--field-selector", "metadata.name=headrace-spark")
        if job["status"].get("failed"):
            pytest.fail(place.kubectl("logs", f"pod/{DRIVER}", "--tail=60"))
        return metric_of(place, DRIVER, 8086, "headrace_lake_batches_total") or 0

    def lands() -> None:
        known = batches()
        wait_for(lambda: batches() > known, "a batch lands", 900)

    def executors(phase: str = "Running") -> set[str]:
        found = place.get("pods", "", "--selector", "spark-role=executor", f"--field-selector=status.phase={phase}")
        return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def kill(pod: str) -> None:
        place.kubectl("delete", "pod", pod, "--force", "--grace-period=0")

    place.kubectl("apply", "-f", "-", given=manifest())
    lands()
    killed = min(executors())
    kill(killed)
    lands()
    wait_for(lambda: len(executors() - {killed}) == 2, "another executor takes its place", 600)
    kill(DRIVER)
    left = ("pods", "", "--selector", "spark-role")
    wait_for(lambda: not place.get(*left), "Kubernetes removes the executors of a driver that is gone", 600)
    place.kubectl("delete", "job", "headrace-spark")
    place.kubectl("apply", "-f", "-", given=manifest())
    lands()
    acknowledged = clients.finish()
    lag = "headrace_lake_lag_offsets"
    wait_for(lambda: metric_of(place, DRIVER, 8086, lag) == 0, "everything has landed", 900)
    place.kubectl("delete", "job", "headrace-spark", "--cascade=foreground")
    kill(DRIVER)
    return acknowledged


def test_nothing_is_lost_or_doubled_from_installation_to_removal() -> None:
    with namespace() as place, volumes_of(place):
        place.install(*WAIT)
        tried(place)
        confined(place)
        clients = Clients(place)
        place.upgrade(*WAIT, "--set", f"{SMALL}3,podDefaults.podAnnotations.turn=two")  # replaces every pod
        settled(place, "kafka", "lake", *PORTS)
        place.helm("rollback", *WAIT)
        settled(place, "kafka", "lake", *PORTS)
        drain(place)
        kill_landing(place)
        place.upgrade(*WAIT, "--set", f"{SMALL}1,lake.mode=none")
        acknowledged = landed_by_spark(place, clients)
        place.helm("uninstall", "--wait")
        claims = {each["metadata"]["name"] for each in place.get("persistentvolumeclaims")}
        assert claims == {"headrace-lake", "data-headrace-kafka-0"}
        check_rows(place, acknowledged)
        query(place, "proof", "--named", "exactly-once")
