"""The generated pages are what the declarations say, and pages name only what exists."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from headrace_cli.__main__ import app
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.protocol import installed
from headrace_lake.upkeep.metrics import LakeMetrics

ROOT = Path(__file__).parent.parent


def _pages() -> dict[Path, Callable[[], str]]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.parametrize("path", sorted(_pages()), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text() == _pages()[path](), "run: python docs/generate.py"


WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_settings_that_a_page_names_exist(path: Path) -> None:
    """But for those that it calls limits of the metrics, whose label keeps the names of what once was a setting."""
    known = set(re.findall(r"`HEADRACE_(\w+)`", (ROOT / "docs" / "settings.md").read_text()))
    text = re.sub(r"`[A-Z_]+` in metrics", "", path.read_text())
    named = set(re.findall(r"(?<![A-Z_])(?:HEADRACE_)?([A-Z]+__[A-Z_]*[A-Z])(?![A-Z_])", text))
    assert {name for name in named if name.removesuffix("_FILE") not in known and "__ROUTES__" not in name} == set()


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


@pytest.mark.parametrize("path", [path for path in WRITTEN if commands(path)], ids=lambda path: path.name)
def test_the_command_line_takes_the_commands_of_a_page(path: Path) -> None:
    """It knows verb, options and number of arguments. What a command does is tested elsewhere."""
    for words in commands(path):
        take(words)


PROGRAM = re.compile(r"\bpython3? (?:-m ([\w.]+)|([\w/]+\.py))")


@pytest.mark.parametrize(
    "path", [path for path in WRITTEN if PROGRAM.search(path.read_text())], ids=lambda path: path.name
)
def test_the_programs_of_a_page_exist(path: Path) -> None:
    """But for those of the package that a page tells how to write."""
    named = {module or script for module, script in PROGRAM.findall(path.read_text())}
    missing = [
        name for name in named if not ((ROOT / name).is_file() or ("/" not in name and importlib.util.find_spec(name)))
    ]
    assert [name for name in missing if not name.startswith("headrace_jotter")] == []


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


def test_alerts_have_names_of_their_own() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 15


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_exist(rule: dict[str, Any]) -> None:
    check_query(rule["expr"])
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]


def test_every_runbook_belongs_to_an_alert() -> None:
    told = re.findall(r"^### (Headrace\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    assert told == [rule["alert"] for rule in rules()]


def of_release(series: dict[str, str], release: str) -> list[dict[str, str]]:
    """Returns promtool's input series: these, with the labels of one release."""
    added = f'namespace="n", release="{release}"'
    return [
        {"series": name[:-1] + f", {added}}}" if name.endswith("}") else f"{name}{{{added}}}", "values": values}
        for name, values in series.items()
    ]


def alert_tests() -> list[dict[str, Any]]:
    """Returns promtool's tests: for each case of tests/alerts.yml one in which the alert fires, and one in which it is silent."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    made = []
    for case in yaml.safe_load((ROOT / "tests" / "alerts.yml").read_text()):
        labels = {"severity": severities[case["alert"]], **case.get("labels", {})}
        silent = of_release(case["silent"], "b")
        if not case.get("whole"):
            labels |= {"namespace": "n", "release": "a"}
        for beside, fired in (
            ([] if case.get("whole") else silent, of_release(case["fires"], "a")),
            (silent, []),
        ):
            expected = [{"exp_labels": labels}] if fired else []
            look = {"eval_time": case["at"], "alertname": case["alert"], "exp_alerts": expected}
            made.append({"interval": "1m", "input_series": [*beside, *fired], "alert_rule_test": [look]})
    return made


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = yaml.safe_load((ROOT / "tests" / "alerts.yml").read_text())
    assert [case["alert"] for case in cases] == [rule["alert"] for rule in rules()]


@pytest.mark.requires("promtool")
def test_each_alert_fires_and_is_silent_when_it_should(tmp_path: Path) -> None:
    document = yaml.safe_load(ALERTS.read_text())
    (tmp_path / "whole.yml").write_text(yaml.safe_dump(document))
    for group in document["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # what fires is compared, not the sentences
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(document))
    cases = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": alert_tests()}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(cases))
    for command in (("check", "rules", "whole.yml"), ("test", "rules", "cases.yml")):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


BOARD = json.loads((ROOT / "deploy/helm/headrace/dashboards/headrace.json").read_text())


@pytest.mark.requires("promtool")
def test_prometheus_understands_every_query_of_a_dashboard(tmp_path: Path) -> None:
    queries = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    queries = [query.replace("$__rate_interval", "1m") for query in queries]
    assert len(queries) > 30
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_about_metrics_that_exist() -> None:
    panels = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
    assert len(panels) > 24
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith(".")
        for target in panel["targets"]:
            check_query(target["expr"])
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


OF_RELEASE = r'\{namespace="\$namespace", release="\$release"[,}]'
AGGREGATION = r"\b(?:sum|min|max|avg|count)\b(?! by \(namespace, release)"


def test_the_dashboard_shows_one_release_at_a_time() -> None:
    queries = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    for query in queries:
        for metric in re.finditer(r"\b(headrace|process)_\w+", query):
            assert re.match(OF_RELEASE, query[metric.end() :]), query
    chosen = {each["name"]: each.get("multi") for each in BOARD["templating"]["list"]}
    assert (chosen["namespace"], chosen["release"]) == (False, False)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_no_alert_adds_two_releases_up(rule: dict[str, Any]) -> None:
    assert re.findall(AGGREGATION, rule["expr"]) == []
    assert re.findall(r"\bon \((?!namespace, release)", rule["expr"]) == []
