"""What the chart and its page tell the processes: settings that exist, of the right type; and what the chart refuses."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from headrace_common import __version__
from headrace_common.operations.settings import LimitSettings, ServiceSettings, Settings, TopicsProcessSettings, load
from headrace_common.operations.variables import (
    PREFIX,
    each_setting,
    named_protocols,
    read_bytes,
    read_seconds,
    variable,
)
from headrace_common.protocol import installed
from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_logjam.settings import LogjamSettings

from tests.helm.chart import (
    CHART,
    RECEIVERS,
    ROOT,
    SCENARIOS,
    RefusedError,
    at,
    component,
    rendered,
    scenario,
    variables,
    workloads,
)

pytestmark = [pytest.mark.requires("helm"), pytest.mark.long]

CLASSES: Final[dict[str, type[Settings]]] = {
    **{name: named_protocols()[name].load().settings for name in RECEIVERS},
    "topics": TopicsProcessSettings,
    "lake": LakeProcessSettings,
}
IN_PLACE: Final = {
    "HEADRACE_FORWARD__USERS": '{"shop": "secret"}',
    "HEADRACE_LAKE__SPARK_SECRETS": '{"spark.hadoop.fs.s3a.secret.key": "secret"}',
}
"""What a Secret might hold, where a word is not enough."""


def environment(container: Any) -> dict[str, str]:
    """Its Headrace variables as the process sees them; Secrets hold something that fits."""
    found = {}
    for name, value in variables(container).items():
        if name.startswith(PREFIX):
            direct = name.removesuffix("_FILE")
            found[direct] = value if isinstance(value, str) and direct == name else IN_PLACE.get(direct, "secret")
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_variable_is_a_setting_and_the_process_takes_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each, pod in workloads(scenario(name)):
        part, given = component(each), environment(pod["spec"]["containers"][0])
        if part not in CLASSES:
            assert part in {"kafka", "live", "test"}
            continue
        known = {variable(*row[:2]) for row in each_setting(CLASSES[part])}
        assert given.keys() <= known, f"{part}: {given.keys() - known}"
        for old in [key for key in os.environ if key.startswith(PREFIX)]:
            monkeypatch.delenv(old)
        for key, value in given.items():
            monkeypatch.setenv(key, value)
        load(CLASSES[part])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_secrets_file_is_mounted_where_the_variable_says(name: str) -> None:
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


OVERRIDES = """
    receiverDefaults: {settings: {limits: {connection_age: 300}, log: {level: debug}}, podLabels: {a: b}}
    receivers: {forward: {settings: {limits: {connection_age: 0}, forward: {heartbeat: false}}}}
    """
WITHOUT_ZEROMQ = """
    receiverDefaults: {settings: {listen: {trusted_proxies: 10.0.0.1}, tls: {minimum: "1.3"}}}
    """
LARGE = """
    receiverDefaults:
      settings: {limits: {process_budget: 1073741824, drain_time: 0.5, connection_age: 86400}}
      resources: {limits: {memory: 3Gi}}
    """
TEXT = r'a "b" \ $(HEADRACE_LOG__LEVEL) $$ $$( $'
"""With what Kubernetes takes for a reference to another variable, and for its escape."""
ALLOW = yaml.safe_dump({"receivers": {"logjam": {"settings": {"logjam": {"allow": TEXT}}}}})


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        (  # Helm's own `toString` writes 16777216 as 1.6777216e+07
            "forward",
            LARGE,
            {"LIMITS__PROCESS_BUDGET": "1073741824", "LIMITS__DRAIN_TIME": "0.5", "LIMITS__CONNECTION_AGE": "86400"},
        ),
        ("forward", OVERRIDES, {"LIMITS__CONNECTION_AGE": "0", "FORWARD__HEARTBEAT": "false", "LOG__LEVEL": "debug"}),
        ("courier", OVERRIDES, {"LIMITS__CONNECTION_AGE": "300"}),
        ("forward", WITHOUT_ZEROMQ, {"LISTEN__TRUSTED_PROXIES": "10.0.0.1", "TLS__MINIMUM": "1.3"}),
        ("logjam", WITHOUT_ZEROMQ, {"LISTEN__TRUSTED_PROXIES": None, "TLS__MINIMUM": None}),
        ("lake", "lake: {settings: {lake: {spark: {spark.x: 1g}}}}", {"LAKE__SPARK": '{"spark.x":"1g"}'}),
        ("logjam", ALLOW, {"LOGJAM__ALLOW": TEXT}),
    ],
)
def test_a_part_has_its_own_settings_and_the_common(part: str, values: str, said: dict[str, str | None]) -> None:
    given = ",".join(f"{name}={json.dumps(value)}" for name, value in yaml.safe_load(values).items())
    told = at(rendered("--set-json", given), f"Deployment/headrace-{part}/env")
    found = {name: told.get(f"{PREFIX}{name}") for name in said}
    assert {name: text and re.sub(r"\$(\$|\(\w+\))", _resolved, text) for name, text in found.items()} == said


def _resolved(found: re.Match[str]) -> str:
    """What Kubernetes makes of it."""
    return "$" if found[1] == "$" else "another variable"


@pytest.mark.parametrize("text", ["5m", "90s", "1.5h", "1500ms", "2 min", "7D", 30, 0.5, None])
def test_the_chart_reads_a_duration_as_the_processes_do(text: Any) -> None:
    objects = rendered("--set-json", f"receiverDefaults.settings.limits.drain_time={json.dumps(text)}")
    assert at(objects, "Deployment/headrace-forward/env/HEADRACE_LIMITS__DRAIN_TIME") == (text and str(text))
    drain = math.ceil(read_seconds(text or LimitSettings().drain_time))
    assert at(objects, "Deployment/headrace-forward/pod/terminationGracePeriodSeconds") == 5 + drain + 15


@pytest.mark.parametrize("text", ["512MiB", "536MB", "524288KiB", "0.5 gib", 536870912])
def test_the_chart_reads_a_size_as_the_processes_do(text: Any) -> None:
    """The memory limit that just holds it is taken, one below is not."""
    needed = 2 * read_bytes(text) + 128 * 2**20
    given = f"receivers.forward.settings.limits.process_budget={json.dumps(text)},receivers.forward.resources.limits.memory="
    rendered("--set-json", f'{given}"{needed}"')
    with pytest.raises(RefusedError, match=r"receivers\.forward\.resources\.limits\.memory"):
        rendered("--set-json", f'{given}"{needed - 1}"')


OWN = "kafka.enabled=false,kafka.settings.bootstrap_servers=k:9092"
DEVICES = "receivers.logjam.settings.logjam.endpoints.a=tcp://a:1"
FORWARD = "receivers.forward"
LAKE = "lake.settings.lake"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (f"{FORWARD}.settings.forward.shared_key=open", "shared_key"),
        ("receivers.logjam.tls.existingSecret=x", "ZeroMQ has no TLS"),
        ("kafka.settings.bootstrap_servers=k:9092", "Set kafka.enabled to false"),
        ("kafka.enabled=false", "bootstrap_servers is missing"),
        (f"{OWN},kafka.oauth.existingSecret=x", "a SASL security_protocol and sasl_mechanism OAUTHBEARER"),
        (f"{FORWARD}.tls.clientCa.existingSecret=x", "needs a certificate"),
        (f"{LAKE}.path=s3a://b/lake", "path and checkpoint go together"),
        (f"{LAKE}.path=/data/lake,{LAKE}.checkpoint=/data/c", f"{LAKE}.path: /data/lake"),
        (f"{LAKE}.driver_memory=4g", f"{LAKE}.driver_memory: a heap of 4g"),
        ("kafka.development.heap=2g", "kafka.development.heap: a heap of 2g"),
        ("receiverDefaults.resources.limits.memory=512Mi", "resources.limits.memory: 512Mi is below twice"),
        (f"{FORWARD}.settings.limits.process_budget=128MiB", f"{FORWARD}.settings.limits.process_budget: "),
        (f"{FORWARD}.settings.limits.connection_budget=64MiB", "limits.connection_budget: it is below"),
        ("topics.settings.topics.replication=3", "topics.settings.topics.replication: "),
        (f"{DEVICES},receivers.logjam.autoscaling.enabled=true", "receivers.logjam.autoscaling.enabled: "),
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


def test_versions_and_ports_are_those_of_everything() -> None:
    document = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert document["appVersion"] == document["version"] == __version__
    objects = scenario("defaults")
    ports = {protocol.name: [protocol.listeners[0].port] for protocol in installed()}
    assert ports.keys() == {*RECEIVERS}
    ports["logjam"].append(LogjamSettings().logjam.pull_port)
    for name, expected in ports.items():
        found = [port["port"] for port in at(objects, f"Service/headrace-{name}/spec/ports")]
        assert found[: len(expected)] == expected
    assert ServiceSettings().ops.port == 8080  # the chart's name for health and metrics


def test_a_release_whose_name_begins_with_a_digit_is_refused() -> None:
    with pytest.raises(RefusedError, match="names of Services must not"):
        rendered(release="1st")


PAGE: Final = (ROOT / "docs" / "kubernetes.md").read_text()
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
