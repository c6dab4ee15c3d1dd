"""`docker compose up` as a user calls it: every protocol's events come out of the lake, and `down` leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from headrace_cli.ground import ROOT
from headrace_cli.machine.ports import free_port
from headrace_cli.wire.sending import run
from headrace_cli.wire.source import ShopSource
from headrace_cli.wire.target import CLIENTS, Target

from tests.containers.building import TAG, built
from tests.contract.receiver import HOST
from tests.contract.waiting import wait_for
from tests.tiers import sized

PORTS = [line.partition("=")[0] for line in (ROOT / ".env").read_text().splitlines() if "_PORT=" in line]
PROFILES = ("monitoring", "tools")
RECEIVERS = {
    "lumberjack": 5044, "forward": 24224, "courier": 5043, "logjam": 9604, "segment": 12345, "otlp": 4318, "relp": 2514,
    "syslog": 5514,
}  # fmt: skip


LANDING = 900.0
"""Seconds; not a guess about speed: it ends at once when all is there, and a starved machine took two minutes for a batch."""


class Project:
    """The compose file, run beside whatever else runs on this machine."""

    def __init__(self) -> None:
        self.name = f"headrace-test-{uuid.uuid4().hex[:8]}"
        ports: set[int] = set()
        while len(ports) < len(PORTS):
            ports.add(free_port())
        self.ports = dict(zip(PORTS, sorted(ports), strict=True))
        given = {"HEADRACE_TAG": TAG, "LAKE_TRIGGER": "1", "COMPOSE_PROJECT_NAME": self.name}
        self.environment = {**os.environ, **given, **{name: str(port) for name, port in self.ports.items()}}

    def compose(self, *arguments: str, timeout: float = 1200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "compose", *arguments],
            cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    def does(self, *arguments: str) -> str:
        """As `compose`, and it must not fail."""
        done = self.compose(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr + self.compose("logs", "--tail", "40").stdout
        return done.stdout

    def query(self, sql: str) -> list[dict[str, Any]]:
        return json.loads(self.does("run", "--rm", "-T", "tools", "query", "--json", sql))

    def landed(self) -> float:
        """How many rows of events the landing job says that it has landed; a look costs less than a query in a container."""
        with urllib.request.urlopen(f"http://{HOST}:{self.ports['LAKE_OPS_PORT']}/metrics", timeout=120) as answer:
            text = answer.read().decode()
        return float(re.findall(r"^headrace_lake_events_total (\S+)$", text, re.MULTILINE)[0])

    def left(self) -> list[str]:
        """What Docker still has of it."""
        label = f"label=com.docker.compose.project={self.name}"
        found = []
        for kind in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
            command = ["docker", *kind, "--quiet", "--filter", label]
            found += subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return found


@pytest.mark.requires("compose")
@pytest.mark.parametrize("profiles", [(), PROFILES], ids=lambda names: "-".join(names) or "none")
def test_the_file_is_sound_with_every_profile(profiles: tuple[str, ...]) -> None:
    chosen = [word for profile in profiles for word in ("--profile", profile)]
    document = json.loads(Project().does(*chosen, "config", "--format", "json"))
    published = [
        (port["published"], port["protocol"])
        for service in document["services"].values()
        for port in service.get("ports", [])
    ]
    assert len(set(published)) == len(published), "two services publish the same port"
    writers = [
        name
        for name, service in document["services"].items()
        for volume in service.get("volumes", [])
        if volume["source"] == "lake" and not volume.get("read_only")
    ]
    assert writers == ["lake"]
    for name, service in document["services"].items():
        for port in service.get("ports", []):
            assert port["host_ip"] == HOST, f"{name} publishes {port}"
        for bind in (volume for volume in service.get("volumes", []) if volume["type"] == "bind"):
            assert os.path.exists(bind["source"]), f"{name} mounts {bind['source']}"
        if service["image"].startswith("headrace-"):
            assert service["read_only"], name
            assert service["cap_drop"] == ["ALL"], name


@pytest.mark.requires("compose")
@pytest.mark.parametrize("name", ["BIND", "FORWARD_PORT", "HEADRACE_TAG", "LIVE_HOSTS"])
def test_a_variable_without_a_value_is_refused(name: str) -> None:
    """An empty BIND would publish every port on every address, an empty port on a random one."""
    project = Project()
    project.environment[name] = ""
    done = project.compose("config", "--quiet")
    assert done.returncode != 0
    assert name in done.stderr


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """The whole stack, up; each test may stop it, none may need another before it."""
    built()
    started = Project()
    try:
        started.does("up", "--wait", "--no-build", "--quiet-pull")
        yield started
    finally:
        started.compose("down", "--volumes", "--timeout", "60")


@pytest.mark.requires("docker", "compose")
def test_each_protocol_lands_and_down_leaves_nothing(project: Project) -> None:
    count = sized(500, 500, 20_000)
    for name in CLIENTS:
        target = Target(name, HOST, int(project.ports[f"{name.upper()}_PORT"]))
        tally = asyncio.run(run(target, ShopSource(count)))
        assert tally.acknowledged == count, tally
    targets = [f"{name}={name}:{RECEIVERS[name]}" for name in CLIENTS]
    told = project.does("run", "--rm", "-T", "tools", "smoke", *targets)
    assert told.count("on headrace.events") == len(CLIENTS)
    wanted = dict.fromkeys(CLIENTS, (count + 1, count + 1))

    wait_for(lambda: project.landed() >= len(CLIENTS) * (count + 1), "everything has landed", LANDING)
    sql = "select protocol, count(*) as n, count(distinct event_id) as ids from events group by all"
    assert {row["protocol"]: (row["n"], row["ids"]) for row in project.query(sql)} == wanted
    assert project.query("select count(*) as n from quarantine") == [{"n": 0}]
    project.does("run", "--rm", "-T", "tools", "query", "--named", "exactly-once")

    project.does("stop")
    ended = json.loads("[" + ",".join(project.does("ps", "--all", "--format", "json").splitlines()) + "]")
    statuses = {entry["Service"]: entry["ExitCode"] for entry in ended}
    assert statuses == dict.fromkeys(statuses, 0) | {"kafka": statuses["kafka"]}  # a JVM ends with 143
    assert statuses.keys() == {*RECEIVERS, "kafka", "topics", "lake", "live"}

    assert project.left()
    project.does("down", "--volumes")
    assert project.left() == []
