"""The chart as Helm renders it: objects to ask questions of."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "headrace"
CI = CHART / "ci"
KUBERNETES = "1.34.4"
"""The version that the chart is rendered for."""

SCENARIOS = ("defaults", *sorted(path.name.removesuffix("-values.yaml") for path in CI.glob("*-values.yaml")))
"""What a user may want: each is a file of values in `ci`."""

RECEIVERS = ("forward", "lumberjack", "courier", "logjam", "segment", "otlp", "relp", "syslog")

Object = Mapping[str, Any]


class RefusedError(Exception):
    """Helm does not take the values, and says why."""


def values_of(scenario: str) -> list[str]:
    """Helm's arguments for a scenario."""
    return [] if scenario == "defaults" else ["--values", str(CI / f"{scenario}-values.yaml")]


def helm(*arguments: str, check: bool = True) -> str:
    """Helm's output. Raises `RefusedError` with what it says on standard error."""
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, timeout=300)
    if check and done.returncode != 0:
        raise RefusedError(done.stderr + done.stdout)
    return done.stdout


class Strict(yaml.CSafeLoader):
    """Takes no name twice in one mapping, as the API server does not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [name.value for name, _ in node.value]
        assert len({*names}) == len(names), f"twice: {sorted(name for name in names if names.count(name) > 1)}"
        return super().construct_mapping(node, deep)


@lru_cache
def rendered(*arguments: str, release: str = "headrace") -> tuple[Object, ...]:
    """The chart's objects with these arguments of Helm, hooks too."""
    text = helm(
        "template", release, str(CHART), "--namespace", "logs", "--kube-version", KUBERNETES, *arguments
    )  # fmt: skip
    return tuple(document for document in yaml.load_all(text, Loader=Strict) if document)


def scenario(name: str) -> tuple[Object, ...]:
    return rendered(*values_of(name))


def of(objects: Sequence[Object], kind: str, name: str | None = None) -> list[Object]:
    return [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]


def component(each: Object) -> str:
    return str(each["metadata"]["labels"]["app.kubernetes.io/component"])


def workloads(objects: Sequence[Object]) -> Iterator[tuple[Object, Object]]:
    """Each object that makes pods, and its pod as (metadata, spec)."""
    for each in objects:
        if each["kind"] in {"Deployment", "StatefulSet", "Job"}:
            yield each, each["spec"]["template"]
        elif each["kind"] == "Pod":
            yield each, each


def variables(container: Object) -> dict[str, Any]:
    """Name to value; what comes from elsewhere is the mapping that says where."""
    listed = [entry["name"] for entry in container.get("env", [])]
    assert len(set(listed)) == len(listed), f"twice: {sorted(name for name in listed if listed.count(name) > 1)}"
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", [])}


def at(objects: Sequence[Object], path: str) -> Any:
    """What is at ``Kind/name/field/…``, None if nothing is; with ``Kind`` alone, all objects of it. ``*`` is the name of the only
    one, and ``|`` a slash. Of a workload, ``pod`` is the pod's spec, ``container`` its first container, ``env`` the variables of
    that.
    """
    kind, *rest = path.split("/")
    if not rest:
        return of(objects, kind)
    (found,) = of(objects, kind, None if rest[0] == "*" else rest[0])
    value: Any = found
    for step in rest[1:]:
        if step in {"pod", "container", "env"}:
            value = value["spec"]["template"]["spec"]
            value = value if step == "pod" else value["containers"][0]
            value = variables(value) if step == "env" else value
        elif isinstance(value, list):
            value = value[int(step)]
        elif value is not None:
            value = value.get(step.replace("|", "/"))
    return value
