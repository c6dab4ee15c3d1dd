"""Monitors, rules and dashboards that the chart makes for the operators of Prometheus and Grafana."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, ROOT, component, of, one, rendered, scenario, values_of, workloads
from tests.test_docs import alert_tests

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

RULE = r"\b(?:headrace_[a-z0-9_]+|up)\b"


def test_the_rules_are_those_of_the_page() -> None:
    groups = yaml.safe_load((ROOT / "deploy/helm/headrace/files/alerts.yml").read_text())["groups"]
    assert one(rendered("--set", "monitoring.rules=true"), "PrometheusRule", "headrace")["spec"]["groups"] == groups
    receivers = ("forward", "lumberjack", "courier", "logjam", "segment")
    only = ",".join(f"receivers.{name}.enabled=false" for name in receivers)
    for values, lake in (("lake.mode=none", False), (only, True)):  # what does not run has no rules
        made = rendered("--set", f"{values},monitoring.rules=true")
        found = one(made, "PrometheusRule", "headrace")["spec"]["groups"]
        assert found == [group for group in groups if (group["name"] == "headrace-lake") is lake]


def test_the_dashboard_is_what_grafana_reads() -> None:
    (made,) = of(scenario("monitoring"), "ConfigMap")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = made["data"].values()
    assert json.loads(text) == json.loads((CHART / "dashboards" / "headrace.json").read_text())


def test_monitors_find_every_part() -> None:
    objects = scenario("monitoring")
    (monitor,) = of(objects, "PodMonitor")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    scraped = {
        component(each) for each, pod in workloads(objects) if component(each) not in {"kafka", "topics", "test"}
    }
    assert set(expression["values"]) == scraped


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


@pytest.mark.requires("promtool")
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    (made,) = of(scenario("shared-prometheus"), "PrometheusRule")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(made["spec"]))
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def judged(document: Any, tests: list[Any], folder: Path) -> str:
    """What promtool says where a case fails; the rules are those of release "a" in the namespace "n"."""
    text = yaml.safe_dump(document, width=10_000).replace(
        'namespace="logs",release="headrace"', 'namespace="n",release="a"'
    )
    document = yaml.safe_load(text)
    for group in document["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "rules.yml").write_text(yaml.safe_dump(document))
    cases = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "cases.yml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(["promtool", "test", "rules", "cases.yml"], cwd=folder, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.requires("promtool")
def test_the_rules_of_one_release_fire_as_those_of_the_page(tmp_path: Path) -> None:
    """And of two releases, the one that was never scraped is named."""
    (made,) = of(scenario("monitoring"), "PrometheusRule")
    whole = ("HeadraceReceiversAbsent", "HeadraceLakeAbsent")
    other = {*whole, "HeadraceReceiverGone", "HeadraceLakeGone"}
    tests = [each for each in alert_tests() if each["alert_rule_test"][0]["alertname"] not in other]
    there = [f'{name}{{namespace="n", release="b"}}' for name in ("headrace_connections", "up")]
    series = [{"series": name, "values": "1x30"} for name in there]
    expected = [{"exp_labels": {"severity": "critical", "namespace": "n", "release": "a"}}]
    looks: list[Any] = [{"eval_time": "20m", "alertname": name, "exp_alerts": expected} for name in whole]
    tests.append({"interval": "1m", "input_series": series, "alert_rule_test": looks})
    assert judged(made["spec"], tests, tmp_path) == ""


@pytest.mark.requires("promtool")
def test_what_should_run_is_missed_for_as_long_as_it_does_not(tmp_path: Path) -> None:
    """Also where it never ran; one without a replica is not missed."""
    (made,) = of(rendered(*values_of("monitoring"), "--set", "receivers.courier.replicas=0"), "PrometheusRule")
    jobs = ("forward", "lumberjack", "logjam", "segment")

    def missed(*gone: str) -> list[Any]:
        return [{"exp_labels": {"severity": "critical", "namespace": "n", "release": "a", "job": job}} for job in gone]

    def case(connections: dict[str, str], landed: str, receivers: list[Any], lake: list[Any]) -> dict[str, Any]:
        held = {("connections", job): values for job, values in connections.items()}
        held["lake_last_landed_timestamp_seconds", "lake"] = landed
        series = [
            {"series": f'headrace_{name}{{namespace="n", release="a", job="{job}"}}', "values": values}
            for (name, job), values in held.items()
        ]
        looks = [
            {"eval_time": at, "alertname": name, "exp_alerts": expected}
            for at in ("30m", "900m")
            for name, expected in (("HeadraceReceiverGone", receivers), ("HeadraceLakeGone", lake))
        ]
        return {"interval": "1m", "input_series": series, "alert_rule_test": looks}

    there = dict.fromkeys(jobs, "5x1000")
    tests = [
        case(there, "60x1000", [], []),
        case({**there, "forward": "5x10 _x1000"}, "60x10 _x1000", missed("forward"), missed("lake")),
        case(dict.fromkeys(jobs[1:], "5x1000"), "60x1000", missed("forward"), []),
    ]
    assert judged(made["spec"], tests, tmp_path) == ""
