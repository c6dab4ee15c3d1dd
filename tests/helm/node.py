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
        for index, (protocol, port) in enumerate(PORTS.items()):
            command = ["python", "/work/traffic.py", protocol, f"headrace-{protocol}", str(port), str(index * 10**9)]
            pod = tools(
                f"client-{protocol}",
                command,
                [{"name": "work", "configMap": {"name": "traffic"}}],
                [{"name": "work", "mountPath": "/work"}],
            )
            place.kubectl("create", "-f", "-", given=json.dumps(pod))
        for protocol in PORTS:
            place.kubectl("wait", "--for=condition=Ready", f"pod/client-{protocol}", "--timeout=300s")

    def finish(self) -> dict[str, dict[str, Any]]:
        """Lets each finish its frame; what each was told."""
        for protocol in PORTS:
            # no shell, no `kill` in the image
            self._place.kubectl(
                "exec", f"client-{protocol}", "--", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"
            )
        told = {}
        for protocol in PORTS:
            pod = f"pod/client-{protocol}"
            self._place.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", pod, "--timeout=600s", seconds=660)
            told[protocol] = json.loads(self._place.kubectl("logs", pod).splitlines()[-1])
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


def check_rows(place: Namespace, told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The table holds each acknowledged event of the clients once, and no other of theirs. Returns what was found."""
    asked = (
        f"select protocol, count(*) as rows, count(distinct {NUMBER}) as numbers, min({NUMBER}) as lowest, "
        f"max({NUMBER}) as highest from events where {NUMBER} < {len(PORTS)}000000000 group by protocol order by protocol"
    )
    found = {each["protocol"]: each for each in json.loads(query(place, "count", "--json", asked))}
    print(json.dumps(found))
    for index, protocol in enumerate(PORTS):
        sent = told[protocol]["acknowledged"]
        each = found[protocol]
        assert sent > 0
        assert (each["lowest"], each["highest"]) == (index * 10**9, index * 10**9 + sent - 1), protocol
        assert each["numbers"] == sent, f"{protocol}: {sent - each['numbers']} lost"
        assert each["rows"] == sent, f"{protocol}: {each['rows'] - sent} doubled"
    return found
