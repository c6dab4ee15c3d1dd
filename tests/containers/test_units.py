"""The units for systemd: their times fit the code's, and systemd understands them."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from headrace_cli.ground import ROOT
from headrace_cli.stack.stack import LAKE_OPS_PORT, SERVICES
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.settings import LimitSettings, each_setting, variable
from headrace_common.topics import BOUND
from headrace_lake.configuration.settings import LakeProcessSettings

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


def test_a_receiver_has_the_time_to_drain() -> None:
    receiver = unit("headrace@.service")
    assert int(receiver["TimeoutStopSec"][0]) >= LimitSettings().drain_time + 5
    assert receiver["KillMode"] == ["mixed"]
    assert int(receiver["LimitNOFILE"][0]) > LimitSettings().connections


def test_the_topics_have_the_time_that_they_wait() -> None:
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
    ports = {service.name: str(service.ops_port) for service in SERVICES} | {"lake": str(LAKE_OPS_PORT)}
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
