"""The supervisor as a process, over stand-in services; whose a state folder is, and whom `down` may signal."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.stack.reach import unreachable
from headrace_cli.stack.stack import lake_environment
from headrace_cli.stack.state import StateFolder
from headrace_cli.verbs import down as stopping
from headrace_common.operations.tasks import stops

from tests.cli import standin
from tests.cli.standin import PATH, headrace, heeds_interrupts
from tests.contract.processes import below, gone
from tests.contract.waiting import PATIENCE, there, wait_for


class Run:
    """One supervisor over stand-ins of these kinds, and its state folder. It prints into a file, or to `shown`."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], shown: int | None = None) -> None:
        self.state = StateFolder(folder)
        self.output = folder.with_name("output")
        with self.output.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, standin.__file__, str(folder), *kinds],
                stdout=file if shown is None else shown,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": PATH, "SPARK_HOME": "/theirs"},
                start_new_session=True,
                preexec_fn=heeds_interrupts,
            )

    def said(self) -> str:
        return self.output.read_text()

    def pids(self) -> list[int]:
        """Return the pids of everything that the supervisor has started, as seen from outside."""
        return [process.pid for process in below(self.process.pid)]

    def headrace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return headrace(*arguments, "--state", str(self.state.path))


Start = Callable[..., Run]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Start]:
    """Starts a supervisor, and waits until it is ready, unless told not to."""
    runs = []

    def start(*kinds: str, shown: int | None = None, ready: bool = True) -> Run:
        runs.append(one := Run(tmp_path / "state", kinds, shown))
        if ready:
            wait_for(lambda: "ALL READY" in one.said(), "being ready")
        return one

    yield start
    for each in runs:
        for pid in each.pids() if each.process.poll() is None else ():
            os.kill(pid, signal.SIGKILL)
        each.process.kill()
        each.process.wait()


def test_status_says_what_runs_and_down_ends_it(run: Start) -> None:
    stack = run("well", "family")
    told = json.loads(stack.headrace("status", "--json").stdout)
    assert (told["ready"], told["supervisor_pid"]) == (True, stack.process.pid)
    service = told["services"]["well0"]
    assert {"well0", "ready", service["address"], str(service["pid"])} <= set(stack.headrace("status").stdout.split())
    path = stack.state.path
    second = stack.headrace("up", "--any-port")
    said = f"headrace: A stack already runs on {path}; `./headrace down --state {path}` stops it.\n"
    assert (second.returncode, second.stderr) == (1, said)
    pids = stack.pids()
    assert service["pid"] in pids
    assert len(pids) == 3  # two services, and a grandchild that ignores SIGTERM
    done = stack.headrace("down")
    assert done.returncode == 0, done.stderr
    assert stack.process.wait(PATIENCE) == 0
    wait_for(lambda: gone(pids), "their end")
    assert stack.headrace("status").returncode == 3
    for _ in range(2):
        assert stack.headrace("down", "--purge").returncode == 0
        assert not path.exists()


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("crash", 1, "exited with status 7; it went wrong"),
        ("config", 78, "exited with status 78; HEADRACE_X__Y: there is no such setting"),
        ("family", 1, "was killed by signal 9; 127.0.0.1 - - "),
    ],
)
def test_a_part_that_ends_by_itself_ends_the_stack(run: Start, kind: str, status: int, said: str) -> None:
    stack = run("well", kind, ready=kind == "family")
    if kind == "family":
        os.kill(stack.state.what_runs()["services"]["family1"]["pid"], signal.SIGKILL)
    pids = stack.pids()
    assert stack.process.wait(PATIENCE) == status
    assert re.search(rf"!! {kind}1 +{re.escape(said)}", stack.said())
    wait_for(lambda: gone(pids), "their end")
    if kind == "crash":
        seen = set(re.findall(r"^(\w+)=", stack.state.log("crash1").read_text(), re.MULTILINE))
        assert {"HEADRACE_OWN", "PYTHONPATH"} == seen & {"HEADRACE_OWN", "PYTHONPATH", "SPARK_HOME"}


def test_asked_twice_it_does_not_wait(run: Start) -> None:
    stack = run("patient")
    pids = stack.pids()
    stack.process.send_signal(signal.SIGINT)
    wait_for(lambda: "stopping" in stack.said())
    stack.process.send_signal(signal.SIGINT)
    stack.process.wait(PATIENCE)
    assert "ending everything at once" in stack.said()
    wait_for(lambda: gone(pids), "their end")  # it does not wait until the kernel has ended those that it killed


def test_it_goes_on_though_nothing_takes_what_it_prints(run: Start) -> None:
    """Its terminal was closed, or `head` has ended: each line failed, and so did the handler of the signal that stops it."""
    reads, writes = os.pipe()
    stack = run("well", shown=writes, ready=False)
    os.close(writes)
    os.close(reads)
    wait_for(lambda: stack.state.what_runs().get("ready"), "being ready")
    stack.process.send_signal(signal.SIGHUP if signal.SIGHUP in stops() else signal.SIGTERM)
    assert stack.process.wait(PATIENCE) == 0


async def test_one_broker_that_can_be_reached_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert await unreachable(f"no-such-host.invalid:9092, 127.0.0.1:{server.getsockname()[1]}") is None


@pytest.mark.parametrize("written", ["", "-1", "0", "1", "true", "[]", str(10**12), "9" * 5000])
def test_down_signals_nobody_but_the_supervisor(tmp_path: Path, written: str) -> None:
    state = StateFolder(tmp_path / "state")
    state.make()
    with (state.path / "lock").open("w") as lock:
        lock.write(written)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CommandError, match="nothing was stopped"):
            stopping.down(state.path)


def test_who_takes_the_lock_is_the_supervisor(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    mask = os.umask(0o022)
    state.make()
    os.umask(mask)
    assert state.path.stat().st_mode & 0o777 == 0o700, "it is for its user alone"
    (state.path / "lock").write_text("999999999999")
    with state.held():
        assert there(state.supervisor()).pid == os.getpid()
        with pytest.raises(CommandError, match="already runs"), state.held():
            pass
    assert not state.running()


@pytest.mark.parametrize(
    ("name", "part"),
    [("a[b", r"\["), ("st*r", r"\*"), ("a%20b", "%20"), ("it`s", "`"), ("a\\b", r"\\"), ("a\nb", r"'\\n'")],
)
def test_a_name_that_no_reader_takes_is_refused_first(tmp_path: Path, name: str, part: str) -> None:
    with pytest.raises(CommandError, match=f"(?s)No reader could open the lake in .*whose path has no {part}"):
        StateFolder(tmp_path / name).make()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("verb", "said"), [(("down", "--purge"), "not a state folder"), (("up", "--any-port"), "is not empty")]
)
def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path, verb: tuple[str, str], said: str) -> None:
    (tmp_path / "precious").write_text("x")
    done = headrace(*verb, "--state", str(tmp_path))
    assert done.returncode == 1
    assert said in done.stderr
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("precious", "x")]


@pytest.mark.parametrize(("name", "own"), [("a b", True), ("a,b", False)])
def test_sparks_scratch_is_in_a_folder_whose_name_spark_takes(tmp_path: Path, name: str, own: bool) -> None:
    found = lake_environment(StateFolder(tmp_path / name), {}, tmp_path)
    assert ("TMPDIR" in found) is own
    assert found["LC_ALL"] == "C.UTF-8", "Java reads names of files as UTF-8, whatever the locale is"
