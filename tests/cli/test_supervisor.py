"""The supervisor as a process, over stand-in services. Signals from outside end the processes."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.machine import child, filelock
from headrace_cli.stack import reach
from headrace_cli.stack.reach import unreachable
from headrace_cli.stack.state import STACK_VARIABLE, StateFolder
from headrace_common.operations.tasks import stops

from tests.cli import standin
from tests.cli.standin import PATH, headrace, heeds_interrupts
from tests.contract.processes import below, gone
from tests.contract.waiting import PATIENCE, until, wait_for


class Run:
    """One supervisor and its state folder."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], shown: int | None = None) -> None:
        """`shown`: where it prints, instead of a file."""
        self.state = StateFolder(folder)
        self.output = folder.with_name("output")
        with self.output.open("wb") as file:
            output = file if shown is None else shown
            self.process = subprocess.Popen(
                [sys.executable, standin.__file__, "supervise", str(folder), *kinds],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": PATH},
                start_new_session=True,
                preexec_fn=heeds_interrupts,
            )

    def until_ready(self) -> None:
        wait_for(lambda: b"ALL READY" in self.output.read_bytes(), "being ready")

    def service(self, name: str) -> dict[str, Any]:
        return self.state.read_record()["services"][name]

    def said(self) -> str:
        log = self.state.log("supervisor")
        return log.read_text() if log.exists() else ""

    def pids(self) -> list[int]:
        """Return the pids of everything that the supervisor has started, as seen from outside."""
        return [process.pid for process in below(self.process.pid)]

    def restarted(self, name: str) -> None:
        """Kills a service, which comes back."""
        before = self.service(name)["pid"]
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: self.service(name)["pid"] not in (None, before), "another pid")
        wait_for(lambda: self.service(name)["state"] == "ready", "ready again")

    def killed(self) -> list[int]:
        """Kills the supervisor; the pids of all that it had started."""
        pids = self.pids()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return pids

    def headrace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return headrace(*arguments, "--state", str(self.state.path))


Start = Callable[..., Run]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Start]:
    """Starts a supervisor over stand-ins of these kinds."""
    runs = []

    def start(*kinds: str, shown: int | None = None, ready: bool = True) -> Run:
        runs.append(Run(tmp_path / "state", kinds, shown))
        if ready:
            runs[-1].until_ready()
        return runs[-1]

    yield start
    for each in runs:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        each.state.end_processes()


def test_status_json_has_exactly_the_keys_of_the_contract(run: Start) -> None:
    stack = run("well")

    def ready() -> dict[str, Any] | None:
        done = stack.headrace("status", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        service = found["services"]["well0"]
        return found if service["state"] == "ready" and service["native"] else None

    told = wait_for(ready, "being ready and saying so: on a busy machine an answer may come late")
    assert list(told) == [
        "state", "supervisor_pid", "kafka", "kafka_pid", "services", "lake", "lake_pid", "lake_jvm_pid", "lake_ops",
        "checkpoint",
    ]  # fmt: skip
    assert told["supervisor_pid"] == stack.process.pid
    assert told["state"] == str(stack.state.path)
    service = told["services"]["well0"]
    assert list(service) == ["state", "listen", "listeners", "ops", "pid", "restarts", "native"]
    assert (service["restarts"], service["native"]) == (0, "off")
    assert not gone([service["pid"]])


def test_a_start_that_takes_long_says_what_it_waits_for(run: Start) -> None:
    stack = run("well", "slow")
    assert re.search(r"stack: waiting for (?:\S+ )*slow1(?:,.*)? \(\d+ s\)$", stack.said(), re.MULTILINE)
    after = stack.said().count("waiting for")
    time.sleep(0.5)
    assert stack.said().count("waiting for") == after, "all are ready"


def test_nothing_runs_is_status_3(tmp_path: Path) -> None:
    done = headrace("status", "--json", "--state", str(tmp_path / "none"))
    assert (done.returncode, json.loads(done.stdout)) == (3, {})


def test_a_killed_child_is_started_again_after_a_second(run: Start) -> None:
    stack = run("well")
    stack.restarted("well0")
    assert stack.service("well0")["restarts"] == 1
    assert "well0: killed by SIGKILL" in stack.said()
    assert "well0: starting again in 1 s" in stack.said()


@pytest.mark.long
def test_a_crash_loop_waits_one_two_four_seconds(run: Start) -> None:
    stack = run("crash", "well", ready=False)
    wait_for(lambda: stack.said().count("starting again in") >= 4, "four pauses")
    lines = stack.said().splitlines()
    assert re.findall(r"again in (\d+) s", "\n".join(lines))[:4] == ["1", "2", "4", "8"]
    assert "crash0: exited with status 7; it went wrong" in stack.said()
    died = [datetime.fromisoformat(row.split()[0]) for row in lines if "exited with status 7" in row]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(died)]
    for gap, pause in zip(gaps, (1, 2, 4), strict=False):
        assert gap >= pause - 1  # the log's times are whole seconds
    assert stack.service("well1")["restarts"] == 0


