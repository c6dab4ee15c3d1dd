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
PORTS = {"forward": 24224, "lumberjack": 5044, "courier": 5043, "logjam": 9604, "segment": 12345}
TIMEOUT = ("--wait", "--timeout", "15m")
SIZES = {"data-headrace-kafka-0": "8Gi", "headrace-lake": "20Gi"}


@contextlib.contextmanager
def volumes_of(place: Namespace, *claims: str) -> Iterator[None]:
    """Volumes for the claims that the chart makes, and for `claims`, if the cluster makes none.

    They are folders of the node, which is this machine, in that of HEADRACE_TEST_VOLUMES.
    """
    if json.loads(kubectl("get", "storageclasses", "--output", "json"))["items"]:
        yield
        return
    root = Path(os.environ["HEADRACE_TEST_VOLUMES"]) / place.name
    names = []
    try:
        for claim in {*SIZES, *claims}:
            folder = root / claim
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            names.append(f"{place.name}-{claim}")
            volume = {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": names[-1]},
                "spec": {
                    "capacity": {"storage": SIZES[claim]},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(folder)},
                    "claimRef": {"namespace": place.name, "name": claim},
                },
            }
            kubectl("create", "-f", "-", given=json.dumps(volume))
        yield
    finally:
        place.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        for name in names:
            kubectl("delete", "persistentvolume", name, "--wait=false")
        shutil.rmtree(root, ignore_errors=True)


def tools(name: str, arguments: list[str], volumes: list[Any], mounts: list[Any]) -> dict[str, Any]:
    """A pod of the tools' image, as restricted as all others."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/instance": "headrace", "app.kubernetes.io/name": "headrace"}},
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 185,
                "fsGroup": 185,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "tools",
                    "image": f"headrace-tools:{__version__}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": arguments,
                    "env": [{"name": "HOME", "value": "/tmp"}],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }  # fmt: skip


class Clients:
    """A client of each protocol, in pods."""

    def __init__(self, place: Namespace) -> None:
        self._place = place
        place.kubectl("create", "configmap", "traffic", f"--from-file={TRAFFIC}")
        volumes = [{"name": "work", "configMap": {"name": "traffic"}}]
        for index, (name, port) in enumerate(PORTS.items()):
            command = ["python", "/work/traffic.py", name, f"headrace-{name}", str(port), str(index * STRIDE)]
            pod = tools(f"client-{name}", command, volumes, [{"name": "work", "mountPath": "/work"}])
            place.kubectl("create", "-f", "-", given=json.dumps(pod))
        for name in PORTS:
            place.kubectl("wait", "--for=condition=Ready", f"pod/client-{name}", "--timeout=300s")

    def finish(self) -> dict[str, dict[str, Any]]:
        """Lets each finish its frame; what each was told."""
        for name in PORTS:
            # no shell, no `kill` in the image; the container may end before the command does
            with contextlib.suppress(RefusedError):
                self._place.kubectl(
                    "exec", f"client-{name}", "--", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"
                )
        told = {}
        for name in PORTS:
            pod = f"pod/client-{name}"
            self._place.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", pod, "--timeout=600s", seconds=660)
            told[name] = json.loads(self._place.kubectl("logs", pod).splitlines()[-1])
        return told


def query(place: Namespace, name: str, *arguments: str) -> str:
    """The tools' `headrace query` on the volume of the tables."""
    pod = tools(
        name,
        ["headrace", "query", "--lake", "/var/lib/headrace/lake", *arguments],
        [{"name": "data", "persistentVolumeClaim": {"claimName": "headrace-lake", "readOnly": True}}],
        [{"name": "data", "mountPath": "/var/lib/headrace", "readOnly": True}],
    )
    place.kubectl("create", "-f", "-", given=json.dumps(pod))
    wait_for(lambda: place.get("pod", name)["status"].get("phase") in {"Succeeded", "Failed"}, f"{name} has ended", 600)
    said = place.kubectl("logs", f"pod/{name}")
    assert place.get("pod", name)["status"]["phase"] == "Succeeded", said
    return said


NUMBER = "json_extract_string(coalesce(body, decode(payload)), '$.n')::bigint"
"""The number of an event of `traffic.py`. A segment's events are bytes."""
STRIDE = 10**9
"""Between the first numbers of two clients."""


def metrics_of(place: Namespace, pod: str, port: int = 8080) -> dict[str, float]:
    """A landing job's metrics, summed over their labels; nothing while it does not answer."""
    ask = f"import urllib.request as r; print(r.urlopen('http://localhost:{port}/metrics').read().decode())"
    try:
        text = place.kubectl("exec", pod, "--", "/opt/headrace/bin/python", "-c", ask)
    except RefusedError:
        return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("headrace_lake_"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


def landed(place: Namespace) -> bool:
    """Whether the landing job knows of no event in Kafka that is not in the table."""
    (pod,) = place.pods("lake")
    return metrics_of(place, pod["metadata"]["name"]).get("headrace_lake_lag_offsets") == 0


def check_rows(place: Namespace, told: Mapping[str, Mapping[str, Any]]) -> None:
    """The table holds each acknowledged event of the clients once, and no other of theirs."""
    asked = (
        f"select {NUMBER} // {STRIDE} as client, count(*) as rows, count(distinct {NUMBER}) as numbers, "
        f"max({NUMBER}) % {STRIDE} as highest from events where {NUMBER} < {len(told) * STRIDE} group by 1 order by 1"
    )
    found = {int(each["client"]): each for each in json.loads(query(place, "count", "--json", asked))}
    print(json.dumps(found))
    for index, name in enumerate(told):
        sent, each = told[name]["acknowledged"], found[index]
        assert sent > 0, name
        assert (each["numbers"], each["rows"], each["highest"]) == (sent, sent, sent - 1), name
