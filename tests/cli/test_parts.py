"""`headrace lake …` and `snippet`: what has the settings of the stack that runs, and what a start brings in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
import yaml
from headrace_cli import __main__ as command_line
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.operating.exposition import Labels, Scrape, Scraper
from headrace_cli.stack import stack as planning
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import lake
from headrace_cli.verbs.snippet import CLIENTS, PORTS, configuration, snippet
from headrace_cli.verbs.status import status
from headrace_lake import configuration as of_job
from headrace_lake.__main__ import parser
from typer.testing import CliRunner

Running = Callable[..., StateFolder]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Writes the record of a stack, whose supervisor is this process; its folder."""
    state = StateFolder(tmp_path / "state")
    state.make()

    def write(**record: object) -> StateFolder:
        state.write_record(record)
        return state

    with state.held():
        yield write


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What this process would become: a program with its arguments and its environment. It ends with 7."""
    monkeypatch.setattr(os, "execve", become := Mock(side_effect=SystemExit(7)))
    monkeypatch.setattr(planning, "jars", lambda name: Path("/jars"))
    monkeypatch.setattr(planning, "java_home", lambda: Path("/java"))
    monkeypatch.delenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", raising=False)
    return become


def test_every_command_of_the_job_is_a_verb() -> None:
    (known,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    assert lake.COMMANDS.keys() == known.keys() | {"mirror"}


def test_what_up_hands_on_is_what_the_job_takes() -> None:
    assert planning.ACCEPT == of_job.ACCEPT


def test_the_command_line_starts_without_what_its_verbs_need() -> None:
    late = {"aiokafka", "duckdb", "headrace_common.operations.settings", "pydantic_settings", "rich.table", "zmq"}
    said = "import sys, headrace_cli.__main__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.split()
    assert late.isdisjoint(loaded)
    assert {name for name in loaded if name.startswith("headrace_cli.")} == {
        "headrace_cli.__main__",
        "headrace_cli.ground",
    }


@pytest.mark.parametrize("name", lake.COMMANDS)
def test_help_of_a_command_needs_no_stack_and_no_spark(name: str, ran: Mock, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="7"):
        lake.run([name, "--help"], tmp_path / "none")
    program, command, _ = ran.call_args.args
    done = subprocess.run([program, "-X", "importtime", *command[1:]], capture_output=True, text=True, check=True)
    assert "usage:" in done.stdout
    assert not re.findall(r"\| +(?:pyspark|pyarrow|pydantic)$", done.stderr, re.M)


OF_ANOTHER_SPARK = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR")


@pytest.mark.parametrize(
    "arguments", [["erase", "--where", "true", "--apply"], ["replay", "--from-time", "2026-05-06"]]
)
def test_a_command_has_the_stacks_settings_and_its_spark(
    arguments: list[str], ran: Mock, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*OF_ANOTHER_SPARK, "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "/theirs")
    state = running(kafka="127.0.0.1:9", embedded=True)
    result = CliRunner().invoke(app, ["lake", arguments[0], "--state", str(state.path), *arguments[1:]])
    _, command, environment = ran.call_args.args
    assert result.exit_code == 7
    assert list(command[-len(arguments) - 1 :]) == ["headrace_lake", *arguments]
    assert environment["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"] == "127.0.0.1:9"
    assert environment["HEADRACE_KAFKA__SECURITY_PROTOCOL"] == "PLAINTEXT"
    assert environment["HEADRACE_LAKE__PATH"] == str(state.lake)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert not {*OF_ANOTHER_SPARK} & environment.keys()


def test_without_a_stack_the_environment_says_where_kafka_is(
    ran: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def environment(*arguments: str) -> dict[str, str]:
        with pytest.raises(SystemExit, match="7"):
            lake.run(arguments, tmp_path)
        return ran.call_args.args[2]

    with pytest.raises(CommandError) as raised:
        lake.run(["erase"], tmp_path)
    assert (raised.value.status, ran.called) == (3, False)
    with monkeypatch.context() as told:
        told.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", "kafka:9092")
        assert not {"HEADRACE_LAKE__PATH", "PYSPARK_PYTHON"} & environment("erase").keys()
    state = StateFolder(tmp_path)  # of a stack that does not run
    state.lake.mkdir()
    assert environment("erase")["HEADRACE_LAKE__PATH"] == str(state.lake)


def test_a_verb_of_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "find_spec", lambda _: None)
    result = CliRunner().invoke(app, ["live"])
    assert str(result.exception) == "live is of another package, which is not installed: headrace-live."


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_the_address_or_says_why_not(client: str) -> None:
    assert CLIENTS[client].parent.name in PORTS
    for trust in ("", "/etc/ca.pem"):
        text = configuration(client, "logs.example.org", 4711, trust)
        assert not re.search(r"\$(host|port|ca)\b", text)
        speaks = "logs.example.org" in text
        assert speaks or (client, trust) in {("python", "/etc/ca.pem"), ("logjam", "/etc/ca.pem"), ("logstash", "")}
        assert ("4711" in text) is speaks
        assert ("/etc/ca.pem" in text) is (speaks and bool(trust))
        if client in ("filebeat", "log-courier"):
            (told,) = yaml.safe_load(text).keys() & {"output.logstash", "network"}
            assert told


def test_the_addresses_are_the_stacks_or_the_usual_ones(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert snippet("filebeat", tmp_path) == 0
    assert "127.0.0.1:5044" in capsys.readouterr().out
    services = {"lumberjack": {"address": "127.0.0.1:6044"}, "forward": {"address": "0.0.0.0:24224"}}
    path = running(services=services).path
    assert snippet("logstash", path, "logs.example.org", "/x/ca.pem") == 0
    out = capsys.readouterr().out
    assert 'hosts => ["logs.example.org"]' in out
    assert "6044" in out
    assert "/x/ca.pem" in out
    assert snippet("fluentd", path) == 0
    assert "0.0.0.0" not in capsys.readouterr().out
    with pytest.raises(CommandError, match="runs without courier"):
        snippet("log-courier", path)


def test_status_names_the_three_busiest_sources(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = running(parts={}, supervisor_pid=os.getpid())
    sent: dict[Labels, float] = {(("source", name),): events for name, events in zip("abcd", (5, 7, 6, 4), strict=True)}
    look = AsyncMock(return_value=[Scrape("forward", "http://h:1", 0, values={"headrace_top_source_events": sent})])
    monkeypatch.setattr(Scraper, "look", look)
    assert status(state.path) == 0
    said = capsys.readouterr().out
    assert re.findall(r"forward from (\w+): (\d) events", said) == [("b", "7"), ("c", "6"), ("a", "5")]
