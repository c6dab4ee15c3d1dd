"""A namespace of a real cluster for one test, and what tests do there with kubectl and Helm."""

from __future__ import annotations

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import yaml

from tests.helm.chart import CHART, Object, RefusedError

ADMISSION = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}


def kubectl(*arguments: str, given: str | None = None, seconds: float = 300) -> str:
    """kubectl's output, in the current context. Raises `RefusedError` with what it says."""
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RefusedError(done.stderr + done.stdout)
    return done.stdout


class Namespace:
    """A namespace whose admission enforces the pod security standard "restricted"."""

    def __init__(self) -> None:
        self.name = f"headrace-test-{uuid.uuid4().hex[:8]}"

    def create(self) -> None:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": ADMISSION}}
        kubectl("create", "-f", "-", given=json.dumps(made))

    def delete(self) -> None:
        """Also where no controller empties it."""
        with contextlib.suppress(RefusedError):
            kubectl("delete", "namespace", self.name, "--wait=false")

    def kubectl(self, *arguments: str, given: str | None = None, seconds: float = 300) -> str:
        return kubectl("--namespace", self.name, *arguments, given=given, seconds=seconds)

    def get(self, kind: str, name: str = "", *options: str) -> Any:
        """An object, or the list of all."""
        found = json.loads(self.kubectl("get", kind, *([name] if name else []), *options, "--output", "json"))
        return found if name else found["items"]

    def pods(self, part: str) -> list[Any]:
        """Pods of one part of the release "headrace" that are not ending."""
        ours = f"app.kubernetes.io/instance=headrace,app.kubernetes.io/component={part}"
        found = self.get("pods", "", "--selector", ours)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def helm(self, verb: str, *arguments: str, release: str = "headrace", seconds: float = 900) -> str:
        """A command of Helm about a release. Raises `RefusedError`."""
        done = subprocess.run(
            ["helm", verb, release, "--namespace", self.name, *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr + done.stdout)
        return done.stdout + done.stderr

    def install(self, *arguments: str, release: str = "headrace", seconds: float = 900) -> str:
        return self.helm("install", str(CHART), *arguments, release=release, seconds=seconds)

    def upgrade(self, *arguments: str, seconds: float = 900) -> str:
        return self.helm("upgrade", str(CHART), *arguments, seconds=seconds)


def pod_of(each: Object) -> str:
    """The pod that a workload makes, as a manifest that the API server can judge by itself."""
    template = each["spec"].get("template", each)
    metadata = {"name": each["metadata"]["name"], "labels": template["metadata"]["labels"]}
    spec = {**template["spec"]}
    claimed = each["spec"].get("volumeClaimTemplates", [])
    spec["volumes"] = [
        *spec.get("volumes", []),
        *({"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claimed),
    ]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    made.create()
    try:
        yield made
    finally:
        made.delete()
