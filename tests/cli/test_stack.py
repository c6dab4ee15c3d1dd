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
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from headrace_cli.__main__ import app, verb
from headrace_cli.ground import CommandError
from headrace_cli.machine.ports import free_port, holder, is_taken
from headrace_cli.stack import stack as planning
from headrace_cli.stack.broker import SEGMENT_BYTES
from headrace_cli.stack.stack import (
    CONTROLLER_PORT,
    KAFKA_PORT,
    LAKE_OPS_PORT,
    MOST_PROCESSES,
    OPS_STEP,
    RETENTION_BYTES,
    SERVICES,
    StackOptions,
    _kafka_disk_bytes,
    _PortAllocator,
    plan,
)
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs.up import _arguments
from headrace_cli.wire.target import parse_address
from headrace_common.operations.settings import environment
from typer.testing import CliRunner

from tests.cli.standin import headrace
from tests.contract.processes import gone
from tests.contract.stopping import stopped
from tests.contract.waiting import there, wait_for
from tests.lake.lander import QUICK, landed
from tests.test_docs import WRITTEN, commands

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
        return "--last" in words
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


def sends(state: StateFolder, events: int) -> None:
    lines = "".join(f"line {number}\n" for number in range(events))
    done = headrace("send", "forward", "--state", str(state.path), lines=lines)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
