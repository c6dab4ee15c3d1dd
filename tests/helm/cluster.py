"""A namespace of a real cluster for one test, and what tests do there with kubectl and Helm."""

from __future__ import annotations

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.helm.chart import CHART, RefusedError

ADMISSION = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
API = {"NetworkPolicy": "networking.k8s.io/v1"}
"""Of kinds that are not of ``v1``."""


def _said(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        raise RefusedError(done.stderr + done.stdout)
    return done.stdout


def kubectl(*arguments: str, given: str | None = None) -> str:
    """kubectl's output, in the current context. Raises `RefusedError` with what it says."""
    return _said("kubectl", *arguments, given=given)


@dataclass
class Namespace:
    """A namespace whose admission enforces the pod security standard "restricted"."""

    name: str

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return kubectl("--namespace", self.name, *arguments, given=given)

    def create(self, kind: str, name: str, labels: Mapping[str, str] | None = None, **more: Any) -> None:
        metadata = {"name": name, "labels": labels or {}}
        made = {"apiVersion": API.get(kind, "v1"), "kind": kind, "metadata": metadata, **more}
        self.kubectl("create", "-f", "-", given=json.dumps(made))

    def get(self, kind: str, name: str = "", *options: str) -> Any:
        """An object, or the list of all."""
        found = json.loads(self.kubectl("get", kind, *([name] if name else []), *options, "--output", "json"))
        return found if name else found["items"]

    def helm(self, verb: str, *arguments: str) -> str:
        """A command of Helm about the release "headrace". Raises `RefusedError`."""
        return _said("helm", verb, "headrace", "--namespace", self.name, *arguments)

    def install(self, *arguments: str) -> str:
        return self.helm("install", str(CHART), *arguments)

    def upgrade(self, *arguments: str) -> None:
        self.helm("upgrade", str(CHART), *arguments)


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """A new one; deleted in the end, also where no controller empties it."""
    made = Namespace(f"headrace-test-{uuid.uuid4().hex[:8]}")
    labels = {"metadata": {"name": made.name, "labels": ADMISSION}}
    kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "Namespace", **labels}))
    try:
        yield made
    finally:
        with contextlib.suppress(RefusedError):
            kubectl("delete", "namespace", made.name, "--wait=false")