def test_down_stops_everything_and_frees_the_folder(run: Start) -> None:
    stack = run("well", "family")
    pids = stack.pids()
    assert len(pids) == 4  # two services, a grandchild that ignores SIGTERM, the landing job
    done = stack.headrace("down")
    assert done.returncode == 0, done.stderr
    assert stack.process.wait(PATIENCE) == 0
    assert gone(pids)
    assert stack.headrace("status").returncode == 3


def test_asked_twice_it_does_not_wait(run: Start) -> None:
    stack = run("patient")
    pids = stack.pids()
    stack.process.send_signal(signal.SIGINT)
    wait_for(lambda: "stopping" in stack.said())
    stack.process.send_signal(signal.SIGINT)
    stack.process.wait(PATIENCE)
    assert "ending everything at once" in stack.said()
    wait_for(lambda: gone(pids), "their end")  # it does not wait until the kernel has ended those that it killed


@pytest.mark.parametrize("made", [pty.openpty, os.pipe])
def test_it_goes_on_and_stops_in_order_though_nothing_takes_what_it_prints(
    run: Start, made: Callable[[], tuple[int, int]]
) -> None:
    """Its terminal was closed, or `head` has ended: each line failed, and so did the handler of the signal that stops it."""
    reads, writes = made()
    stack = run("well", shown=writes, ready=False)
    os.close(writes)
    os.close(reads)
    wait_for(lambda: stack.state.read_record().get("ready"), "being ready")
    stack.restarted("well0")
    stack.process.send_signal(signal.SIGHUP if signal.SIGHUP in stops() else signal.SIGTERM)
    assert stack.process.wait(PATIENCE) == 0
    assert "stack: stopping" in stack.said()


def test_a_log_stays_bounded_while_its_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LOG_BYTES", 1000)
    log = tmp_path / "x.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 1000)
        child.rotate_log(log)
        assert log.stat().st_size == 1000
        writer.write(b"b")
        child.rotate_log(log)
        assert log.stat().st_size == 0
        assert (tmp_path / "x.log.1").read_bytes() == b"a" * 999 + b"b"
        writer.write(b"c")
        assert log.read_bytes() == b"c"


@pytest.mark.parametrize(
    "kind", ["well", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("family", "stubborn"))]
)
def test_down_after_the_supervisor_was_killed_leaves_nothing(run: Start, kind: str) -> None:
    stack = run(kind)
    pids = stack.killed()
    assert stack.headrace("status").returncode == 3
    done = stack.headrace("down")
    assert done.returncode == 0, done.stderr
    assert gone(pids)
    assert stack.state.processes() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_children_end_by_themselves_when_the_supervisor_is_killed(run: Start) -> None:
    stack = run("well")
    pids = stack.killed()
    wait_for(lambda: gone(pids), "their end")


def test_a_second_supervisor_on_the_folder_is_refused(run: Start) -> None:
    stack = run("well")
    done = stack.headrace("up", "--any-port", "--kafka", "127.0.0.1:1")
    assert done.returncode == 1
    assert f"already runs on {stack.state.path} (supervisor pid {stack.process.pid})" in done.stderr
    assert f"`./headrace down --state {stack.state.path}` stops it" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_copy_of_the_folder_does_not_end_the_stack_of_the_first(tmp_path: Path) -> None:
    first, copy = StateFolder(tmp_path / "state"), StateFolder(tmp_path / "copy")
    first.make()
    sleeping = subprocess.Popen(["sleep", "60"], env={**os.environ, STACK_VARIABLE: first.name or ""})
    try:
        shutil.copytree(first.path, copy.path)
        assert copy.end_processes() == 0
        assert sleeping.poll() is None
        (tmp_path / "link").symlink_to(first.path)
        assert StateFolder(tmp_path / "link").end_processes() == 1
    finally:
        sleeping.kill()
        sleeping.wait()


def test_a_folder_that_a_full_disk_left_can_be_used_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    state = StateFolder(tmp_path / "state")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(CommandError, match="No space left"):
            state.make()
    state.make()
    assert state.name is not None