class TestRunning:
    """The tests follow a stack's life, in this order; the last one ends it."""

    def test_events_arrive_in_the_lake(self, state: StateFolder) -> None:
        wait_for(lambda: status(state)["services"]["forward"]["state"] == "ready", "being ready")
        told = status(state)
        assert told["lake"] == str(state.path / "lake")
        assert psutil.Process(told["lake_jvm_pid"]).name() == "java"
        sends(state, 500)
        wait_for(lambda: landed(state.lake) >= 500, "landing", LANDING)
        assert rows(state, "select count(distinct event_id) as n from events") == [{"n": 500}]
        proof = ("query", "--named", "exactly-once", "--state", str(state.path))
        wait_for(lambda: headrace(*proof).returncode == 0, "the batch's end", LANDING)

    def test_the_live_page_shows_it_and_follows_an_event_to_its_row(self, state: StateFolder) -> None:
        record = state.read_record()

        def asked(path: str) -> dict[str, Any]:
            with urllib.request.urlopen(record["live"] + path, timeout=120) as answer:
                return json.load(answer)

        wait_for(lambda: len(asked("state.json").get("receivers", ())) == len(SERVICES), "the receivers", LANDING)
        wait_for(
            lambda: asked("state.json")["tables"]["rows"] == {"events": 500, "quarantine": 0}, "the tables", LANDING
        )
        (row,) = rows(state, """select event_id, topic, "partition", "offset" from events limit 1""")
        way = asked(f"follow?id={row['event_id']}")
        for name in ("topic", "partition", "offset"):
            assert way["record"][name] == way["row"][name] == row[name]
        assert way["row"]["table"] == "events"
        assert way["row"]["batch"] is not None
        newest = asked("follow?id=newest")
        assert (newest["row"] or {}).get("offset") == newest["record"]["offset"]
        with stopped(record["kafka_child"]["pid"]):
            wait_for(lambda: asked("state.json")["verdict"]["level"] == "bad", "the outage")
        wait_for(lambda: asked("state.json")["verdict"]["level"] != "bad", "its end")

    def test_the_commands_of_the_pages_run_as_they_stand(
        self, state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that ask a stack. Others start, send or wait, or have names of the reader's own: see their verbs' tests."""
        asked = dict.fromkeys(tuple(words) for path in WRITTEN for words in commands(path) if _asks(words))
        assert len(asked) > 10
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HEADRACE_STATE", str(state.path))
        for name, value in environment("kafka", bootstrap_servers=state.read_record()["kafka"]).items():
            monkeypatch.setenv(name, value)
        for words in asked:
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, (words, done.output, done.exception)
        assert (tmp_path / "today.parquet").stat().st_size > 0

    def test_the_live_pages_end_ends_nothing_else(self, state: StateFolder) -> None:
        child = state.read_record()["live_child"]
        os.kill(child["pid"], signal.SIGKILL)
        wait_for(lambda: state.read_record()["live_child"]["pid"] not in (None, child["pid"]), "another pid", LANDING)
        wait_for(lambda: state.read_record()["ready"], "being ready again", LANDING)
        assert state.read_record()["services"]["forward"]["restarts"] == 0

    async def test_the_embedded_kafka_is_capped(self, state: StateFolder) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=state.read_record()["kafka"])
        await admin.start()
        try:
            for topic, partitions in (("headrace.events", 4), ("headrace.quarantine", 3)):
                (described,) = await admin.describe_topics([topic])
                assert len(described["partitions"]) == partitions
                (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
                settings = {entry[0]: entry[1] for entry in response.resources[0][4]}
                assert settings["retention.bytes"] == str(RETENTION_BYTES)
                assert settings["segment.bytes"] == str(SEGMENT_BYTES)
        finally:
            await admin.close()

    @pytest.mark.parametrize("name", ["forward", "kafka"])
    def test_a_killed_process_comes_back(self, state: StateFolder, name: str) -> None:
        def pid() -> int | None:
            record = state.read_record()
            child = record["kafka_child"] if name == "kafka" else record["services"][name]
            return child["pid"]

        before = pid()
        os.kill(there(before), signal.SIGKILL)
        wait_for(lambda: pid() not in (None, before), "another pid", LANDING)
        wait_for(lambda: state.read_record()["ready"], "being ready again", LANDING)
        sends(state, 100)

    def test_nothing_is_left_after_the_supervisor_was_killed(self, state: StateFolder) -> None:
        told = status(state)
        pids = [told["kafka_pid"], told["lake_pid"], told["lake_jvm_pid"], told["services"]["forward"]["pid"]]
        assert set(pids) <= {process.pid for process in state.processes()}
        os.kill(told["supervisor_pid"], signal.SIGKILL)
        assert headrace("down", "--state", str(state.path)).returncode == 0
        assert gone(pids)
        assert state.processes() == []

    def test_it_goes_on_where_it_was(self, state: StateFolder) -> None:
        done = headrace("up", "--any-port", "--detach", "--state", str(state.path), **QUICK)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: landed(state.lake) >= 700, "landing", LANDING)
        count = "select count(*) as n, count(distinct event_id) as ids from events"
        assert rows(state, count) == [{"n": 700, "ids": 700}]
        assert headrace("down", "--state", str(state.path)).returncode == 0
        assert headrace("status", "--state", str(state.path)).returncode == 3


def test_the_disk_that_kafka_takes_is_reckoned_with_units() -> None:
    name = "HEADRACE_TOPICS__RETENTION_BYTES"
    assert _kafka_disk_bytes({name: "1MiB"}) == _kafka_disk_bytes({name: "1048576"})


class TestPorts:
    def test_a_taken_port_is_named_with_its_holder(self) -> None:
        port = free_port()  # nobody else takes it meanwhile
        with socket.create_server(("127.0.0.1", port)):
            assert is_taken("127.0.0.1", port)
            assert holder(port) == f"{psutil.Process().name()} (pid {os.getpid()})"
            ports = _PortAllocator(StackOptions())
            with pytest.raises(CommandError, match=rf"^Port {port}, forward, is taken by .* \(pid {os.getpid()}\)"):
                ports.take("forward", port, "127.0.0.1")
            assert _PortAllocator(StackOptions(any_port=True)).take("forward", port, "127.0.0.1") != port
        assert not is_taken("127.0.0.1", port)
        assert ports.take("forward", port, "127.0.0.1") == port

    def test_two_receivers_with_one_port_are_named_before_anything_starts(self) -> None:
        ports, free = _PortAllocator(StackOptions()), free_port()
        ports.take("parcel", free, "127.0.0.1")
        with pytest.raises(CommandError, match=r"parcel.*twin"):
            ports.take("twin", free, "127.0.0.1")

    def test_the_live_page_takes_another_port_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        taken = free_port()  # nobody else takes it meanwhile
        with socket.create_server(("127.0.0.1", taken)):
            monkeypatch.setattr(planning, "LIVE_PORT", taken)
            port, notes = _PortAllocator(StackOptions()).take_live()
            assert port != taken
            ((name, text),) = notes
            assert name == "live"
            assert text.startswith(f"port {taken} is taken by ")
        assert _PortAllocator(StackOptions()).take_live() == (taken, [])

    @pytest.mark.parametrize("any_port", [False, True])
    @pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "::1%nowhere"])
    def test_an_address_that_is_not_this_machines(self, host: str, any_port: bool) -> None:
        with pytest.raises(CommandError, match=f"^Nothing can listen on {host}: "):
            _PortAllocator(StackOptions(any_port=any_port)).take("forward", 0, host)

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
    def test_all_addresses_are_those_of_both_families(self) -> None:
        port = free_port("::")
        assert not is_taken("::", port)
        with socket.create_server(("127.0.0.1", port)):
            assert is_taken("::", port)
            assert not is_taken("::1", port)

    def test_the_next_start_takes_the_same_free_ports_unless_somebody_has_one_now(self, tmp_path: Path) -> None:
        state = StateFolder(tmp_path / "state")
        state.make()
        first = _PortAllocator(StackOptions(any_port=True), state.read_ports())
        one, two = first.take("a", 1, "127.0.0.1"), first.take("a", 2, "127.0.0.1")
        state.write_ports(first.chosen)
        with socket.create_server(("127.0.0.1", one)):
            second = _PortAllocator(StackOptions(any_port=True), state.read_ports())
            assert second.take("a", 2, "127.0.0.1") == two
            assert second.take("a", 1, "127.0.0.1") not in (one, two)

    @pytest.mark.parametrize("text", ["", "[]", '{"a 1": "x"}', '{"a 1": 0}', '{"a 1": 65536}', '{"a 1": true}'])
    def test_a_damaged_note_of_ports_is_as_none(self, tmp_path: Path, text: str) -> None:
        state = StateFolder(tmp_path / "state")
        state.make()
        (state.path / "run" / "ports.json").write_text(text)
        assert state.read_ports() == {}

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be held for another process")
    def test_a_free_port_is_for_its_listeners_until_this_process_ends(self) -> None:
        port = free_port()
        assert not is_taken("127.0.0.1", port)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))  # as the system does for an outgoing connection, and for port 0
        with socket.create_server(("127.0.0.1", port), reuse_port=True) as server:
            with socket.create_server(("127.0.0.1", port), reuse_port=True):
                pass  # processes of one receiver
            server.settimeout(60)
            with socket.create_connection(("127.0.0.1", port)):
                server.accept()[0].close()
        with socket.create_server(("127.0.0.1", port)):
            pass  # the next, while connections of the last one still end
        assert free_port("127.0.0.1", port) == port  # an earlier start's choice, whose connections still end


class TestOptions:
    def test_without_the_live_page(self, tmp_path: Path) -> None:
        stack = plan(StateFolder(tmp_path / "state"), StackOptions(kafka="127.0.0.1:1", any_port=True, live=False))
        assert (stack.live, stack.live_url) == (None, "")
        stack = plan(StateFolder(tmp_path / "state"), StackOptions(kafka="127.0.0.1:1", any_port=True))
        assert there(stack.live).command[-1] == stack.live_url.rpartition(":")[2].rstrip("/")

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
    def test_addresses_of_ipv6_are_in_brackets(self, tmp_path: Path) -> None:
        stack = plan(StateFolder(tmp_path / "state"), StackOptions(kafka="127.0.0.1:1", any_port=True, host="::"))
        for spec, endpoint in stack.receivers:
            assert spec.environment["HEADRACE_LISTEN__HOST"] == "::"
            assert re.fullmatch(r"\[::\]:\d+", endpoint.listen)
            assert parse_address(endpoint.listen)[0] == "::"

    @pytest.fixture(autouse=True)
    def nothing_fetched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(planning, "jars", lambda *_: tmp_path)
        monkeypatch.setattr(planning, "java_home", lambda: tmp_path)

    def test_the_landing_job_gets_no_other_spark(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_HOME", "/theirs")
        stack = plan(StateFolder(tmp_path / "state"), StackOptions(kafka="127.0.0.1:1", any_port=True))
        assert "SPARK_HOME" in stack.lake.without

    def test_several_processes_of_a_receiver_share_its_port_and_nothing_else(self, tmp_path: Path) -> None:
        stack = plan(StateFolder(tmp_path / "state"), StackOptions(kafka="127.0.0.1:1", any_port=True, processes=3))
        names = [spec.name for spec, _ in stack.receivers]
        assert {"forward", "forward-2", "forward-3"} <= set(names)
        assert [name for name in names if name.startswith("logjam")] == ["logjam"]
        assert len({endpoint.ops for _, endpoint in stack.receivers}) == len(names)
        assert len({spec.log for spec, _ in stack.receivers}) == len(names)
        assert len({endpoint.listen for _, endpoint in stack.receivers[:3]}) == 1
        shared = {spec.name for spec, _ in stack.receivers if "HEADRACE_LISTEN__REUSE_PORT" in spec.environment}
        assert shared == set(names) - {"logjam"}

    def test_ports_of_several_processes_are_distinct(self) -> None:
        ports = [service.ops_port + OPS_STEP * number for service in SERVICES for number in range(MOST_PROCESSES)]
        ports += [listener.port for service in SERVICES for listener in service.listeners]
        ports += [KAFKA_PORT, CONTROLLER_PORT, LAKE_OPS_PORT]
        assert len(set(ports)) == len(ports)


@pytest.mark.parametrize(
    "options",
    [
        StackOptions(),
        StackOptions("h:1", ("forward", "courier"), True, "0.0.0.0", True, 3, True, True),
        StackOptions(live=False),
    ],
)
def test_a_detached_stack_has_the_options_of_its_start(options: StackOptions) -> None:
    given = verb("up").make_context("up", _arguments(options)).params
    wanted = {**vars(options), "services": ",".join(options.services)}
    assert {name: given[name] for name in wanted} == wanted
