"""Monitors, rules and dashboards that the chart makes for the operators of Prometheus and Grafana."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helm.chart import CHART, RECEIVERS, ROOT, at, component, of, rendered, scenario, values_of, workloads

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

GROUPS = "PrometheusRule/headrace/spec/groups"
RULE = r"\b(?:headrace_[a-z0-9_]+|up)\b"


def test_the_rules_are_those_of_the_page() -> None:
    groups = yaml.safe_load((ROOT / "deploy/helm/headrace/files/alerts.yml").read_text())["groups"]
    assert at(rendered("--set", "monitoring.rules=true"), GROUPS) == groups
    only = ",".join(f"receivers.{name}.enabled=false" for name in RECEIVERS)
    for values, lake in (("lake.mode=none", False), (only, True)):  # what does not run has no rules
        made = rendered("--set", f"{values},monitoring.rules=true")
        assert at(made, GROUPS) == [group for group in groups if (group["name"] == "headrace-lake") is lake]


def test_grafana_reads_the_dashboard_and_monitors_find_every_part() -> None:
    objects = scenario("monitoring")
    (made,) = of(objects, "ConfigMap")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = made["data"].values()
    assert json.loads(text) == json.loads((CHART / "dashboards" / "headrace.json").read_text())
    (monitor,) = of(objects, "PodMonitor")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    assert {*expression["values"]} == {component(each) for each, _ in workloads(objects)} - {"kafka", "topics", "test"}


@pytest.mark.parametrize("name", ["monitoring", "shared-prometheus"])
def test_with_our_monitors_the_rules_are_about_this_release_alone(name: str) -> None:
    (made,) = of(scenario(name), "PrometheusRule")
    for group in made["spec"]["groups"]:
        for rule in group["rules"] if group["name"] != "headrace-own" else ():
            found = len(re.findall(RULE, rule["expr"]))
            assert found == rule["expr"].count('{namespace="logs",release="headrace",') > 0, rule["expr"]


def test_rules_off_rules_beside_labels_and_runbooks() -> None:
    (made,) = of(scenario("shared-prometheus"), "PrometheusRule")
    rules = {rule["alert"]: rule for group in made["spec"]["groups"] for rule in group["rules"]}
    assert not {"HeadraceLakeSmallFiles", "HeadraceReceiverQuarantine"} & rules.keys()
    own = rules.pop("ShopSendsNothing")
    assert "runbook_url" not in own["annotations"]
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    anchors = {heading.lower() for heading in headings}
    for name, rule in rules.items():
        assert rule["labels"]["team"] == "shop"
        assert rule["labels"]["severity"] in {"warning", "critical"}
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "https://wiki.example.org/headrace/runbooks"
        assert anchor in anchors, name


LABELS = 'namespace="logs", release="headrace"'
JOBS = [name for name in RECEIVERS if name != "courier"]
THERE = dict.fromkeys(JOBS, "5x1000")


@pytest.mark.requires("promtool")
@pytest.mark.parametrize(
    ("connections", "landed", "receivers", "lake"),
    [
        (THERE, "60x1000", [], []),
        ({**THERE, "forward": "5x10 _x1000"}, "60x10 _x1000", ["forward"], ["lake"]),
        (dict.fromkeys(JOBS[1:], "5x1000"), "60x1000", ["forward"], []),  # it never ran
    ],
    ids=("all there", "two gone", "one never there"),
)
def test_what_should_run_is_missed_while_it_does_not(
    tmp_path: Path, connections: dict[str, str], landed: str, receivers: list[str], lake: list[str]
) -> None:
    """One without a replica is not missed."""
    (made,) = of(rendered(*values_of("monitoring"), "--set", "receivers.courier.replicas=0"), "PrometheusRule")
    for group in made["spec"]["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    held = {f'connections{{{LABELS}, job="{job}"}}': values for job, values in connections.items()}
    held[f'lake_last_landed_timestamp_seconds{{{LABELS}, job="lake"}}'] = landed
    about = {"severity": "critical", "namespace": "logs", "release": "headrace"}
    looks = [
        {"eval_time": time, "alertname": name, "exp_alerts": [{"exp_labels": {**about, "job": job}} for job in gone]}
        for time in ("30m", "900m")
        for name, gone in (("HeadraceReceiverGone", receivers), ("HeadraceLakeGone", lake))
    ]
    series = [{"series": f"headrace_{name}", "values": values} for name, values in held.items()]
    case = {"interval": "1m", "input_series": series, "alert_rule_test": looks}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(made["spec"]))
    (tmp_path / "cases.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
