"""The objects that the chart makes fit each other, and keep what the pages promise."""

from __future__ import annotations

import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from headrace_common.operations.settings import LimitSettings
from headrace_common.operations.variables import read_bytes, read_seconds

from tests.helm.chart import (
    CHART,
    CI,
    KUBERNETES,
    RECEIVERS,
    SCENARIOS,
    at,
    component,
    helm,
    of,
    rendered,
    scenario,
    values_of,
    variables,
    workloads,
)

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]


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
    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] in {"Deployment", "StatefulSet"}:
            assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        if each["kind"] in {"Service", "PodDisruptionBudget", "NetworkPolicy"}:
            selector = spec["selector"] if each["kind"] == "Service" else (spec.get("podSelector") or spec["selector"])
            wanted = selector.get("matchLabels", selector).items()
            ((part, pod),) = ((part, pod) for part, pod in pods if wanted <= pod["metadata"]["labels"].items())
            assert part == component(each)
            there = {port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", [])}
            rules = [spec] if each["kind"] == "Service" else spec.get("ingress", [])
            asked = [port.get("targetPort", port["port"]) for rule in rules for port in rule.get("ports", [])]
            assert {*asked} <= there
            if "ops" in asked and each["kind"] == "Service":  # health and metrics are not for clients
                assert spec["clusterIP"] == "None"
        if each["kind"] == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            assert at(objects, f"{target['kind']}/{target['name']}/spec/replicas") is None
        if each["kind"] == "StatefulSet":
            assert of(objects, "Service", spec["serviceName"])
    for _, pod in workloads(objects):
        account = pod["spec"].get("serviceAccountName")
        assert account in {None, "site", "landing"} or of(objects, "ServiceAccount", account)
        for volume in pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim in {None, "tables"} or of(objects, "PersistentVolumeClaim", claim)


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_get_nothing_that_they_do_not_need(name: str) -> None:
    """The API server's admission sees that they are restricted (`test_server.py`)."""
    for _, pod in workloads(scenario(name)):
        spec = pod["spec"]
        assert spec["enableServiceLinks"] is False, "a Service called kafka would be KAFKA_PORT in the environment"
        assert spec["automountServiceAccountToken"] is False
        # OpenShift chooses them
        assert (
            ("runAsUser" in spec["securityContext"]) is ("fsGroup" in spec["securityContext"]) is (name != "openshift")
        )
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is (container["name"] != "kafka")
            assert not container["image"].endswith(":latest")
            assert re.fullmatch(r"[\w./-]+(:[\w.-]+|@sha256:\w{64})", container["image"])
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_receiver_has_time_to_stop(name: str) -> None:
    """The pause, the drain, and what follows it; probes that let it start, and see it when it is not ready."""
    for each, pod in workloads(scenario(name)):
        if component(each) not in RECEIVERS:
            continue
        container = pod["spec"]["containers"][0]
        given = variables(container)
        drain = float(read_seconds(given.get("HEADRACE_LIMITS__DRAIN_TIME", LimitSettings().drain_time)))
        pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert (pause > 0) is (each["metadata"]["name"] != "ingest-courier")
        assert pod["spec"]["terminationGracePeriodSeconds"] >= pause + math.ceil(drain) + 10
        pages = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
        assert pages == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_update_of_several_receivers_takes_no_more_room(name: str) -> None:
    """Room on a full node is the landing job's: it ends before its new pod starts."""
    objects = scenario(name)
    fewest = {
        each["metadata"]["name"]: each["spec"]["minReplicas"]
        for each in objects
        if "minReplicas" in each.get("spec", {})
    }
    for each, _ in workloads(objects):
        if component(each) in RECEIVERS and each["kind"] == "Deployment":
            replicas = each["spec"].get("replicas") or fewest[each["metadata"]["name"]]
            more, less = (0, 1) if replicas > 1 else (1, 0)
            assert each["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": less, "maxSurge": more}


OWN: Final = "receivers.forward"
FORWARD: Final = "Deployment/headrace-forward"
NO_SEGMENTS: Final = "receivers.segment.enabled=false"
SEGMENTS: Final = "Job/*/env/HEADRACE_TOPICS__SEGMENTS_PARTITIONS"
LABELS: Final = "labels.team=all,podDefaults.podLabels.team=pods,receivers.forward.podLabels.team=own"
TEAM: Final = "registry.example.org/team"
HOOK: Final = "metadata/annotations/helm.sh|hook"
ROLE: Final = "metadata/annotations/eks.amazonaws.com|role-arn"
DEVICES: Final = "StatefulSet/headrace-logjam/env"
METRICS: Final = "HorizontalPodAutoscaler/headrace-forward/spec/metrics"
NAMES: Final = {"app.kubernetes.io/name": "headrace", "app.kubernetes.io/instance": "headrace"}
RELEASE: Final = {"podSelector": {"matchLabels": NAMES}}
SAID: Final[list[tuple[str, str, Any]]] = [
    # What Kubernetes defines is passed through; a part's own wins
    ("podDefaults.podSecurityContext.fsGroup=2000", f"{FORWARD}/pod/securityContext/fsGroup", 2000),
    ("podDefaults.podSecurityContext.fsGroup=2000", f"{FORWARD}/pod/securityContext/runAsNonRoot", True),
    (f"{OWN}.topologySpreadConstraints[0].maxSkew=2", f"{FORWARD}/pod/topologySpreadConstraints", [{"maxSkew": 2}]),
    (f"{OWN}.probes.readiness.timeoutSeconds=9", f"{FORWARD}/container/readinessProbe/timeoutSeconds", 9),
    (f"{OWN}.probes.readiness.timeoutSeconds=9", f"{FORWARD}/container/readinessProbe/httpGet/path", "/readyz"),
    (f"{OWN}.updateStrategy.type=Recreate", f"{FORWARD}/spec/strategy", {"type": "Recreate"}),
    ("serviceAccount.annotations.a=b", "ServiceAccount/headrace/metadata/annotations", {"a": "b"}),
    ("lake.storage.annotations.a=b", "PersistentVolumeClaim/headrace-lake/metadata/annotations/a", "b"),
    (f"global.imageRegistry={TEAM}", f"{FORWARD}/container/image", f"{TEAM}/headrace-forward:0.1.0"),
    (LABELS, f"{FORWARD}/spec/template/metadata/labels/team", "own"),
    (LABELS, "Deployment/headrace-courier/spec/template/metadata/labels/team", "pods"),
    (LABELS, f"{FORWARD}/metadata/labels/team", "all"),
    ("pods", f"{FORWARD}/container/image", f"{TEAM}/headrace-forward@sha256:{'0123456789abcdef' * 4}"),
    ("pods", "Deployment/headrace-courier/container/image", f"{TEAM}/headrace-courier:0.1.0"),
    ("pods", "ConfigMap/site/data/site", "headrace"),
    ("pods", "ServiceAccount", []),
    # The topics job runs the image that knows all topics (the tools' is ten times as large), before receivers with brokers of
    # one's own, when the release's own objects are not there yet
    ("image.tag=1.2.3", "Job/*/container/image", "headrace-segment:1.2.3"),
    ("image.tag=1.2.3", SEGMENTS, None),
    ("receivers.segment.image=example.org/segment:1", "Job/*/container/image", "example.org/segment:1"),
    (NO_SEGMENTS, "Job/*/container/image", "headrace-segment:0.1.0"),
    (NO_SEGMENTS, SEGMENTS, "0"),
    (f"{NO_SEGMENTS},topics.settings.topics.segments_partitions=1", SEGMENTS, "1"),
    (f"{NO_SEGMENTS},topics.image=example.org/tools:1", "Job/*/container/image", "example.org/tools:1"),
    ("defaults", "Job/*/metadata/annotations", None),
    ("bring-your-own-kafka", f"Job/*/{HOOK}", "pre-install,pre-upgrade"),
    ("bring-your-own-kafka", "Job/*/pod/serviceAccountName", None),
    ("bring-your-own-kafka", "StatefulSet", []),
    ("msk", f"ServiceAccount/headrace-topics/{HOOK}", "pre-install,pre-upgrade"),
    ("msk", "ServiceAccount/headrace-topics/metadata/annotations/helm.sh|hook-weight", "-1"),  # before the job
    # Every account has the role that logs in at MSK
    ("msk", f"ServiceAccount/headrace/{ROLE}", "arn:aws:iam::111122223333:role/headrace"),
    ("msk", f"ServiceAccount/headrace-topics/{ROLE}", "arn:aws:iam::111122223333:role/headrace"),
    ("msk", f"ServiceAccount/headrace-lake/{ROLE}", "arn:aws:iam::111122223333:role/headrace-lake"),
    ("msk", f"{FORWARD}/pod/serviceAccountName", "headrace"),
    ("msk", "Job/*/pod/serviceAccountName", "headrace-topics"),
    ("msk", "Deployment/headrace-lake/pod/serviceAccountName", "headrace-lake"),
    # The broker is for development
    ("defaults", "StatefulSet/headrace-kafka/metadata/labels/purpose", "development"),
    ("defaults", "Service/headrace-kafka/metadata/labels/purpose", "development"),
    ("defaults", "NetworkPolicy/headrace-kafka/spec/ingress", [{"ports": [{"port": "kafka"}], "from": [RELEASE]}]),
    # A consumer of devices keeps its name
    ("logjam-devices", f"{DEVICES}/HEADRACE_LOGJAM__CONSUMER", {"fieldRef": {"fieldPath": "metadata.name"}}),
    ("logjam-devices", "Service/headrace-logjam-consumers/spec/clusterIP", "None"),
    # One landing pod, that ends before the next begins
    ("defaults", "Deployment/headrace-lake/spec/replicas", 1),
    ("defaults", "Deployment/headrace-lake/spec/strategy", {"type": "Recreate"}),
    ("defaults", "PersistentVolumeClaim/headrace-lake/metadata/annotations/helm.sh|resource-policy", "keep"),
    ("lake.mode=none", "PersistentVolumeClaim", []),
    # What scales, and on what; never devices or segments
    ("autoscaling", "StatefulSet/headrace-logjam/spec/replicas", 1),
    ("autoscaling", "Deployment/headrace-segment/spec/replicas", 1),
    ("autoscaling", f"{METRICS}/0/resource/target", {"type": "AverageValue", "averageValue": "600m"}),
    ("autoscaling", f"{METRICS}/1/pods/metric/name", "headrace_budget_used_bytes"),
    # With IPv6 every Service has it, and every part listens there
    ("ipv6", "Service/headrace-forward/spec/ipFamilies", ["IPv6"]),
    ("ipv6", "Service/headrace-lake-ops/spec/ipFamilies", ["IPv6"]),
    ("ipv6", f"{FORWARD}/env/HEADRACE_LISTEN__HOST", "::"),
    ("ipv6", f"{FORWARD}/env/HEADRACE_OPS__HOST", "::"),
    ("ipv6", "Deployment/headrace-lake/env/HEADRACE_OPS__HOST", "::"),
    ("ipv6", "Deployment/headrace-live/container/args/1", "--host=::"),
    # A hook's pod has its policy before it runs
    ("default-deny", f"NetworkPolicy/headrace-topics/{HOOK}", "pre-install,pre-upgrade"),
    ("default-deny", "NetworkPolicy/headrace-topics/metadata/annotations/helm.sh|hook-weight", "-1"),
    ("defaults", "NetworkPolicy/headrace-topics/metadata/annotations", None),
]
"""A scenario or values, where to look, and what is there."""


@pytest.mark.parametrize(("given", "path", "expected"), SAID)
def test_the_chart_says(given: str, path: str, expected: Any) -> None:
    arguments = values_of(given) if given in SCENARIOS else ["--set", given]
    assert at(rendered(*arguments), path) == expected


def test_the_development_brokers_topics_fill_no_disk() -> None:
    objects = scenario("defaults")
    retention = int(at(objects, "Job/*/env/HEADRACE_TOPICS__RETENTION_BYTES"))
    segment = int(at(objects, "StatefulSet/headrace-kafka/env/KAFKA_LOG_SEGMENT_BYTES"))
    claim = at(objects, "StatefulSet/headrace-kafka/spec/volumeClaimTemplates/0/spec/resources/requests/storage")
    assert (12 + 3) * (retention + 2 * segment) < read_bytes(f"{claim}B")


def test_the_live_page_finds_all_and_serves_named_hosts() -> None:
    objects = scenario("live")
    arguments = at(objects, "Deployment/headrace-live/container/args")
    parts = {component(each) for each, _ in workloads(objects)} - {"kafka", "topics", "test", "live", "lake"}
    for part in (*parts, "lake"):
        assert f"--url={part}=dns://headrace-{part}-ops.logs.svc:8080" in arguments
    (names,) = [argument for argument in arguments if argument.startswith("--allow-host=")]
    assert {"localhost", "headrace-live.logs.svc", "headrace.example.org"} <= set(names.partition("=")[2].split(","))
    assert at(objects, "Service/headrace-live/spec/type") == "ClusterIP"


LISTS: Final = {"extraVolumes": "volumes", "extraContainers": "containers"}
OF_CONTAINERS: Final = {"extraEnv": "env", "extraEnvFrom": "envFrom", "extraVolumeMounts": "volumeMounts"}
OF_METADATA: Final = {"podAnnotations": "annotations", "podLabels": "labels"}


def test_all_that_a_pod_may_have_every_pod_has() -> None:
    """Of receivers, broker, landing job, live page, topics job and test; a part's own value wins."""
    values = yaml.safe_load((CI / "pods-values.yaml").read_text())
    found = set()
    for each, pod in workloads(scenario("pods")):
        part, spec = component(each), pod["spec"]
        found.add(part)
        given = {**values["podDefaults"], **values["receivers"].get(part, {})}
        for name in given.keys() & set(spec):
            assert spec[name] == given[name], part
        for places, there in ((LISTS, spec), (OF_CONTAINERS, spec["containers"][0])):
            for name, place in places.items():
                assert all(one in there[place] for one in given.pop(name)), (part, name)
        for name, place in OF_METADATA.items():
            assert given.pop(name).items() <= pod["metadata"][place].items(), (part, name)
        assert given.keys() - {"image", "service"} <= set(spec), part
        assert spec["serviceAccountName"] == ("landing" if part == "lake" else "site"), part
    assert found == {*RECEIVERS, "kafka", "lake", "live", "topics", "test"}


def test_two_long_names_of_releases_stay_apart() -> None:
    long = "a-release-whose-name-is-as-long-as-helm-lets-it-be"
    one, other = (
        {(each["kind"], each["metadata"]["name"]) for each in rendered(release=f"{long}-{number}")} for number in (1, 2)
    )
    assert max(len(name) for _, name in one) <= 63
    assert not one & other


def test_the_package_has_what_the_chart_reads(tmp_path: Path) -> None:
    helm("lint", "--strict", "--kube-version", KUBERNETES, str(CHART))
    helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    assert helm("template", "headrace", str(package), "--kube-version", KUBERNETES, "--set", "monitoring.rules=true")
