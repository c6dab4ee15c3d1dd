"""The files for containers say what the code says: ports, times, versions. No Docker is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from headrace_cli.ground import ROOT
from headrace_cli.machine.jars import LIST
from headrace_cli.stack.stack import LAKE_OPS_PORT
from headrace_common import __version__
from headrace_common.operations.settings import LimitSettings, TopicsProcessSettings
from headrace_common.operations.variables import each_setting, read_bytes, variable
from headrace_common.protocol import installed
from headrace_lake.configuration.settings import LakeProcessSettings


class Loader(yaml.SafeLoader):
    """Knows the tags of compose."""


Loader.add_constructor("!reset", lambda *_: None)

COMPOSE = yaml.load((ROOT / "docker-compose.yml").read_text(), Loader)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ENV = dict(
    line.partition("=")[::2] for line in (ROOT / ".env").read_text().splitlines() if line and not line.startswith("#")
)
PACKAGES = {path.name: f"headrace_{path.name}" for path in (ROOT / "services").iterdir() if path.is_dir()}
RECEIVERS = {each.name: each for each in installed() if each.build.__module__.partition(".")[0] in PACKAGES.values()}
"""A package may have several."""
LISTS = (
    *(".env", "docker-compose.yml", "deploy/compose/prometheus.yml", "pyproject.toml", "cli/pyproject.toml"),
    *(f"deploy/helm/headrace/{name}" for name in ("values.yaml", "values.schema.json", "templates/_receivers.tpl")),
    *(".github/workflows/release.yml", "README.md", "spark_jobs/headrace_lake/upkeep/operations.py"),
)
"""Files that name each receiver by hand, or its package."""
DOCKERFILES = ("services/Dockerfile", "cli/Dockerfile", "spark_jobs/Dockerfile")


def seconds(duration: str) -> int:
    (digits,) = re.findall(r"^(\d+)s$", duration)
    return int(digits)


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_receiver_has_its_port_drain_and_memory(name: str) -> None:
    service = SERVICES[name]
    port, (package, *_) = RECEIVERS[name].listeners[0].port, RECEIVERS[name].build.__module__.split(".")
    assert f"${{BIND:?}}:${{{name.upper()}_PORT:?}}:{port}" in service["ports"]
    assert ENV[f"{name.upper()}_PORT"] == str(port)
    assert service["build"]["args"]["SERVICE"] == package.removeprefix("headrace_")
    assert seconds(service["stop_grace_period"]) >= LimitSettings().drain_time + 5
    budget = LimitSettings().process_budget
    assert read_bytes(service["mem_limit"].replace("m", "MiB")) >= 2 * budget + 128 * 2**20


@pytest.mark.parametrize("file", LISTS)
def test_a_list_kept_by_hand_has_every_receiver(file: str) -> None:
    words = {*re.findall(r"[a-z]+", (ROOT / file).read_text().lower())}
    packages = {name: each.build.__module__.split(".")[0].removeprefix("headrace_") for name, each in RECEIVERS.items()}
    assert [name for name, package in packages.items() if not {name, package} & words] == []


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_takes_all_disk_or_memory_or_gains_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_versions_are_those_of_everything_else() -> None:
    assert ENV["HEADRACE_TAG"] == __version__
    assert re.findall(r"org\.apache\.kafka:kafka-clients:(\S+)", LIST.read_text())[:1] == [ENV["KAFKA_VERSION"]]
    assert ENV["LAKE_OPS_PORT"] == str(LAKE_OPS_PORT)


def test_variables_of_ours_are_settings() -> None:
    known = {variable(*row[:2]) for cls in (LakeProcessSettings, TopicsProcessSettings) for row in each_setting(cls)}
    named = {
        name
        for service in SERVICES.values()
        for name in service.get("environment") or {}
        if name.startswith("HEADRACE_")
    }
    assert named
    assert named <= known


def test_prometheus_asks_every_part() -> None:
    asked = re.findall(r"(\w+):8080", (ROOT / "deploy" / "compose" / "prometheus.yml").read_text())
    assert {*asked} == {*RECEIVERS, "lake"}


@pytest.mark.parametrize("file", DOCKERFILES)
def test_images_run_as_somebody_without_rights_and_tell_their_health(file: str) -> None:
    text = (ROOT / file).read_text()
    (user,) = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert "0" not in user
    assert re.findall(r"^FROM ([^\s$]+)", text, re.MULTILINE)[1:] or "FROM python" in text
    assert not re.search(r"^(ADD|ONBUILD)|:latest|--pull|^# syntax", text, re.MULTILINE)
    assert "org.opencontainers.image.licenses" in text
    if file != "cli/Dockerfile":
        assert "HEADRACE_OPS__PORT" in re.findall(r"^HEALTHCHECK .+$", text, re.MULTILINE)[0]
