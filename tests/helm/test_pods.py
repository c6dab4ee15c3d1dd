"""What operators may set of every pod, Service and scaler of the chart is there."""

from __future__ import annotations

import json

import pytest

from tests.helm.chart import component, of, one, receivers, rendered, scenario, values_of, variables, workloads

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]


def test_everything_that_a_pod_may_be_given_is_in_every_pod() -> None:
    """Of receivers, broker, landing job, live page, topics job and test; a part's own value wins."""
    found = set()
    for each, pod in workloads(scenario("pods")):
        part, spec = component(each), pod["spec"]
        found.add(part)
        assert spec["priorityClassName"] == "ingest", part
        assert spec["nodeSelector"] == {"pool": "ingest"}, part
        assert spec["tolerations"][0].get("key") == (None if part == "courier" else "dedicated"), part
        assert spec["affinity"]["nodeAffinity"], part
        assert spec["hostAliases"][0]["ip"] == "10.0.0.5", part
        assert (spec["dnsPolicy"], spec["dnsConfig"]["options"][0]["name"]) == ("ClusterFirst", "ndots"), part
        assert [container["name"] for container in spec["initContainers"]] == ["wait"], part
        ours, beside = spec["containers"]
        assert beside["name"] == "log-shipper", part
        assert variables(ours)["TZ"] == "UTC", part
        assert {"configMapRef": {"name": "site"}} in ours["envFrom"], part
        assert "/etc/site" in {mount["mountPath"] for mount in ours["volumeMounts"]}, part
        assert {"name": "site", "configMap": {"name": "site"}} in spec["volumes"], part
        assert pod["metadata"]["annotations"]["example.org/owner"] == "platform", part
        assert pod["metadata"]["labels"]["team"] == "platform", part
        assert spec["serviceAccountName"] == ("landing" if part == "lake" else "site"), part
    assert found == {"forward", "lumberjack", "courier", "logjam", "segment", "kafka", "lake", "live", "topics", "test"}
    assert of(scenario("pods"), "ServiceAccount") == []
    assert one(scenario("pods"), "ConfigMap", "site")["data"] == {"site": "headrace"}


def test_an_image_by_its_digest() -> None:
    images = {component(each): pod["spec"]["containers"][0]["image"] for each, pod in workloads(scenario("pods"))}
    assert images["forward"].startswith("registry.example.org/team/headrace-forward@sha256:0123")
    assert images["courier"] == "registry.example.org/team/headrace-courier:0.1.0"


@pytest.mark.parametrize(("policy", "families"), [("SingleStack", ["IPv6"]), ("PreferDualStack", ["IPv4", "IPv6"])])
def test_with_ipv6_every_service_has_it_and_every_part_listens_there(policy: str, families: list[str]) -> None:
    network = f"network={json.dumps({'ipFamilyPolicy': policy, 'ipFamilies': families})}"
    objects = rendered(*values_of("ipv6"), "--set-json", network)
    for each in of(objects, "Service"):
        assert (each["spec"]["ipFamilyPolicy"], each["spec"]["ipFamilies"]) == (policy, families)
    for each, pod in workloads(objects):
        container = pod["spec"]["containers"][0]
        given = variables(container)
        if each in [receiver for receiver, _ in receivers(objects)]:
            assert (given["HEADRACE_LISTEN__HOST"], given["HEADRACE_OPS__HOST"]) == ("::", "::")
        elif component(each) == "lake":
            assert given["HEADRACE_OPS__HOST"] == "::"
        elif component(each) == "live":
            assert "--host=::" in container["args"]


def test_two_long_names_of_releases_stay_apart() -> None:
    long = "a-release-whose-name-is-as-long-as-helm-lets-it-be"
    names = []
    for release in (f"{long}-1", f"{long}-2"):
        objects = rendered(release=release)
        names.append({(each["kind"], each["metadata"]["name"]) for each in objects})
        assert max(len(name) for _, name in names[-1]) <= 63
    assert not names[0] & names[1]


def test_scaling_is_on_what_runs_out_and_never_on_devices_or_segments() -> None:
    objects = scenario("autoscaling")
    assert {each["metadata"]["name"] for each in of(objects, "HorizontalPodAutoscaler")} == {
        f"headrace-{name}" for name in ("forward", "lumberjack", "courier")
    }
    assert one(objects, "Deployment", "headrace-segment")["spec"]["replicas"] == 1
    spec = one(objects, "HorizontalPodAutoscaler", "headrace-forward")["spec"]
    cpu, budget = spec["metrics"]
    assert cpu["resource"]["target"] == {"type": "AverageValue", "averageValue": "600m"}
    assert budget["pods"]["metric"]["name"] == "headrace_budget_used_bytes"
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    assert one(objects, "StatefulSet", "headrace-logjam")["spec"]["replicas"] == 1