def test_two_that_look_whether_a_stack_runs_see_no_stack_in_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder(tmp_path / "state")
    state.make()
    os.close(state.lock())
    with (state.path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not state.running()
        waits = SimpleNamespace(sleep=lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
        monkeypatch.setattr(filelock, "time", waits)  # the look ends while one that starts waits for it
        lock = state.lock()
    assert state.running()
    os.close(lock)
    assert not state.running()


@pytest.mark.long
def test_a_start_after_a_killed_supervisor_takes_over(run: Start) -> None:
    first = run("stubborn")
    pids = first.killed()
    run("well")
    assert gone(pids)


def test_a_kafka_that_cannot_be_reached_is_said_at_once_until_it_can(run: Start) -> None:
    stack = run("nowhere", "well", ready=False)
    wait_for(lambda: "trying again" in stack.said(), "the reason")
    bootstrap = stack.state.read_record()["kafka"]
    assert f"!! kafka: {bootstrap} cannot be reached (" in stack.said()
    assert "topics" not in stack.said()
    status = stack.headrace("status").stdout
    assert "not reached" in status
    assert f"Kafka: {bootstrap} cannot be reached (" in status
    host, _, port = bootstrap.rpartition(":")
    with socket.create_server((host, int(port)), reuse_port=True):
        stack.until_ready()
    assert stack.said().count("trying again") == 1
    assert "ok kafka: there" in stack.said()


async def test_why_brokers_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "CONNECT_SECONDS", PATIENCE)
    assert await unreachable("no-such-host.invalid:9092") == "no-such-host.invalid does not resolve"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await unreachable(f"no-such-host.invalid:9092, 127.0.0.1:{port}") is None
    assert re.fullmatch(rf"127\.0\.0\.1:{port} cannot be reached \(.+\)", str(await unreachable(f"127.0.0.1:{port}")))


def test_refused_settings_stop_the_stack_with_78(run: Start) -> None:
    stack = run("config", "well", ready=False)
    assert stack.process.wait(PATIENCE) == 78
    assert "config0: exited with status 78; HEADRACE_X__Y: there is no such setting" in stack.said()
    assert stack.state.processes() == []


@pytest.mark.long
def test_one_that_asks_to_be_restarted_is(run: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = run("sick", ready=False)
    wait_for(lambda: stack.state.read_record().get("services", {}).get("sick0", {}).get("restarts"), "a restart")
    assert "asks to be restarted: pump stopped" in stack.said()


@pytest.mark.long
def test_down_with_purge_deletes(run: Start) -> None:
    stack = run("well")
    assert stack.headrace("down", "--purge").returncode == 0
    assert not stack.state.path.exists()
    assert stack.headrace("down", "--purge").returncode == 0


@pytest.mark.parametrize(
    ("verb", "said"), [(("down", "--purge"), "not a state folder"), (("up", "--any-port"), "is not empty")]
)
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, verb: tuple[str, str], said: str) -> None:
    (tmp_path / "precious").write_text("x")
    done = headrace(*verb, "--state", str(tmp_path))
    assert done.returncode == 1
    assert said in done.stderr
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("precious", "x")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"event":"stopped","reason":"the JVM was ended by SIGKILL","service":"lake"}',
            "stopped: the JVM was ended by SIGKILL",
        ),
        ('{"event":"kafka is not usable","problem":"no answer"}', "kafka is not usable: no answer"),
        ('{"event":', '{"event":'),
        ("[1]", "[1]"),
        ("7", "7"),
        ("Traceback", "Traceback"),
        (
            "java.io.IOException: No such file\n\tat java.base/x.Y.z(Y.java:1)\n\tat a.B\n\t... 18 more",
            "java.io.IOException: No such file",
        ),
    ],
)
def test_the_last_line_of_a_log_is_told_as_people_read_it(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "x.log").write_text(f"before\n{line}\n\n")
    assert child.last_line(tmp_path / "x.log") == told


def test_a_full_disk_is_said_whatever_the_log_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "x.log"
    log.write_text("java.io.IOExc")
    assert child.why(log) == "java.io.IOExc"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert child.why(log) == f"no space is left in {tmp_path}"


async def test_a_child_gets_the_environment_but_for_what_it_must_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEADRACE_TLS__CLIENT_CA", "HEADRACE_OTHER"):
        monkeypatch.setenv(name, "theirs")
    says = (sys.executable, "-c", "import os; print(*sorted(n for n in os.environ if n.startswith('HEADRACE_')))")

    async def unready() -> child.ProbeResult:
        return child.ProbeResult(False)

    log = tmp_path / "log"
    spec = child.ProcessSpec(
        "x", says, {"HEADRACE_OWN": "1"}, log, unready, without=("HEADRACE_TLS__CLIENT_CA", "HEADRACE_OWN")
    )
    stop = asyncio.Event()
    running = asyncio.create_task(child.Child(spec, lambda *_: None).run(stop))
    await until(lambda: log.exists() and "\n" in log.read_text(), "it has said so")
    stop.set()
    await running
    seen = set(log.read_text().split())
    assert {"HEADRACE_OTHER", "HEADRACE_OWN"} <= seen
    assert "HEADRACE_TLS__CLIENT_CA" not in seen
