"""The supervisor as a process, over stand-in services. Signals from outside end the processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.machine import child
from headrace_cli.stack import reach
from headrace_cli.stack.reach import unreachable
from headrace_cli.stack.state import StateFolder
from headrace_common.operations.tasks import stops

from tests.cli import standin
from tests.cli.standin import PATH, TOLD, headrace, heeds_interrupts
from tests.contract.processes import below, gone
from tests.contract.waiting import PATIENCE, until, wait_for


class Run:
    """One supervisor and its state folder."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], shown: int | None = None) -> None:
        """`shown`: where it prints, instead of a file."""
        self.state = StateFolder(folder)
        self.output = folder.with_name("output")
        with self.output.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, standin.__file__, "supervise", str(folder), *kinds],
                stdout=file if shown is None else shown,
                stderr=file if shown is None else shown,
                env={**os.environ, "PYTHONPATH": PATH, TOLD: str(self.output)},
                start_new_session=True,
                preexec_fn=heeds_interrupts,
            )

    def until_ready(self) -> None:
        wait_for(lambda: "ALL READY" in self.said(), "being ready")

    def service(self, name: str) -> dict[str, Any]:
        return dict(self.state.what_runs()["services"][name])

    def said(self) -> str:
        return self.output.read_text()

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
        for pid in each.pids() if each.process.poll() is None else ():
            os.kill(pid, signal.SIGKILL)
        each.process.kill()
        each.process.wait()


