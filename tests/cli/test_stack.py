"""The whole stack as a user runs it: Kafka, the receivers and the landing job, on free ports."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.machine.ports import free_port
from headrace_cli.stack import stack as planning
from headrace_cli.stack.broker import Broker
from headrace_cli.stack.stack import RETENTION_BYTES, SERVICES, StackOptions, _Ports, plan
from headrace_cli.stack.state import StateFolder
from headrace_cli.wire.target import parse_address
from headrace_common.operations.settings import environment
from typer.testing import CliRunner

from tests.cli.standin import headrace
from tests.contract.processes import below, command, gone
from tests.contract.stopping import stopped
from tests.contract.waiting import wait_for
from tests.lake.lander import QUICK, landed
from tests.test_docs import WRITTEN, commands
from tests.test_your_own_protocol import installed

pytestmark = pytest.mark.timeout(3600)

LANDING = 900.0
"""Seconds for what waits for Spark: its start, its batch. Not a guess about speed: it ends at once when the thing is there, and
on a starved machine a start of the landing job took more than three minutes.
"""


def _asks(words: list[str]) -> bool:
    """Returns whether a command of a page ends by itself and asks nothing but the stack in HEADRACE_STATE."""
    if re.search(r"\bNAME\b|://|\bjotter\b|\.yaml\b", " ".join(words)):
        return False
    if words[0] == "tap":
        return "--no-follow" in words
    asking = ("check-loss", "quarantine", "snippet", "validate")
    return words[0] in asking or (words[0] == "query" and len(words) > 1)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateFolder]:
    """A running stack."""
    folder = StateFolder(tmp_path_factory.mktemp("stack") / "state")
    done = headrace("up", "--any-port", "--detach", "--state", str(folder.path), **QUICK)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "./headrace query --state" in done.stdout
        yield folder
    finally:
        headrace("down", "--state", str(folder.path))


def status(state: StateFolder) -> dict[str, Any]:
    done = headrace("status", "--json", "--state", str(state.path))
    assert done.returncode == 0
    return json.loads(done.stdout)


def rows(state: StateFolder, sql: str) -> list[dict[str, Any]]:
    done = headrace("query", sql, "--json", "--state", str(state.path))
    return json.loads(done.stdout) if done.returncode == 0 else []


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
class TestRunning:
    """The tests follow a stack's life, in this order; the last one ends it."""

    def test_events_arrive_in_the_lake(self, state: StateFolder) -> None:
        told = status(state)
        assert told["ready"]
        assert told["lake"] == str(state.path / "lake")
        made = ("--rate", "500", "--for", "1s", "--then-check", "--json", "--state", str(state.path))
        done = headrace("send", "otlp", *made)
        assert done.returncode == 0, done.stdout + done.stderr
        result, _, verdict = done.stdout.partition("\n")
        assert (json.loads(result)["acknowledged"], json.loads(verdict)["lost"]) == (500, False)
        assert rows(state, "select count(distinct event_id) as n from events") == [{"n": 500}]

    def test_the_live_page_shows_it(self, state: StateFolder) -> None:
        record = state.what_runs()

        def asked(path: str) -> dict[str, Any]:
            with urllib.request.urlopen(record["live"] + path, timeout=120) as answer:
                return json.load(answer)

        wait_for(lambda: len(asked("state.json").get("receivers", ())) == len(SERVICES), "the receivers", LANDING)
        wait_for(
            lambda: asked("state.json")["tables"]["rows"] == {"events": 500, "quarantine": 0}, "the tables", LANDING
        )
        with stopped(record["parts"]["kafka"]["pid"]):
            wait_for(lambda: asked("state.json")["verdict"][0]["level"] == "bad", "the outage")
        wait_for(lambda: asked("state.json")["verdict"][0]["level"] != "bad", "its end")

    def test_the_commands_of_the_pages_run_as_they_stand(
        self, state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that ask a stack. Others start, send or wait, or have names of the reader's own: see their verbs' tests."""
        asked = dict.fromkeys(tuple(words) for path in WRITTEN for words in commands(path) if _asks(words))
        assert len(asked) > 10
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HEADRACE_STATE", str(state.path))
        for name, value in environment("kafka", bootstrap_servers=state.what_runs()["kafka"]).items():
            monkeypatch.setenv(name, value)
        for words in asked:
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, (words, done.output, done.exception)

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
    def test_nothing_is_left_of_a_killed_supervisor(self, state: StateFolder, tmp_path: Path) -> None:
        """With the page's own protocol, which is installed by then."""
        told = status(state)
        pids = [process.pid for process in below(told["supervisor_pid"])]
        assert {part["pid"] for part in told["parts"].values()} <= set(pids)
        assert "java" in {psutil.Process(pid).name() for pid in pids}
        os.kill(told["supervisor_pid"], signal.SIGKILL)
        wait_for(lambda: gone(pids), "their end")
        done = headrace("status", "--state", str(state.path))
        assert (done.returncode, "the last run was killed" in done.stdout) == (3, True)
        own = {"PYTHONPATH": installed(tmp_path)["PYTHONPATH"]}
        up = ("up", "--services", "jotter", "--no-live", "--any-port", "--detach", "--state", str(state.path))
        done = headrace(*up, **QUICK, **own)
        assert done.returncode == 0, done.stdout + done.stderr
        sending = ("send", "jotter", "--rate", "100", "--for", "1s", "--json", "--state", str(state.path))
        told = json.loads(headrace(*sending, **own).stdout)
        assert told["sent"] == told["acknowledged"] > 0
        wait_for(lambda: landed(state.lake) >= 500 + told["sent"], "landing", LANDING)
        count = "select protocol, count(*) as n, count(distinct event_id) as ids from events group by all order by all"
        found = [tuple(row.values()) for row in rows(state, count)]
        assert found == [("jotter", told["sent"], told["sent"]), ("otlp", 500, 500)]
        assert headrace("down", "--state", str(state.path)).returncode == 0
        assert headrace("status", "--state", str(state.path)).returncode == 3


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_port_that_cannot_be_taken_is_named() -> None:
    port = free_port()  # nobody else takes it meanwhile
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(CommandError, match=rf"^Port {port}, forward, is taken: "):
            _Ports(False).take("forward", port, "127.0.0.1")
        assert _Ports(True).take("forward", port, "127.0.0.1") != port
        assert free_port("::", port) != port, "all addresses are those of both families"
        assert free_port("::1", port) == port
    ports = _Ports(False)
    ports.take("forward", port, "127.0.0.1")
    with pytest.raises(CommandError, match=r"forward and twin"):
        ports.take("twin", port, "127.0.0.1")
    for host in ("192.0.2.1", "2001:db8::1", "::1%nowhere"):
        with pytest.raises(CommandError, match=f"^Nothing can listen on {host}: "):
            _Ports(True).take("forward", 0, host)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be held for another process")
def test_a_free_port_is_its_listeners_until_this_process_ends() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))  # as the system does for an outgoing connection, and for port 0
    with (
        socket.create_server(("127.0.0.1", port), reuse_port=True),
        socket.create_server(("127.0.0.1", port), reuse_port=True),  # processes of one receiver
    ):
        pass
    assert free_port("127.0.0.1", port) == port  # an earlier start's choice


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_what_a_plan_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "jars", lambda *_: tmp_path)
    monkeypatch.setattr(planning, "java_home", lambda: tmp_path)
    monkeypatch.setenv("SPARK_HOME", "/theirs")
    monkeypatch.setenv("HEADRACE_LIMITS__DRAIN_TIME", "2m")
    options = StackOptions(kafka="127.0.0.1:1", any_port=True, host="::", accept_loss=True)
    *receivers, lake, live = plan(StateFolder(tmp_path), options).parts
    assert [part.name for part in receivers] == [service.name for service in SERVICES]
    for part in receivers:
        assert part.variables["HEADRACE_LISTEN__HOST"] == "::"
        assert re.fullmatch(r"\[::\]:\d+", part.address)
        assert parse_address(part.address)[0] == "::"
        assert part.grace >= 120 + 10
    assert (lake.name, lake.command[-1], "SPARK_HOME" in lake.without) == ("lake", "--accept-loss", True)
    assert (live.name, lake.early, live.early) == ("live", True, False)
    monkeypatch.setattr(Broker, "prepare", lambda _: None)
    monkeypatch.setattr(Broker, "command", lambda _: ["kafka"])
    own = plan(StateFolder(tmp_path), replace(options, kafka=None))
    assert own.topics.variables["HEADRACE_TOPICS__RETENTION_BYTES"] == str(RETENTION_BYTES), "it is capped"
    assert own.kafka is not None
    assert own.stop_seconds() >= max(part.grace for part in own.parts) + own.kafka.grace
    assert plan(StateFolder(tmp_path), replace(options, live=False)).parts[-1].name == "lake"
    monkeypatch.setattr(planning, "LIVE_MODULE", "headrace_nowhere")
    assert plan(StateFolder(tmp_path), options).parts[-1].name == "lake"


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_demo_finds_all_in_the_lake_and_leaves_nothing(tmp_path: Path) -> None:
    done = headrace("demo", "--events", "2000", **QUICK, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line]
    assert [words[-1] for words in told if words[0] in ("sent", "acknowledged")] == ["2,000"] * 2
    assert [words[4] for words in told if words[:4] == ["ok", "lake", "2,000", "of"]] == ["2,000"]
    assert [process for process in psutil.process_iter() if str(tmp_path) in " ".join(command(process))] == []
    assert list(tmp_path.glob("headrace-*")) == []
