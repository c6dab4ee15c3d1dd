"""The objects that the chart makes fit each other, and keep what the pages promise."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from headrace_common.operations.settings import LimitSettings
from headrace_common.operations.variables import read_seconds

from tests.helm.chart import (
    CHART,
    KUBERNETES,
    SCENARIOS,
    Object,
    component,
    helm,
    matches,
    of,
    one,
    receivers,
    rendered,
    scenario,
    variables,
    workloads,
)

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def size(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


@pytest.mark.requires("kubeconform")
@pytest.mark.parametrize("name", SCENARIOS)
def test_kubernetes_knows_every_field(name: str) -> None:
    skipped = "PodMonitor,PrometheusRule"  # their definitions come with their operators
    options = ["-strict", "-summary", "-kubernetes-version", KUBERNETES, "-skip", skipped]
    if schemas := os.environ.get("HEADRACE_KUBERNETES_SCHEMAS"):  # a folder, for machines without a network
        options += ["-schema-location", f"{schemas}/v{KUBERNETES}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"]
    text = yaml.safe_dump_all(scenario(name))
    done = subprocess.run(["kubeconform", *options, "-"], input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SCENARIOS)
def test_selectors_select_what_they_mean(name: str) -> None:
    objects = scenario(name)
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)
    assert {each["metadata"]["namespace"] for each in objects} == {"logs"}
    assert of(objects, "Secret") == []
    pods = [(component(each), pod) for each, pod in workloads(objects)]

    def selected(selector: Any) -> list[tuple[str, Object]]:
        found = [(part, pod) for part, pod in pods if matches(selector, pod["metadata"]["labels"])]
        assert found, selector
        return found

    def ports(pod: Object) -> set[str]:
        return {port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", [])}

    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] in {"Deployment", "StatefulSet"}:
            assert matches(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"])
        if each["kind"] == "Service":
            ((part, pod),) = selected(spec["selector"])
            assert part == component(each)
            assert {port["targetPort"] for port in spec["ports"]} <= ports(pod)
        if each["kind"] == "PodDisruptionBudget":
            ((part, _),) = selected(spec["selector"]["matchLabels"])
            assert part == component(each)
        if each["kind"] == "NetworkPolicy":
            ((part, pod),) = selected(spec["podSelector"]["matchLabels"])
            assert part == component(each)
            assert {port["port"] for rule in spec["ingress"] for port in rule.get("ports", [])} <= ports(pod)
        if each["kind"] == "HorizontalPodAutoscaler":
            target = one(objects, spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
            assert "replicas" not in target["spec"]
        if each["kind"] == "StatefulSet":
            assert of(objects, "Service", spec["serviceName"])
    for _, pod in workloads(objects):
        account = pod["spec"].get("serviceAccountName")
        assert account in {None, "site", "landing"} or of(objects, "ServiceAccount", account)
        for volume in pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim in {None, "tables"} or of(objects, "PersistentVolumeClaim", claim)


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_are_restricted_and_have_their_limits(name: str) -> None:
    """The API server's admission says so too (`test_server.py`), where there is one."""
    for _, pod in workloads(scenario(name)):
        spec = pod["spec"]
        assert spec["enableServiceLinks"] is False, "a Service called kafka would be KAFKA_PORT in the environment"
        assert spec["automountServiceAccountToken"] is False
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        if name == "openshift":  # which chooses them
            assert not {"runAsUser", "runAsGroup", "fsGroup"} & security.keys()
        else:
            assert security["runAsUser"] > 0
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert own["readOnlyRootFilesystem"] is (container["name"] != "kafka")
            assert not container["image"].endswith(":latest")
            assert re.fullmatch(r"[\w./-]+(:[\w.-]+|@sha256:\w{64})", container["image"])
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_receiver_has_time_to_stop(name: str) -> None:
    """The pause, the drain, and what follows it; probes that let it start, and see it when it is not ready."""
    for each, pod in receivers(scenario(name)):
        container = pod["spec"]["containers"][0]
        given = variables(container)
        drain = float(read_seconds(given.get("HEADRACE_LIMITS__DRAIN_TIME", LimitSettings().drain_time)))
        pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert (pause > 0) is (each["metadata"]["name"] != "ingest-courier")
        assert pod["spec"]["terminationGracePeriodSeconds"] >= pause + math.ceil(drain) + 10
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "ops"}
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/livez", "port": "ops"}
        if each["kind"] == "Deployment":
            assert each["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_topics_are_made_before_receivers_with_brokers_of_ones_own() -> None:
    (job,) = of(scenario("bring-your-own-kafka"), "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    # A hook runs before the release's own objects are there.
    assert "serviceAccountName" not in job["spec"]["template"]["spec"]
    assert of(scenario("bring-your-own-kafka"), "StatefulSet") == []


NO_SEGMENTS: Final = "receivers.segment.enabled=false"


@pytest.mark.parametrize(
    ("values", "image", "segments"),
    [
        ("image.tag=1.2.3", "headrace-segment:1.2.3", None),
        ("receivers.segment.image=example.org/segment:1", "example.org/segment:1", None),
        (NO_SEGMENTS, "headrace-segment:0.1.0", "0"),
        (f"{NO_SEGMENTS},topics.settings.topics.segments_partitions=1", "headrace-segment:0.1.0", "1"),
        (f"{NO_SEGMENTS},topics.image=example.org/tools:1", "example.org/tools:1", "0"),
    ],
)
def test_the_topics_job_runs_the_image_that_knows_all_topics(values: str, image: str, segments: str | None) -> None:
    """The tools' is ten times as large above its base."""
    (job,) = of(rendered("--set", values), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["image"], variables(container).get("HEADRACE_TOPICS__SEGMENTS_PARTITIONS")) == (image, segments)


def test_the_development_brokers_topics_need_no_hook_and_fill_no_disk() -> None:
    (job,) = of(scenario("defaults"), "Job")
    assert "annotations" not in job["metadata"]
    given = variables(job["spec"]["template"]["spec"]["containers"][0])
    partitions = 12 + 3
    segment = int(variables(broker(scenario("defaults")))["KAFKA_LOG_SEGMENT_BYTES"])
    volume = one(scenario("defaults"), "StatefulSet", "headrace-kafka")["spec"]["volumeClaimTemplates"][0]
    room = size(volume["spec"]["resources"]["requests"]["storage"])
    assert partitions * (int(given["HEADRACE_TOPICS__RETENTION_BYTES"]) + 2 * segment) < room


def test_a_job_that_does_something_else_has_another_name() -> None:
    """A Job cannot be changed; an upgrade makes another one."""
    names = {
        of(rendered(*arguments), "Job")[0]["metadata"]["name"]
        for arguments in ((), ("--set", "topics.settings.topics.events_partitions=24"), ("--set", "image.tag=0.2.0"))
    }
    assert len(names) == 3


def broker(objects: Any) -> Object:
    return one(objects, "StatefulSet", "headrace-kafka")["spec"]["template"]["spec"]["containers"][0]


def test_the_development_broker_is_labelled() -> None:
    for kind in ("StatefulSet", "Service"):
        assert one(scenario("defaults"), kind, "headrace-kafka")["metadata"]["labels"]["purpose"] == "development"
    assert "for development" in notes()


def notes(*arguments: str) -> str:
    """What `helm install` says at its end. Helm shows it only with a cluster, so a copy of the chart has it in an object."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(CHART, Path(folder) / "headrace"))
        (copy / "templates" / "NOTES.txt").rename(copy / "notes")
        (copy / "templates" / "notes.yaml").write_text('text: {{ tpl (.Files.Get "notes") . | toJson }}\n')
        shown = ("--namespace", "logs", "--kube-version", KUBERNETES, "--show-only", "templates/notes.yaml")
        return str(yaml.safe_load(helm("template", "headrace", str(copy), *shown, *arguments))["text"])


def test_the_notes_name_every_receiver_and_the_next_commands() -> None:
    text = notes()
    for line in ("headrace-forward.logs:24224", "headrace-logjam.logs:9604", "helm test headrace -n logs"):
        assert line in text
    assert "lake.mode: none" in notes("--set", "lake.mode=none")


def test_a_consumer_of_devices_keeps_its_name() -> None:
    objects = scenario("logjam-devices")
    workload = one(objects, "StatefulSet", "headrace-logjam")
    given = variables(workload["spec"]["template"]["spec"]["containers"][0])
    assert given["HEADRACE_LOGJAM__CONSUMER"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert json.loads(given["HEADRACE_LOGJAM__ENDPOINTS"]).keys() == {"device-1", "fhttpd"}
    assert one(objects, "Service", "headrace-logjam-consumers")["spec"]["clusterIP"] == "None"
    assert of(scenario("defaults"), "Deployment", "headrace-logjam")


def test_one_landing_pod_that_ends_before_the_next_begins() -> None:
    lake = one(scenario("defaults"), "Deployment", "headrace-lake")
    assert lake["spec"]["replicas"] == 1
    assert lake["spec"]["strategy"] == {"type": "Recreate"}
    claim = one(scenario("defaults"), "PersistentVolumeClaim", "headrace-lake")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of(rendered("--set", "lake.mode=none"), "Deployment", "headrace-lake") == []


def test_health_and_metrics_are_on_no_service_for_clients() -> None:
    services = [each for name in SCENARIOS for each in of(scenario(name), "Service")]
    found = [each for each in services if any(port["targetPort"] == "ops" for port in each["spec"]["ports"])]
    assert {each["spec"]["clusterIP"] for each in found} == {"None"}


def test_the_live_page_finds_every_part_and_may_reach_it() -> None:
    objects = scenario("live")
    (container,) = one(objects, "Deployment", "headrace-live")["spec"]["template"]["spec"]["containers"]
    told = [argument.removeprefix("--url=") for argument in container["args"] if argument.startswith("--url=")]
    parts = {component(each) for each, _ in workloads(objects)} - {"kafka", "topics", "test", "live"}
    assert told == [f"{part}=dns://headrace-{part}-ops.logs.svc:8080" for part in [*sorted(parts - {"lake"}), "lake"]]
    for part in parts:
        assert one(objects, "Service", f"headrace-{part}-ops")["spec"]["clusterIP"] == "None"
        ingress = one(objects, "NetworkPolicy", f"headrace-{part}")["spec"]["ingress"][-1]
        assert ingress["from"][-1]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "live"
    (names,) = [argument for argument in container["args"] if argument.startswith("--allow-host=")]
    assert {"localhost", "headrace-live.logs.svc", "headrace.example.org"} <= set(names.partition("=")[2].split(","))
    (service,) = of(objects, "Service", "headrace-live")
    assert service["spec"]["type"] == "ClusterIP"


def test_the_package_has_what_the_chart_reads(tmp_path: Path) -> None:
    helm("lint", "--strict", "--kube-version", KUBERNETES, str(CHART))
    helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    assert helm("template", "headrace", str(package), "--kube-version", KUBERNETES, "--set", "monitoring.rules=true")