def test_status_has_what_runs(run: Start) -> None:
    stack = run("well")
    done = stack.headrace("status", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ready"], told["supervisor_pid"]) == (True, stack.process.pid)
    service = told["services"]["well0"]
    assert list(service) == ["state", "pid", "restarts", "address", "listeners", "ops"]
    assert (service["state"], service["restarts"]) == ("ready", 0)
    assert not gone([service["pid"]])
    shown = stack.headrace("status").stdout
    assert {"well0", "ready", service["address"], str(service["pid"])} <= set(shown.split())


def test_a_start_that_takes_long_says_what_it_waits_for_and_why(run: Start) -> None:
    stack = run("well", "slow")
    assert re.search(r"stack +waiting for (?:.*, )?slow1 \((?:no answer|it starts)\).*, \d+ s$", stack.said(), re.M)
    after = stack.said().count("waiting for")
    time.sleep(0.5)
    assert stack.said().count("waiting for") == after, "all are ready"


def test_a_killed_child_is_started_again_after_a_second(run: Start) -> None:
    stack = run("well")
    stack.restarted("well0")
    assert stack.service("well0")["restarts"] == 1
    assert re.search(r"well0 +killed by SIGKILL; .*; starting again in 1 s", stack.said())


@pytest.mark.long
def test_a_crash_loop_waits_one_two_four_seconds(run: Start) -> None:
    stack, begun = run("crash", "well", ready=False), [time.monotonic()]
    for count in range(1, 4):
        wait_for(lambda count=count: stack.said().count("starting again in") >= count, "a pause")
        begun.append(time.monotonic())
    assert re.findall(r"again in (\d+) s", stack.said())[:3] == ["1", "2", "4"]
    assert "exited with status 7; it went wrong" in stack.said()
    assert [
        later - earlier >= least for (earlier, later), least in zip(itertools.pairwise(begun), (0, 1, 2), strict=True)
    ]
    assert stack.service("well1")["restarts"] == 0


def test_down_stops_everything_and_frees_the_folder(run: Start) -> None:
    stack = run("well", "family")
    pids = stack.pids()
    assert len(pids) == 3  # two services, and a grandchild that ignores SIGTERM
    done = stack.headrace("down")
    assert done.returncode == 0, done.stderr
    assert stack.process.wait(PATIENCE) == 0
    wait_for(lambda: gone(pids), "their end")
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
    wait_for(lambda: stack.state.what_runs().get("ready"), "being ready")
    stack.restarted("well0")
    stack.process.send_signal(signal.SIGHUP if signal.SIGHUP in stops() else signal.SIGTERM)
    assert stack.process.wait(PATIENCE) == 0


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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_children_end_by_themselves_when_the_supervisor_is_killed_and_the_folder_is_free(run: Start) -> None:
    stack = run("well")
    pids = stack.killed()
    done = stack.headrace("status")
    assert (done.returncode, "the last run was killed" in done.stdout) == (3, True)
    wait_for(lambda: gone(pids), "their end")
    assert stack.headrace("down").returncode == 0
    stack.output.write_text("")
    run("well")


def test_a_second_supervisor_on_the_folder_is_refused(run: Start) -> None:
    stack = run("well")
    done = stack.headrace("up", "--any-port", "--kafka", "127.0.0.1:1")
    assert done.returncode == 1
    path = stack.state.path
    assert done.stderr == f"headrace: A stack already runs on {path}; `./headrace down --state {path}` stops it.\n"


def test_a_kafka_that_cannot_be_reached_is_said_at_once_until_it_can(run: Start) -> None:
    stack = run("nowhere", "well", ready=False)
    wait_for(lambda: "trying again" in stack.said(), "the reason")
    bootstrap = wait_for(lambda: stack.state.what_runs(), "the record")["kafka"]
    assert re.search(rf"!! kafka +{bootstrap} cannot be reached \(", stack.said())
    assert "topics" not in stack.said()
    assert f"Kafka: {bootstrap} cannot be reached (" in stack.headrace("status").stdout
    host, _, port = bootstrap.rpartition(":")
    with socket.create_server((host, int(port)), reuse_port=True):
        stack.until_ready()
    assert stack.said().count("trying again") == 1
    assert re.search(r"ok kafka +there", stack.said())


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
    assert "exited with status 78; HEADRACE_X__Y: there is no such setting" in stack.said()


def test_a_part_that_is_not_ready_says_why(run: Start) -> None:
    stack = run("sick", ready=False)
    why = wait_for(lambda: stack.state.what_runs().get("services", {}).get("sick0"), "the record")
    assert why["state"] == "starting"
    assert stack.headrace("down").returncode == 0


@pytest.mark.long
def test_down_with_purge_deletes(run: Start) -> None:
    stack = run("well")
    assert stack.headrace("down", "--purge").returncode == 0
    assert not stack.state.path.exists()
    assert stack.headrace("down", "--purge").returncode == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"event":"stopped","reason":"the JVM was ended by SIGKILL","service":"lake"}',
            "stopped: the JVM was ended by SIGKILL",
        ),
        ('{"event":', '{"event":'),
        ("[1]", "[1]"),
        ("7", "7"),
        (
            "java.io.IOException: No such file\n\tat java.base/x.Y.z(Y.java:1)\n\tat a.B\n\t... 18 more",
            "java.io.IOException: No such file",
        ),
    ],
)
def test_the_last_line_of_a_log_is_told_as_people_read_it(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "x.log").write_text(f"before\n{line}\n\n")
    assert child.last_line(tmp_path / "x.log") == told


async def test_a_child_gets_the_environment_but_for_what_it_must_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_HOME", "HEADRACE_OTHER"):
        monkeypatch.setenv(name, "theirs")
    says = (sys.executable, "-c", "import os; print(*sorted(os.environ))")
    log = tmp_path / "log"

    async def never() -> str:
        return "never"

    part = child.Part("x", says, {"HEADRACE_OWN": "1"}, log, never, without=("SPARK_HOME",))
    stop = asyncio.Event()
    running = asyncio.create_task(child.Child(part, lambda *_: None).run(stop))
    await until(lambda: log.exists() and "\n" in log.read_text(), "it has said so")
    stop.set()
    await running
    seen = set(log.read_text().split())
    assert {"HEADRACE_OTHER", "HEADRACE_OWN"} <= seen
    assert "SPARK_HOME" not in seen
