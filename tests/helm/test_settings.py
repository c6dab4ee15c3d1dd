"""What the chart and its page tell the processes: settings that exist, of the right type; and what the chart refuses."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from headrace_common import __version__
from headrace_common.operations.settings import ServiceSettings, Settings, TopicsProcessSettings, load
from headrace_common.operations.variables import PREFIX, each_setting, read_bytes, read_seconds, variable
from headrace_courier.settings import CourierSettings
from headrace_forward.settings import ForwardSettings
from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_logjam.settings import LogjamSettings
from headrace_lumberjack.settings import LumberjackSettings
from headrace_segment.settings import SegmentSettings

from tests.helm.chart import (
    CHART,
    ROOT,
    SCENARIOS,
    RefusedError,
    component,
    of,
    one,
    rendered,
    scenario,
    variables,
    workloads,
)

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

CLASSES: dict[str, type[Settings]] = {
    "forward": ForwardSettings,
    "lumberjack": LumberjackSettings,
    "courier": CourierSettings,
    "logjam": LogjamSettings,
    "segment": SegmentSettings,
    "topics": TopicsProcessSettings,
    "lake": LakeProcessSettings,
}
IN_PLACE = {"HEADRACE_FORWARD__USERS": '{"shop": "secret"}'}
IN_PLACE["HEADRACE_LAKE__SPARK_SECRETS"] = '{"spark.hadoop.fs.s3a.secret.key": "secret"}'
"""What a Secret might hold, where a word is not enough."""


def environment(container: Any) -> dict[str, str]:
    """Its Headrace variables as the process sees them; Secrets hold something that fits."""
    found = {}
    for name, value in variables(container).items():
        if name.startswith(PREFIX):
            direct = name.removesuffix("_FILE")
            found[direct] = value if isinstance(value, str) and direct == name else IN_PLACE.get(direct, "secret")
    return found


def parts(name: str) -> list[tuple[str, Any]]:
    """(component, container) of everything that reads settings."""
    return [
        (component(each), pod["spec"]["containers"][0])
        for each, pod in workloads(scenario(name))
        if component(each) in CLASSES
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_variable_is_a_setting_and_the_process_takes_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts(name)
    for part, container in parts(name):
        given = environment(container)
        known = {variable(*row[:2]) for row in each_setting(CLASSES[part])}
        assert given.keys() <= known, f"{part}: {given.keys() - known}"
        for old in [key for key in os.environ if key.startswith(PREFIX)]:
            monkeypatch.delenv(old)
        for key, value in given.items():
            monkeypatch.setenv(key, value)
        load(CLASSES[part])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_file_of_a_secret_is_mounted_where_the_variable_says(name: str) -> None:
    for each, pod in workloads(scenario(name)):
        container = pod["spec"]["containers"][0]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        files = set()
        for volume in pod["spec"]["volumes"]:
            sources = volume.get("projected", {}).get("sources") or ([volume] if "secret" in volume else [])
            for source in sources:
                keys = source["secret"].get("items") or [{"path": "tls.crt"}, {"path": "tls.key"}]
                files |= {f"{mounts[volume['name']]}/{item['path']}" for item in keys}
        named = {value for value in variables(container).values() if str(value).startswith("/etc/headrace/")}
        assert named == files, each["metadata"]["name"]


def settings(values: str, part: str = "forward") -> dict[str, Any]:
    """The environment of one part with these values."""
    given = yaml.safe_load(values)
    objects = rendered("--set-json", ",".join(f"{name}={json.dumps(value)}" for name, value in given.items()))
    for each, pod in workloads(objects):
        if component(each) == part:
            return variables(pod["spec"]["containers"][0])
    raise AssertionError(f"there is no {part}")


OVERRIDES = """
    receiverDefaults: {settings: {limits: {connection_age: 300}, log: {level: debug}}, podLabels: {a: b}}
    receivers: {forward: {settings: {limits: {connection_age: 0}, forward: {heartbeat: false}}}}
    """
WITHOUT_ZEROMQ = """
    receiverDefaults: {settings: {listen: {trusted_proxies: 10.0.0.1}, tls: {minimum: "1.3"}}}
    """


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        (  # Helm's own `toString` writes 16777216 as 1.6777216e+07
            "forward",
            "receiverDefaults: {settings: {limits: {process_budget: 1073741824, drain_time: 0.5, connection_age: 86400}},"
            " resources: {limits: {memory: 3Gi}}}",
            {"LIMITS__PROCESS_BUDGET": "1073741824", "LIMITS__DRAIN_TIME": "0.5", "LIMITS__CONNECTION_AGE": "86400"},
        ),
        ("forward", OVERRIDES, {"LIMITS__CONNECTION_AGE": "0", "FORWARD__HEARTBEAT": "false", "LOG__LEVEL": "debug"}),
        ("courier", OVERRIDES, {"LIMITS__CONNECTION_AGE": "300"}),
        ("forward", WITHOUT_ZEROMQ, {"LISTEN__TRUSTED_PROXIES": "10.0.0.1", "TLS__MINIMUM": "1.3"}),
        ("logjam", WITHOUT_ZEROMQ, {"LISTEN__TRUSTED_PROXIES": None, "TLS__MINIMUM": None}),
        ("lake", "lake: {settings: {lake: {spark: {spark.x: 1g}}}}", {"LAKE__SPARK": '{"spark.x":"1g"}'}),
    ],
)
def test_a_part_is_told_its_own_settings_and_those_of_all(part: str, values: str, said: dict[str, str | None]) -> None:
    given = settings(values, part)
    assert {name: given.get(f"{PREFIX}{name}") for name in said} == said


def test_text_stays_text() -> None:
    """Whatever Kubernetes takes for a reference to another variable, or for its escape."""
    name = r'a "b" \ $(HEADRACE_LOG__LEVEL) $$ $$( $'
    defaults = {"settings": {"log": {"level": "debug"}, "tls": {"minimum": "1.3"}}}
    values = {"receiverDefaults": defaults, "receivers": {"logjam": {"settings": {"logjam": {"allow": name}}}}}
    text = settings(yaml.safe_dump(values), "logjam")["HEADRACE_LOGJAM__ALLOW"]
    assert re.sub(r"\$(\$|\([A-Z_]+\))", lambda found: "$" if found[1] == "$" else "debug", text) == name


@pytest.mark.parametrize("text", ["5m", "90s", "1.5h", "1500ms", "2 min", "7D", 30, 0.5])
def test_the_chart_reads_a_duration_as_the_processes_do(text: Any) -> None:
    objects = rendered("--set-json", f"receiverDefaults.settings.limits.drain_time={json.dumps(text)}")
    pod = one(objects, "Deployment", "headrace-forward")["spec"]["template"]["spec"]
    assert variables(pod["containers"][0])["HEADRACE_LIMITS__DRAIN_TIME"] == str(text)
    assert pod["terminationGracePeriodSeconds"] == 5 + math.ceil(read_seconds(text)) + 15


@pytest.mark.parametrize("text", ["512MiB", "536MB", "524288KiB", "0.5 gib", 536870912])
def test_the_chart_reads_a_size_as_the_processes_do(text: Any) -> None:
    """The memory limit that just holds it is taken, one below is not."""
    needed = 2 * read_bytes(text) + 128 * 2**20
    given = f"receivers.forward.settings.limits.process_budget={json.dumps(text)},receivers.forward.resources.limits.memory="
    rendered("--set-json", f'{given}"{needed}"')
    with pytest.raises(RefusedError, match=r"receivers\.forward\.resources\.limits\.memory"):
        rendered("--set-json", f'{given}"{needed - 1}"')


OWN = "kafka.enabled=false,kafka.settings.bootstrap_servers=k:9092"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("receivers.forward.settings.forward.shared_key=open", "shared_key"),
        ("receivers.logjam.tls.existingSecret=x", "ZeroMQ has no TLS"),
        ("kafka.settings.bootstrap_servers=k:9092", "Set kafka.enabled to false"),
        ("kafka.enabled=false", "bootstrap_servers is missing"),
        (f"{OWN},kafka.oauth.existingSecret=x", "a SASL security_protocol and sasl_mechanism OAUTHBEARER"),
        ("receivers.forward.tls.clientCa.existingSecret=x", "needs a certificate"),
        ("lake.settings.lake.path=s3a://b/lake", "path and checkpoint go together"),
        ("receiverDefaults.resources.limits.memory=512Mi", "resources.limits.memory: 512Mi is below twice"),
        (
            "receiverDefaults.settings.limits.process_budget=1GiB",
            "receiverDefaults.resources.limits.memory: 768Mi is below",
        ),
        (
            "receivers.forward.settings.limits.process_budget=128MiB",
            "receivers.forward.settings.limits.process_budget: ",
        ),
        ("receivers.forward.settings.limits.connection_budget=64MiB", "limits.connection_budget: it is below"),
        ("topics.settings.topics.replication=3", "topics.settings.topics.replication: "),
        ("lake.settings.lake.driver_memory=4g", "lake.settings.lake.driver_memory: a heap of 4g"),
        ("lake.resources.limits.memory=1Gi,lake.resources.requests.memory=1Gi", "lake.settings.lake.driver_memory: "),
        ("kafka.development.heap=2g", "kafka.development.heap: a heap of 2g"),
        (
            "lake.settings.lake.path=/data/lake,lake.settings.lake.checkpoint=/data/c",
            "lake.settings.lake.path: /data/lake",
        ),
        (
            "receivers.logjam.autoscaling.enabled=true,receivers.logjam.settings.logjam.endpoints.a=tcp://a:1",
            "receivers.logjam.autoscaling.enabled: ",
        ),
        ("receivers.segment.autoscaling.enabled=true", "receivers.segment.autoscaling.enabled: "),
        (f"{OWN},networkPolicy.egress=true", "networkPolicy.kafka: "),
        ("monitoring.rules=true,monitoring.interval=2m", "monitoring.interval: 2m is too long"),
        # Helm takes a default away where the value is null
        ("receiverDefaults.replicas=null", "'replicas'"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: str, says: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(says)):
        rendered("--set", values)


@pytest.mark.parametrize(
    "values",
    [
        "receivers.forward.settings=null,receiverDefaults.settings=null,lake.settings=null,topics.settings=null",
        "receiverDefaults.resources=null,lake.resources=null,labels=null,podDefaults.extraVolumes=null",
        "receivers.forward.replicas=null,topics.image=null,podSecurity.runAsUser=null,live.hosts=null,monitoring.runbooks=null",
        "podDefaults.dnsPolicy=None,podDefaults.dnsConfig.nameservers={10.0.0.10}",
        "podDefaults.extraEnv[0].name=TZ,receivers.forward.extraEnv[0].name=TZ,kafka.development.extraEnv[0].name=TZ",
        "networkPolicy.clients[0].ipBlock.cidr=fd00::/8",
        "lake.extraVolumes[0].name=data,lake.settings.lake.path=s3a://b/l,lake.settings.lake.checkpoint=s3a://b/c",
    ],
)
def test_what_is_unusual_and_can_be_meant_is_taken(values: str) -> None:
    rendered("--set", values)


def test_what_kubernetes_defines_is_passed_through() -> None:
    words = (
        "podDefaults.podSecurityContext.fsGroup=2000",
        "receivers.forward.topologySpreadConstraints[0].maxSkew=2",
        "receivers.forward.probes.readiness.timeoutSeconds=9",
        "receivers.forward.updateStrategy.type=Recreate",
        "serviceAccount.annotations.a=b",
        "lake.storage.annotations.a=b",
        "global.imageRegistry=registry.example.org/team",
    )
    objects = rendered("--set", ",".join(words))
    deployment = one(objects, "Deployment", "headrace-forward")["spec"]
    pod = deployment["template"]["spec"]
    assert pod["securityContext"]["fsGroup"] == 2000
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["topologySpreadConstraints"] == [{"maxSkew": 2}]
    probe = pod["containers"][0]["readinessProbe"]
    assert (probe["timeoutSeconds"], probe["httpGet"]["path"]) == (9, "/readyz")
    assert deployment["strategy"] == {"type": "Recreate"}
    assert pod["containers"][0]["image"].startswith("registry.example.org/team/headrace-forward:")
    assert one(objects, "ServiceAccount", "headrace")["metadata"]["annotations"] == {"a": "b"}
    assert one(objects, "PersistentVolumeClaim", "headrace-lake")["metadata"]["annotations"]["a"] == "b"


def test_the_labels_of_a_part_win_over_those_of_every_object() -> None:
    objects = rendered("--set", "labels.team=all,podDefaults.podLabels.team=pods,receivers.forward.podLabels.team=own")
    found = {component(each): pod["metadata"]["labels"]["team"] for each, pod in workloads(objects)}
    assert found.pop("forward") == "own"
    assert set(found.values()) == {"pods"}
    assert one(objects, "Deployment", "headrace-forward")["metadata"]["labels"]["team"] == "all"


def test_every_account_has_the_role_that_logs_in_at_msk() -> None:
    """The topics job, too, which runs before the release's own account is there."""
    objects = scenario("msk")
    found = {
        each["metadata"]["name"]: each["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].rpartition("/")[2]
        for each in of(objects, "ServiceAccount")
    }
    assert found == {"headrace": "headrace", "headrace-topics": "headrace", "headrace-lake": "headrace-lake"}
    for kind in ("Deployment", "StatefulSet", "Job"):
        for each in of(objects, kind):
            assert each["spec"]["template"]["spec"]["serviceAccountName"] in found, each["metadata"]["name"]
    hook = one(objects, "ServiceAccount", "headrace-topics")["metadata"]["annotations"]
    assert hook["helm.sh/hook"] == one(objects, "Job", "headrace-topics")["metadata"]["annotations"]["helm.sh/hook"]
    assert int(hook["helm.sh/hook-weight"]) < 0


def test_the_chart_has_the_version_of_everything() -> None:
    document = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert document["appVersion"] == document["version"] == __version__


def test_the_ports_are_those_of_the_receivers() -> None:
    objects = scenario("defaults")
    for name in ("forward", "lumberjack", "courier", "logjam", "segment"):
        port = importlib.import_module(f"headrace_{name}.settings").PORT
        service = one(objects, "Service", f"headrace-{name}")
        assert service["spec"]["ports"][0]["port"] == port
    pull = LogjamSettings().logjam.pull_port
    assert [port["port"] for port in one(objects, "Service", "headrace-logjam")["spec"]["ports"]] == [9604, pull]
    assert ServiceSettings().ops.port == 8080  # the chart's name for health and metrics


def test_a_release_whose_name_begins_with_a_digit_is_refused() -> None:
    with pytest.raises(RefusedError, match="names of Services must not"):
        rendered(release="1st")


PAGE: Final = (ROOT / "docs" / "kubernetes.md").read_text()
VALUES: Final[Any] = yaml.safe_load((CHART / "values.yaml").read_text())
BLOCKS: Final = [
    block
    for found in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE, re.MULTILINE)
    if isinstance(block := yaml.safe_load(found.replace("…", "0" * 64)), dict)
]
"""The page's values; its commands are no mappings. A digest is not written out there."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "-".join(block))
def test_the_chart_takes_the_pages_values(block: Any, tmp_path: Path) -> None:
    (file := tmp_path / "values.yaml").write_text(yaml.safe_dump(block))
    assert rendered("--values", str(file))


def test_every_value_that_the_page_names_is_one() -> None:
    named = {
        path for path in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z_]+)+)\b[^`/]*`", PAGE) if path.split(".")[0] in VALUES
    }
    assert len(named) > 20
    assert len(BLOCKS) >= 5
    assert [path for path in sorted(named) if not is_value(path.split("."))] == []


def is_value(path: list[str]) -> bool:
    """Whether the values have it, or a mapping that is empty until a user fills it."""
    values = VALUES
    if path[0] == "receivers":
        values, path = {"secrets": {}, **VALUES["receiverDefaults"], **VALUES["receivers"].get(path[1], {})}, path[2:]
    for name in path:
        if values == {}:
            return True
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
