"""What makes no sense, or is not there, is one sentence and an exit status, as each verb is called; and nothing is made."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from inspect import isfunction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError, module, run
from headrace_common.operations.errors import EXIT_INTERRUPTED, EXIT_UNWRITTEN
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("check-loss", 4, "There are no tables"),
        ("check-loss --since soon", 2, "expected a time"),
        ("check-loss --kafka x", 2, "expected HOST:PORT"),
        ("check-loss --lake ftp://x/y", 2, "or s3://BUCKET/PATH"),
        ("conform h:1 --protocol gelf", 2, "--protocol gelf: it is one of courier, forward, lumberjack"),
        ("conform h:1", 2, "--protocol NAME: it is one of courier, forward, lumberjack"),
        ("conform h --protocol forward", 2, "expected HOST:PORT"),
        ("conform --protocol forward", 3, "Nothing runs"),
        ("conform 127.0.0.1:1 --protocol forward", 1, "refuses connections"),
        ("conform h:1 --protocol forward --hold-command true", 2, "name both"),
        ("conform h:1 --protocol forward --only version-1", 2, "--only version-1"),
        ("down --state hello", 1, "hello"),
        ("explain gelf hello", 2, "protocol gelf: it is one of courier"),
        ("explain forward missing", 2, "cannot be read"),
        ("live --url x=http://127.0.0.1:1 --lake ftp://x/y", 2, "or s3://BUCKET/PATH"),
        ("live --url a=dns://x", 2, "NAME=dns://HOST:PORT"),
        ("live --url http://x:1", 2, "expected NAME=http://HOST:PORT"),
        ("quarantine replay --reason bad", 2, "--reason bad: it is one of bad_json"),
        ("quarantine replay --protocol http", 2, "--protocol http"),
        ("quarantine replay --since soon", 2, "--since soon: expected a time"),
        ("quarantine replay --kafka x", 2, "expected HOST:PORT"),
        ("quarantine replay", 1, "There are no tables"),
        ("query 'select 1' --csv --json", 2, "name one of them"),
        ("query 'select 1' --lake s3:///x", 2, "or s3://BUCKET/PATH"),
        ("query 'select 1' --lake s3://name:hush@b/x", 2, "belong into the environment"),
        ("query 'select 1' --lake 's3://b/x?sig=hush'", 2, "belong into the environment"),
        ("query 'select 1' --lake az://c/x", 1, "Account must be specified"),
        ("query --lake /nowhere", 1, "There are no tables"),
        ("query --json", 2, "need SQL"),
        ("query 'select 1' --named schema", 2, "Give either SQL"),
        ("query --named x", 2, "--named x: it is one of exactly-once"),
        ("query --named schema --lake /nowhere", 1, "There are no tables"),
        ("send gelf", 2, "protocol gelf: it is one of courier"),
        ("send forward", 3, "Nothing runs"),
        ("send forward 127.0.0.1:1 --rate 1 --connections 3", 1, "refuses connections"),
        ("send logjam 127.0.0.1:1 --rate 1", 1, "refuses connections"),
        *((f"send forward h:1 --rate 1 --for {text}", 2, "expected how long") for text in ("0s", "5", "soon")),
        ("send forward host:99999", 2, "expected HOST:PORT"),
        ("send forward h:1 --for 2s", 2, "made up (--rate N)"),
        ("send forward h:1 --ca missing", 2, "--ca missing"),
        ("send logjam h:1 --ca system", 2, "ZeroMQ has no TLS"),
        *((f"smoke forward={target}", 2, "expected HOST:PORT") for target in ("host", ":1", "host:http")),
        ("smoke carrier=host:1", 2, "protocol carrier: it is one of courier"),
        ("snippet nginx", 2, "client nginx: it is one of"),
        ("snippet fluentbit", 2, ", pravega."),
        ("tap", 3, "Nothing runs on"),
        ("tap --state hello/below", 1, "hello/below"),
        ("tap --state loop", 1, "loop"),
        (
            "tap --protocol http",
            2,
            "--protocol http: it is one of courier, forward, logjam, lumberjack, otlp, relp, segment, syslog.",
        ),
        ("tap --kafka localhost", 2, "expected HOST:PORT"),
        ("tap --kafka no-such-host.invalid:9092", 1, "does not resolve"),
        ("tap --kafka 127.0.0.1:1", 1, "127.0.0.1:1 cannot be reached (Connection refused)."),
        ("tap --from soon", 2, "expected a time such as"),
        ("up --services forward,nonsense", 2, "--services nonsense: it is one of courier"),
        *((f"up --any-port --kafka {name}", 2, f"--kafka {name}: expected HOST:PORT") for name in ("a", "a:")),
        ("up --any-port --kafka 127.0.0.1:1", 1, "127.0.0.1:1 cannot be reached (Connection refused): check --kafka."),
        ("validate spark", 2, "part spark: it is one of"),
    ],
)
def test_wrong_input_is_one_sentence(
    command: str, status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hello").write_bytes(b"hello")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "none"))
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    result = CliRunner().invoke(app, shlex.split(command))
    assert isinstance(result.exception, CommandError), result.output
    assert result.exception.status == status
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert "hush" not in str(result.exception), "a secret"
    assert not (tmp_path / "none").exists()


HELP = (*module("headrace_cli"), "check-loss", "--help")


def failed_while_interrupted() -> None:
    try:
        raise KeyboardInterrupt
    finally:
        raise ValueError("a connection that is busy")


def left_by_a_reader() -> None:
    try:
        raise BrokenPipeError
    except BrokenPipeError:
        sys.exit(1)  # as rich and typer do


@pytest.mark.parametrize(
    ("verb", "ends", "status"),
    [
        (KeyboardInterrupt, SystemExit, EXIT_INTERRUPTED),
        (RuntimeError("Query interrupted"), SystemExit, EXIT_INTERRUPTED),  # DuckDB's
        (failed_while_interrupted, SystemExit, EXIT_INTERRUPTED),
        (left_by_a_reader, SystemExit, EXIT_UNWRITTEN),
        (SystemExit(1), SystemExit, 1),
        (ValueError("a bug"), ValueError, None),  # a fault of ours is shown
    ],
)
def test_the_status_says_what_ended_a_verb(
    verb: Any, ends: type[BaseException], status: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(ends) as end:
            run(Mock(side_effect=(lambda **_: verb()) if isfunction(verb) else verb))
    assert getattr(end.value, "code", None) == status


def test_what_cannot_be_written_is_no_finding() -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full:
        for out, said in ((full, 1), (pipe, 0)):
            done = subprocess.run(HELP, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
            assert (done.returncode, done.stderr.count("\n")) == (EXIT_UNWRITTEN, said)
    os.close(pipe)
    closed = subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "verb", *HELP], check=False)
    assert closed.returncode == 0, "closed streams are no fault"


SCRIPT = (
    "import headrace_cli.__main__ as line; from headrace_cli import console; "
    "line.app = lambda **_: exit(console.line('lake', 'good', '\\u2713 \\udcff')); line.main()"
)


def test_a_file_is_utf_8_in_any_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    told = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, env=environment, check=True).stdout
    assert "\u2713 \\udcff" in told.decode()
