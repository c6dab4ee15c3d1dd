"""The Helm chart's output for some values: the environment of each part, as the chart itself renders it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import ServiceSettings, Settings, load
from headrace_common.operations.variables import PREFIX, each_setting, misspelt, variable

from headrace_cli.errors import CommandError
from headrace_cli.operating.check import limits
from headrace_cli.operating.check.parts import NAMES, Finding, Verdict, as_environment, settings_class
from headrace_cli.places import ROOT, check_checkout

CHART: Final = ROOT / "deploy" / "helm" / "headrace"
SECONDS: Final = 120
"""Time that Helm has."""
SECRET: Final = "0" * 40
"""In place of what a Secret holds, which only the cluster knows. It is also a key of CURVE."""
_FILE: Final = "_FILE"
_AT: Final = re.compile(r"^Error: (execution error at \([^)]*\): )?")


def check_chart(files: Sequence[Path], parts: Sequence[str]) -> Iterator[Finding]:
    """Judge the values of `files`, the later win, by the settings of `parts`; all if empty. Blocks for Helm.

    Raises `CommandError` if Helm or a file is missing.
    """
    try:
        environments = _environments(_helm(files, "--skip-schema-validation"))
    except _RefusedError as error:
        yield _refused(error)
        return
    said: set[str] = set()
    fine = []
    for part in parts or NAMES:
        if part not in environments:
            yield Finding("settings", Verdict.UNKNOWN, f"these values run no {part}")
            continue
        found = list(_of_part(part, environments[part], said))
        yield from found
        if not any(each.verdict is Verdict.WRONG for each in found):
            fine.append(part)
    if fine:
        yield Finding("settings", Verdict.FINE, f"of {', '.join(fine)}")
    if len(fine) == len(environments.keys() & set(parts or NAMES)):  # the schema has other words for the same mistakes
        try:
            _helm(files)
        except _RefusedError as error:
            yield _refused(error)
    yield Finding("kafka", Verdict.UNKNOWN, "not asked, nor what only the cluster knows: Secrets, certificates, memory")


def _of_part(part: str, environment: Mapping[str, str], said: set[str]) -> Iterator[Finding]:
    """`said`: what another part has in common with this one and was said already."""
    cls = settings_class(part)
    for sentence in misspelt(environment):
        if sentence not in said:
            yield Finding("settings", Verdict.DOUBT, f"{sentence}: it is ignored", "correct its name, or leave it out")
        said.add(sentence)
    try:
        with as_environment(_in_place(cls, environment)):
            loaded = load(cls)
    except ConfigError as error:
        for line in str(error).splitlines():
            if line not in said:
                yield Finding("settings", Verdict.WRONG, line, _where(part, line))
            said.add(line)
        return
    if isinstance(loaded, ServiceSettings):
        for finding in limits.of_kafka(loaded.kafka):
            if finding.reason not in said:
                yield finding
            said.add(finding.reason)


def _where(part: str, line: str) -> str:
    """Where the value stands that a sentence is about."""
    place = "lake" if part == "lake" else part if part == "topics" else f"receivers.{part}, or receiverDefaults"
    named = re.match(rf"{PREFIX}([A-Z]+)__(\w+)", line)
    if named is None:
        return f"in the settings of {place}"
    if named[1] == "KAFKA":
        return f"in kafka.settings: {named[2].lower()}"
    return f"in the settings of {place}: {{{named[1].lower()}: {{{named[2].lower()}: …}}}}"


# Helm


class _RefusedError(Exception):
    """Helm does not take the values. The text is what it says."""


def _refused(error: _RefusedError) -> Finding:
    return Finding("chart", Verdict.WRONG, str(error), "docs/kubernetes.md and the chart's README say what it may be")


def _helm(files: Sequence[Path], *options: str) -> str:
    helm = shutil.which("helm")
    if helm is None:
        raise CommandError("helm is missing: it renders the chart. Install it, or check the settings with --config.")
    for path in files:
        if not path.is_file():
            raise CommandError(f"--chart-values {path}: there is no such file.", status=2)
    check_checkout("validate --chart-values")
    given = [argument for path in files for argument in ("--values", str(path))]
    try:
        done = subprocess.run(
            [helm, "template", "headrace", str(CHART), *given, *options],
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CommandError(f"helm did not end within {SECONDS} s.") from None
    if done.returncode:
        lines = [line.strip(" -") for line in _AT.sub("", done.stderr).splitlines()]
        raise _RefusedError("; ".join(line for line in lines if line and not line.startswith("Use --debug")))
    return done.stdout


def _environments(text: str) -> dict[str, dict[str, str]]:
    """The variables of each part; what a Secret or the cluster fills in is `SECRET`."""
    found: dict[str, dict[str, str]] = {}
    for each in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        part = ((each or {}).get("metadata", {}).get("labels") or {}).get("app.kubernetes.io/component")
        container = _container(each) if part in NAMES else None
        if part is not None and container is not None:
            found[part] = {item["name"]: str(item.get("value", SECRET)) for item in container.get("env") or ()}
    return found


def _container(each: Mapping[str, Any]) -> Any:
    """Of an object that makes pods, that which reads settings; None for any other object."""
    if each["kind"] == "SparkApplication":
        return each["spec"]["driver"]
    pod = each if each["kind"] == "Pod" else each.get("spec", {}).get("template", {})
    containers = pod.get("spec", {}).get("containers")
    return containers[0] if containers else None


# The environment


def _in_place(cls: type[Settings], environment: Mapping[str, str]) -> dict[str, str]:
    """`environment`, with something that fits in place of each secret that is read from a file."""
    kinds = {variable(section, name): info.annotation for section, name, info in each_setting(cls)}
    found = {}
    for name, value in environment.items():
        direct = name.removesuffix(_FILE)
        if direct != name and direct in kinds:
            name, value = direct, SECRET
        if value == SECRET and name in kinds:
            value = _fitting(kinds[name])
        found[name] = value
    return found


def _fitting(annotation: Any) -> str:
    text = str(annotation)
    return json.dumps({}) if text.startswith("dict") else json.dumps([]) if text.startswith("tuple") else SECRET
