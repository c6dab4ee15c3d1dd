"""The generated pages are what the declarations say, and pages name only what exists."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import generate
import pytest
import typer
import yaml
from headrace_cli.__main__ import app
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.protocol import installed
from headrace_lake.upkeep.metrics import LakeMetrics

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted(generate.PAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text() == generate.PAGES[path](), "run: python docs/generate.py"


WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def commands(path: Path) -> list[list[str]]:
    """Returns the calls of the command line that a page's blocks of code hold, without comments and what is elided.

    `tests/cli/test_stack.py` runs those that a stack can answer.
    """
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    blocks = re.findall(r"^    .+$|^```\w*\n(?s:.*?)^```$", text, re.MULTILINE)
    lines = re.sub(r" [|>] ", "\n", "\n".join(map(textwrap.dedent, blocks)))
    found = re.findall(r"^(?:[A-Z_]+=\S+ )*\./headrace (.+)$", lines, re.MULTILINE)
    return [words for line in found if "…" not in line and (words := shlex.split(line, comments=True))]


def take(words: list[str]) -> None:
    """Raises `typer`'s usage error, or `KeyError` for a verb that does not exist. Runs nothing."""
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup):
        context = command.make_context("headrace", words)
        words = [*context._protected_args, *context.args]
        _, inner, words = command.resolve_command(context, words)
        assert inner is not None
        command = inner
    command.make_context("headrace", words)


def anchors(path: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_exists(path: Path) -> None:
    """Files, settings, programs, verbs with their options and arguments. What a command does is tested elsewhere."""
    text = path.read_text()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"
    known = set(re.findall(r"`HEADRACE_(\w+)`", (ROOT / "docs" / "settings.md").read_text()))
    text = re.sub(r"`[A-Z_]+` in metrics", "", text)  # a label that is no setting's name
    named = set(re.findall(r"(?<![A-Z_])(?:HEADRACE_)?([A-Z]+__[A-Z_]*[A-Z])(?![A-Z_])", text))
    assert {name for name in named if name.removesuffix("_FILE") not in known} == set()
    for module, script in re.findall(r"\bpython3? (?:-m ([\w.]+)|([\w/]+\.py))", text):
        own = module.startswith("headrace_jotter")  # the page tells how to write it
        assert own or (importlib.util.find_spec(module) if module else (ROOT / script).is_file()), module or script
    for words in commands(path):
        take(words)


METRICS = {row.name: row for catalogue in (ReceiverMetrics(), LakeMetrics()) for row in catalogue.table()}
METRICS |= {row.name: row for protocol in installed() for row in protocol.own_metrics()}
LIBRARY = {"process_cpu_seconds_total": "counter", "process_resident_memory_bytes": "gauge", "up": "gauge"}
"""What the client library and Prometheus themselves have."""

TARGET = {"namespace", "release", "job", "instance"}
"""Labels that Prometheus adds, and the chart's monitors."""


def check_query(query: str) -> None:
    """That a query names metrics that exist, histograms by their buckets, and labels that they have."""
    named = re.findall(r"\b(headrace_\w+|process_\w+|up)\b", query)
    assert named, query
    labels = {"le"} | ({"alertname"} if "ALERTS{" in query else set())
    for name in named:
        base = name.removesuffix("_bucket")
        assert base in METRICS or base in LIBRARY, f"there is no {name}: {query}"
        kind = METRICS[base].kind if base in METRICS else LIBRARY[base]
        assert (kind == "histogram") == (base != name), query
        labels |= set(METRICS[base].labels if base in METRICS else ())
    for name in re.findall(r"(?:rate|increase)\((\w+)", query):
        assert name.endswith(("_total", "_bucket")), f"{name} is no counter: {query}"
    groups = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    used = {label.strip() for group in groups for label in group.split(",")}
    used |= set(re.findall(r"[{,]\s*(\w+)(?:=~|!=|!~|=)", query))
    assert used <= labels | TARGET, f"no such label: {used - labels - TARGET}: {query}"


ALERTS = ROOT / "deploy/helm/headrace/files/alerts.yml"


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def cases() -> list[dict[str, Any]]:
    return yaml.safe_load((ROOT / "tests" / "alerts.yml").read_text())


def test_each_alert_has_its_name_runbook_and_case() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 15
    assert re.findall(r"^### (Headrace\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE) == names
    assert [case["alert"] for case in cases()] == names


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_exist(rule: dict[str, Any]) -> None:
    check_query(rule["expr"])
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]


def of_release(series: dict[str, str], release: str) -> list[dict[str, str]]:
    """Returns promtool's input series: these, with the labels of one release."""
    added = f'namespace="n", release="{release}"'
    return [
        {"series": name[:-1] + f", {added}}}" if name.endswith("}") else f"{name}{{{added}}}", "values": values}
        for name, values in series.items()
    ]


def alert_tests() -> list[dict[str, Any]]:
    """Returns promtool's tests: an alert fires for one release, and not for another beside it, or it knows none."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    made = []
    for case in cases():
        labels = {"severity": severities[case["alert"]], **case.get("labels", {})}
        fires, silent = of_release(case["fires"], "a"), of_release(case["silent"], "b")
        runs = [([*silent, *fires], [{"exp_labels": {**labels, "namespace": "n", "release": "a"}}])]
        if case.get("whole"):
            runs = [(fires, [{"exp_labels": labels}]), (silent, [])]
        for series, expected in runs:
            look = {"eval_time": case["at"], "alertname": case["alert"], "exp_alerts": expected}
            made.append({"interval": "1m", "input_series": series, "alert_rule_test": [look]})
    return made


BOARD = json.loads((ROOT / "deploy/helm/headrace/dashboards/headrace.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.requires("promtool")
def test_prometheus_takes_all_queries_and_each_alert_fires(tmp_path: Path) -> None:
    document = yaml.safe_load(ALERTS.read_text())
    (tmp_path / "whole.yml").write_text(yaml.safe_dump(document))
    for group in document["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # what fires is compared, not the sentences
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(document))
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": alert_tests()}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(tests))
    recorded = [
        {"record": f"panel:{n}", "expr": query.replace("$__rate_interval", "1m")} for n, query in enumerate(QUERIES)
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    for command in (("check", "rules", "whole.yml", "panels.yml"), ("test", "rules", "cases.yml")):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_about_existing_metrics_of_a_release() -> None:
    assert len(QUERIES) > 30
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    for query in QUERIES:
        check_query(query)
        for metric in re.finditer(r"\b(headrace|process)_\w+", query):
            assert re.match(r'\{namespace="\$namespace", release="\$release"[,}]', query[metric.end() :]), query
    chosen = {each["name"]: each.get("multi") for each in BOARD["templating"]["list"]}
    assert (chosen["namespace"], chosen["release"]) == (False, False)
