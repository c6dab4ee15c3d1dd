"""The landing job by `deploy/spark/kubernetes.yaml` on a node: executors and the driver are killed, every event lands once."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.contract.waiting import wait_for
from tests.helm.chart import ROOT, RefusedError
from tests.helm.cluster import Namespace, namespace
from tests.helm.node import TIMEOUT, Clients, check_rows, metrics_of, query, volumes_of

LONG = 2400
"""Seconds. Not a guess about speed: each step ends when the thing is there."""

pytestmark = [pytest.mark.requires("helm", "k8s", "node"), pytest.mark.full, pytest.mark.timeout(LONG)]

MANIFEST = ROOT / "deploy" / "spark" / "kubernetes.yaml"
DATA = "/var/lib/headrace"
CLAIM = "headrace-lake"
DRIVER = "headrace-lake-driver"
OPS_PORT = 8086
EXECUTORS = "spark-role=executor"


def options(text: str) -> dict[str, str]:
    """Spark's file of options."""
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value.strip() for name, value in lines}


def manifest() -> list[dict[str, Any]]:
    """The user's file, with the values marked `yours`: the tables are on a volume of the node, which has few cores."""
    objects = list(yaml.safe_load_all(MANIFEST.read_text()))
    (configuration,) = (each for each in objects if each["kind"] == "ConfigMap")
    spark = options(configuration["data"]["spark.conf"])
    environment = "spark.kubernetes.driverEnv.HEADRACE_"
    spark[f"{environment}KAFKA__BOOTSTRAP_SERVERS"] = "headrace-kafka:9092"
    spark[f"{environment}LAKE__PATH"] = f"file://{DATA}/lake"
    spark[f"{environment}LAKE__CHECKPOINT"] = f"file://{DATA}/checkpoint"
    for role in ("driver", "executor"):
        volume = f"spark.kubernetes.{role}.volumes.persistentVolumeClaim.data"
        spark[f"{volume}.mount.path"] = DATA
        spark[f"{volume}.options.claimName"] = CLAIM
        spark[f"spark.kubernetes.{role}.request.cores"] = "100m"
    configuration["data"]["spark.conf"] = "".join(f"{name} {value}\n" for name, value in spark.items())
    return objects


@pytest.fixture
def place() -> Iterator[Namespace]:
    """A namespace with a broker, topics and receivers, but no landing job."""
    with namespace() as made, volumes_of(made, CLAIM):
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}},
        }
        made.kubectl("create", "-f", "-", given=json.dumps(claim))
        made.install(*TIMEOUT, "--set", "lake.mode=none,receiverDefaults.replicas=1")
        yield made
        made.kubectl("delete", "job", "--all", "--cascade=foreground")
        made.helm("uninstall", "--wait")


class Submitted:
    """The application, as Kubernetes shows it."""

    def __init__(self, place: Namespace) -> None:
        self._place = place

    def submit(self) -> None:
        self._place.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(manifest()))

    def metrics(self) -> dict[str, float]:
        return metrics_of(self._place, DRIVER, OPS_PORT)

    def batches(self) -> float:
        """Raises `AssertionError` if the application has ended."""
        (job,) = self._place.get("jobs", "", "--field-selector", "metadata.name=headrace-spark")
        assert not job["status"].get("failed"), self.log()
        return self.metrics().get("headrace_lake_batches_total", 0)

    def executors(self) -> dict[str, str]:
        """Phase by name."""
        pods = self._place.get("pods", "", "--selector", EXECUTORS)
        return {
            pod["metadata"]["name"]: pod["status"]["phase"]
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }

    def running(self) -> set[str]:
        return {name for name, phase in self.executors().items() if phase == "Running"}

    def kill(self, *pods: str) -> None:
        self._place.kubectl("delete", "pod", *pods, "--force", "--grace-period=0")

    def gone(self) -> bool:
        """The driver and all that it made."""
        try:
            self._place.get("pod", DRIVER)
        except RefusedError:
            return not self.executors()
        return False

    def log(self) -> str:
        """The ends of both logs, without the stacks of Java."""
        told = []
        for name in ("job/headrace-spark", f"pod/{DRIVER}"):
            with contextlib.suppress(RefusedError):
                lines = self._place.kubectl("logs", name).splitlines()
                told += [f"--- {name}", *[line for line in lines if not line.startswith("\tat ")][-40:]]
        return "\n".join(told)


def test_executors_and_the_driver_are_killed(place: Namespace) -> None:
    job = Submitted(place)
    clients = Clients(place)
    steps = {}

    def lands(what: str, seconds: float = 900) -> None:
        began, known = time.monotonic(), job.batches()
        wait_for(lambda: job.batches() > known, what, seconds)
        steps[what] = round(time.monotonic() - began)

    job.submit()
    lands("the first batch lands")
    assert len(job.running()) == 2
    killed = min(job.running())
    job.kill(killed)
    lands("a batch lands after an executor was killed")
    wait_for(lambda: len(job.running() - {killed}) == 2, "another executor takes its place", 600)
    with pytest.raises(RefusedError, match="exists"):  # a second driver cannot start
        place.kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "Pod", **second()}))
    job.kill(DRIVER)
    wait_for(job.gone, "Kubernetes removes the executors of a driver that is gone", 600)
    place.kubectl("delete", "job", "headrace-spark")
    job.submit()
    lands("a batch lands after the driver was killed")
    told = clients.finish()
    print(json.dumps({"steps": steps, "clients": told}))
    wait_for(lambda: job.metrics().get("headrace_lake_lag_offsets") == 0, "everything has landed", 900)
    check_rows(place, told)
    query(place, "proof", "--named", "exactly-once")


def second() -> dict[str, Any]:
    (job,) = (each for each in manifest() if each["kind"] == "Job")
    return {"metadata": {"name": DRIVER}, "spec": job["spec"]["template"]["spec"]}
