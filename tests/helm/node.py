"""What tests on a real node share: volumes, pods of the tools' image, clients under way, and the question of what has landed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace_common import __version__

from tests.contract.waiting import wait_for
from tests.helm.chart import RefusedError
from tests.helm.cluster import Namespace, kubectl

TRAFFIC = Path(__file__).parent / "traffic.py"
PORTS = {
    "forward": 24224, "lumberjack": 5044, "courier": 5043, "logjam": 9604, "segment": 12345, "otlp": 4318, "relp": 2514,
    "syslog": 5514,
}  # fmt: skip
SIZES = {"data-headrace-kafka-0": "8Gi", "headrace-lake": "20Gi"}
"""Of the claims that the chart makes."""
STRIDE = 10**9
"""Between the first numbers of two clients."""


@contextlib.contextmanager
def volumes_of(place: Namespace) -> Iterator[None]:
    """Volumes for the chart's claims, if the cluster makes none: folders of the node, which is this machine, in that of
    HEADRACE_TEST_VOLUMES.
    """
    if json.loads(kubectl("get", "storageclasses", "--output", "json"))["items"]:
        yield
        return
    root = Path(os.environ["HEADRACE_TEST_VOLUMES"]) / place.name
    try:
        for claim, size in SIZES.items():
            folder = root / claim
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            spec = {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": place.name, "name": claim},
            }
            place.create("PersistentVolume", f"{place.name}-{claim}", spec=spec)
        yield
    finally:
        place.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        for claim in SIZES:
            kubectl("delete", "persistentvolume", f"{place.name}-{claim}", "--wait=false", "--ignore-not-found")
        shutil.rmtree(root, ignore_errors=True)


def run(place: Namespace, name: str, arguments: list[str], volume: Mapping[str, Any], folder: str) -> None:
    """Starts a pod of the tools' image, as restricted as all others, that has a volume at `folder`."""
    container = {
        "name": "tools",
        "image": f"headrace-tools:{__version__}",
        "imagePullPolicy": "IfNotPresent",
        "command": arguments,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": folder, "readOnly": True}],
    }
    security = {"runAsNonRoot": True, "runAsUser": 185, "fsGroup": 185, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": security,
        "containers": [container],
        "volumes": [{"name": "data", **volume}],
    }
    labels = {"app.kubernetes.io/instance": "headrace", "app.kubernetes.io/name": "headrace"}
    place.create("Pod", name, labels, spec=spec)


def ended(place: Namespace, name: str) -> str:
    """What the pod has said in the end, when it has succeeded."""

    def phase() -> str:
        return str(place.get("pod", name)["status"]["phase"])

    wait_for(lambda: phase() in {"Succeeded", "Failed"}, f"{name} has ended", 600)
    said = place.kubectl("logs", f"pod/{name}")
    assert phase() == "Succeeded", said
    return said


class Clients:
    """A client of each protocol, in pods."""

    def __init__(self, place: Namespace) -> None:
        self._place = place
        place.kubectl("create", "configmap", "traffic", f"--from-file={TRAFFIC}")
        for index, (name, port) in enumerate(PORTS.items()):
            command = ["python", "/work/traffic.py", name, f"headrace-{name}", str(port), str(index * STRIDE)]
            run(place, f"client-{name}", command, {"configMap": {"name": "traffic"}}, "/work")
        for name in PORTS:
            place.kubectl("wait", "--for=condition=Ready", f"pod/client-{name}", "--timeout=300s")

    def finish(self) -> list[int]:
        """Lets each finish its frame. Returns how many events of each are acknowledged."""
        for name in PORTS:
            stop = "import os, signal; os.kill(1, signal.SIGTERM)"  # no shell, no `kill` in the image
            with contextlib.suppress(RefusedError):  # the container may end before the command does
                self._place.kubectl("exec", f"client-{name}", "--", "python", "-c", stop)
        return [int(ended(self._place, f"client-{name}")) for name in PORTS]


def query(place: Namespace, name: str, *arguments: str) -> str:
    """The tools' `headrace query` on the volume of the tables."""
    volume = {"persistentVolumeClaim": {"claimName": "headrace-lake", "readOnly": True}}
    command = ["headrace", "query", "--lake", "/var/lib/headrace/lake", *arguments]
    run(place, name, command, volume, "/var/lib/headrace")
    return ended(place, name)


def metric_of(place: Namespace, pod: str, port: int, name: str) -> float | None:
    """A metric of a landing job, summed over its labels; None while it does not answer."""
    ask = f"import urllib.request as r; print(r.urlopen('http://localhost:{port}/metrics').read().decode())"
    try:
        text = place.kubectl("exec", pod, "--", "/opt/headrace/bin/python", "-c", ask)
    except RefusedError:
        return None
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))


NUMBER = "json_extract_string(coalesce(body, decode(payload)), '$.n')::bigint"
"""The number of an event of `traffic.py`. A segment's events are bytes."""


def check_rows(place: Namespace, acknowledged: list[int]) -> None:
    """The table holds each acknowledged event of the clients once, and no other of theirs."""
    asked = (
        f"select count(*) as rows, count(distinct {NUMBER}) as numbers, max({NUMBER}) % {STRIDE} + 1 as behind "
        f"from events where {NUMBER} < {len(acknowledged) * STRIDE} group by {NUMBER} // {STRIDE} order by min({NUMBER})"
    )
    found = json.loads(query(place, "count", "--json", asked))
    assert min(acknowledged) > 0
    assert found == [{"rows": count, "numbers": count, "behind": count} for count in acknowledged]
