"""The files for containers and systemd say what the code says: ports, times, versions, settings. No Docker is needed for that."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from headrace_cli.ground import ROOT
from headrace_cli.machine.jars import LIST
from headrace_cli.stack import stack
from headrace_cli.stack.stack import LAKE_OPS_PORT
from headrace_common import __version__
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.settings import LimitSettings, TopicsProcessSettings
from headrace_common.operations.variables import each_setting, read_bytes, variable
from headrace_common.topics import BOUND
from headrace_lake.configuration.settings import LakeProcessSettings

from tests.containers.building import NAMES
from tests.contract.conftest import DIALECTS


class Loader(yaml.SafeLoader):
    """Knows the tags of compose."""


def _reset(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return None


Loader.add_constructor("!reset", _reset)

COMPOSE = yaml.load((ROOT / "docker-compose.yml").read_text(), Loader)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ENV = dict(
    line.partition("=")[::2] for line in (ROOT / ".env").read_text().splitlines() if line and not line.startswith("#")
)
RECEIVERS = sorted(dialect.name for dialect in DIALECTS if dialect.module == f"headrace_{dialect.name}")
OURS = "${HEADRACE_REGISTRY}headrace-"
DOCKERFILES = ("services/Dockerfile", "cli/Dockerfile", "spark_jobs/Dockerfile")


def seconds(duration: str) -> int:
    (digits,) = re.findall(r"^(\d+)s$", duration)
    return int(digits)


def test_every_receiver_has_an_image_and_a_service() -> None:
    assert {*NAMES} == {*RECEIVERS, "tools", "lake"}
    assert {name for name, service in SERVICES.items() if service["image"].startswith(OURS)} >= {
        *RECEIVERS,
        "lake",
    }


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_receiver_listens_on_its_protocols_port_may_drain_and_has_memory_for_its_budget(name: str) -> None:
    service = SERVICES[name]
    port = importlib.import_module(f"headrace_{name}.settings").PORT
    assert f"${{BIND:?}}:${{{name.upper()}_PORT:?}}:{port}" in service["ports"]
    assert ENV[f"{name.upper()}_PORT"] == str(port)
    assert service["build"]["args"]["SERVICE"] == name
    assert seconds(service["stop_grace_period"]) >= LimitSettings().drain_time + 5
    budget = LimitSettings().process_budget
    assert read_bytes(service["mem_limit"].replace("m", "MiB")) >= 2 * budget + 128 * 2**20


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_fills_the_disk_takes_all_memory_or_gains_rights(name: str) -> None:
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
    assert len(named) > 5
    assert named <= known


def test_a_plain_up_builds_each_of_our_images() -> None:
    ours = {service["image"] for service in SERVICES.values() if service["image"].startswith(OURS)}
    usual = [service for service in SERVICES.values() if not service.get("profiles")]
    assert {service["image"] for service in usual if "build" in service} == ours


def test_prometheus_asks_every_part() -> None:
    document = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())
    targets = {
        target.removesuffix(":8080")
        for job in document["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert targets == {*RECEIVERS, "lake"}


@pytest.mark.parametrize(
    "file", sorted((ROOT / "deploy" / "compose" / "clients").iterdir()), ids=lambda path: path.name
)
def test_clients_talk_to_services_that_exist(file: Any) -> None:
    text = file.read_text()
    named = re.findall(r"(?:hosts: \[\"|host:? +)(\w+)", text)
    assert named or file.suffix == ".py"
    assert set(named) <= SERVICES.keys()


@pytest.mark.parametrize("file", DOCKERFILES)
def test_images_run_as_somebody_without_rights_and_tell_their_health(file: str) -> None:
    text = (ROOT / file).read_text()
    (user,) = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert "0" not in user
    assert re.findall(r"^FROM ([^\s$]+)", text, re.MULTILINE)[1:] or "FROM python" in text
    assert not re.search(r"^(ADD|ONBUILD)|:latest|--pull|^# syntax", text, re.MULTILINE)
    assert "org.opencontainers.image.licenses" in text
    if file != "cli/Dockerfile":
        assert "headrace_common.operations.probe" in re.findall(r"^HEALTHCHECK .+$", text, re.MULTILINE)[0]


UNITS = ROOT / "deploy" / "systemd"
PROGRAM = "/opt/headrace/bin/python"


def unit(name: str) -> dict[str, list[str]]:
    """What each directive says; one that is repeated says several things."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (UNITS / name).read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            directive, _, value = line.partition("=")
            found[directive].append(value)
    return found


def environment(name: str) -> dict[str, str]:
    lines = (UNITS / "etc" / f"{name}.env").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))


def test_units_have_the_time_that_they_need() -> None:
    receiver = unit("headrace@.service")
    assert int(receiver["TimeoutStopSec"][0]) >= LimitSettings().drain_time + 5
    assert receiver["KillMode"] == ["mixed"]
    assert int(receiver["LimitNOFILE"][0]) > LimitSettings().connections
    assert int(unit("headrace-topics.service")["TimeoutStartSec"][0]) > BOUND


@pytest.mark.parametrize("name", ["headrace@.service", "headrace-lake.service"])
def test_wrong_settings_are_not_tried_again(name: str) -> None:
    assert unit(name)["RestartPreventExitStatus"] == [str(EXIT_CONFIG)]
    assert unit(name)["Restart"] == ["always"]


@pytest.mark.parametrize("file", sorted((UNITS / "etc").iterdir()), ids=lambda path: path.stem)
def test_files_of_settings_name_settings(file: Path) -> None:
    known = {variable(*row[:2]) for row in each_setting(LakeProcessSettings)}
    assert environment(file.stem).keys() <= known


def test_no_two_parts_take_the_same_port() -> None:
    ports = {service.name: str(service.ops_port) for service in stack.SERVICES} | {"lake": str(LAKE_OPS_PORT)}
    own = {
        file.stem: environment(file.stem)["HEADRACE_OPS__PORT"]
        for file in (UNITS / "etc").iterdir()
        if file.stem != "headrace"
    }
    assert own.items() >= ports.items()
    assert len(set(own.values())) == len(own)


@pytest.mark.requires("systemd")
def test_systemd_understands_them(tmp_path: Path) -> None:
    for file in UNITS.glob("headrace*"):
        (tmp_path / file.name).write_text(file.read_text().replace(PROGRAM, sys.executable))
    names = ["headrace@forward.service", "headrace-lake.service", "headrace-topics.service", "headrace.target"]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    ours = [line for line in verified.stderr.splitlines() if str(tmp_path) in line or "headrace" in line]
    assert (verified.returncode, ours) == (0, []), verified.stderr
