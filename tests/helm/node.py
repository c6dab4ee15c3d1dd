"""What tests on a real node share: volumes, pods of the tools' image, clients under way, and the question of what has landed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace_common import __version__

from tests.contract.waiting import wait_for
from tests.helm.chart import RefusedError
from tests.helm.cluster import Namespace, kubectl

TRAFFIC = Path(__file__).parent / "traffic.py"
FOREIGN = {"fluent-logger-golang": "forward", "go-lumber": "lumberjack"}
"""Clients with libraries that the project did not write, and the protocol of each: `clients/main.go`."""
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


START = """
import os, time
while not os.path.exists('/tmp/whole'):
    time.sleep(0.1)
os.execv('/tmp/client', ['client', *__import__('sys').argv[1:]])
"""
"""Starts the program that is written into the pod: its image has none, and a ConfigMap holds no megabytes."""
WRITE = """
import os, sys
with open('/tmp/client', 'wb') as file:
    file.write(sys.stdin.buffer.read())
os.chmod('/tmp/client', 0o755)
open('/tmp/whole', 'w').close()
"""


def program(folder: Path) -> Path:
    """The foreign clients' program."""
    made = folder / "client"
    command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
    environment = {**os.environ, "CGO_ENABLED": "0"}  # it runs on the libraries of another system
    built = subprocess.run(
        command, cwd=TRAFFIC.parent / "clients", env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return made


class Clients:
    """A client of each protocol, in pods; with `foreign`, that program's clients, too."""

    def __init__(self, place: Namespace, foreign: Path | None = None) -> None:
        self._place = place
        place.kubectl("create", "configmap", "traffic", f"--from-file={TRAFFIC}")
        self.protocols = {**dict(zip(PORTS, PORTS, strict=True)), **(FOREIGN if foreign else {})}
        for index, (name, protocol) in enumerate(self.protocols.items()):
            rest = [protocol, f"headrace-{protocol}", str(PORTS[protocol]), str(index * STRIDE)]
            start = ["python", "-c", START] if name in FOREIGN else ["python", "/work/traffic.py"]
            volumes = [{"name": "work", "configMap": {"name": "traffic"}}]
            pod = tools(f"client-{name}", [*start, *rest], volumes, [{"name": "work", "mountPath": "/work"}])
            place.kubectl("create", "-f", "-", given=json.dumps(pod))
        for name in self.protocols:
            place.kubectl("wait", "--for=condition=Ready", f"pod/client-{name}", "--timeout=300s")
        for name, path in ((name, foreign) for name in FOREIGN if foreign):
            with path.open("rb") as file:
                command = ["kubectl", "--namespace", place.name, "exec", "-i", f"client-{name}", "--"]
                subprocess.run([*command, "python", "-c", WRITE], stdin=file, check=True, timeout=300)

    def finish(self) -> dict[str, dict[str, Any]]:
        """Lets each finish its frame; what each was told."""
        for name in self.protocols:
            # no shell, no `kill` in the image; the container may end before the command does
            with contextlib.suppress(RefusedError):
                self._place.kubectl(
                    "exec", f"client-{name}", "--", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"
                )
        told = {}
        for name in self.protocols:
            pod = f"pod/client-{name}"
            self._place.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", pod, "--timeout=600s", seconds=660)
            said = self._place.kubectl("logs", pod)
            # a library's complaints end without a new line, before it or behind it
            told[name], _ = json.JSONDecoder().raw_decode(said, said.rindex("{"))
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
"""The number of an event of `traffic.py` or `clients/main.go`. A segment's events are bytes."""
STRIDE = 10**9
"""Between the first numbers of two clients."""


def landed(place: Namespace) -> bool:
    """Whether the landing job knows of no event in Kafka that is not in the table."""
    (pod,) = place.pods("lake")
    ask = "import urllib.request as r; print(r.urlopen('http://localhost:8080/metrics').read().decode())"
    try:
        text = place.kubectl("exec", pod["metadata"]["name"], "--", "/opt/headrace/bin/python", "-c", ask)
    except RefusedError:
        return False
    behind = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("headrace_lake_lag_offsets{")]
    return bool(behind) and sum(behind) == 0


def counted(place: Namespace, told: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Returns of each client how many of its acknowledged events the table lacks, and how many rows it has too many."""
    asked = (
        f"select {NUMBER} // {STRIDE} as client, count(*) as rows, count(distinct {NUMBER}) as numbers, "
        f"max({NUMBER}) % {STRIDE} as highest from events where {NUMBER} < {len(told) * STRIDE} group by 1 order by 1"
    )
    found = {int(each["client"]): each for each in json.loads(query(place, "count", "--json", asked))}
    print(json.dumps(found))
    made = {}
    for index, name in enumerate(told):
        sent, each = told[name]["acknowledged"], found[index]
        assert sent > 0, name
        assert each["highest"] == sent - 1, f"{name}: the table ends at another event than the last acknowledged"
        made[name] = sent - each["numbers"], each["rows"] - each["numbers"]
    return made


def check_rows(place: Namespace, told: Mapping[str, Mapping[str, Any]]) -> None:
    """The table holds each acknowledged event of the clients once, and no other of theirs."""
    for name, (lost, doubled) in counted(place, told).items():
        assert lost == 0, f"{name}: {lost} lost"
        assert doubled == 0, f"{name}: {doubled} doubled"
