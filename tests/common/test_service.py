"""A process: when it is ready, what a task that ends does, and what is said of a loop that does not turn."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import socket
import subprocess
import sys

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.tasks import Tasks, own_name
from headrace_common.service import service


@pytest.mark.parametrize("may", [service.OWN_FILES + 10, resource.RLIM_INFINITY])
def test_with_too_few_open_files_it_does_not_start(monkeypatch: pytest.MonkeyPatch, may: int) -> None:
    """A silent crowd took all of them: none made way, Kafka was not reached again, and no probe was answered."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (may, may))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    service.raise_file_limit(10)
    if may != resource.RLIM_INFINITY:
        with pytest.raises(ConfigError, match="LIMITS__CONNECTIONS"):
            service.raise_file_limit(11)


async def returns() -> None:
    await asyncio.sleep(0)


async def raises() -> None:
    await asyncio.sleep(0)
    raise ValueError("a bug")


async def is_cancelled() -> None:
    await asyncio.sleep(0)
    raise asyncio.CancelledError


async def lives() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(
    ("work", "cause"), [(returns, "None"), (raises, "ValueError('a bug')"), (is_cancelled, "cancelled")]
)
async def test_one_that_ends_says_so_once_unless_the_process_stops(work: object, cause: str, stops: bool) -> None:
    ends: list[str | None] = []
    tasks = Tasks(lambda: ends.append(tasks.problem))
    tasks.start(lives(), "other")
    task = tasks.start(work(), "worker")  # type: ignore[operator]
    if stops:
        tasks.stopping()
    await asyncio.wait({task})
    await tasks.stop()
    assert ends == ([] if stops else [f"worker has ended: {cause}"])


@pytest.mark.parametrize("name", ["a" * 64, "a..b", "b\udcff", ""])
def test_a_machine_may_have_a_name_that_no_resolver_takes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Linux takes 64 letters, or any bytes: nothing started there."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert own_name().encode()


STALLS = """
import asyncio, ctypes
from types import SimpleNamespace
from headrace_common.service import service
service.STALL_LIMIT, service.STALL_LOOK = 0.05, 0.001

def in_one_call():  # it holds the interpreter's lock
    ctypes.PyDLL(None).usleep(1_000_000)

async def main():
    watch = asyncio.create_task(service.Service._watch_loop(SimpleNamespace(_stalls=[])))
    await asyncio.sleep(0.01)
    in_one_call()
    await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_the_stacks_say_where_the_loop_is() -> None:
    said = subprocess.run([sys.executable, "-c", STALLS], capture_output=True, text=True, check=True, timeout=60).stderr
    assert said.startswith("Timeout (")
    assert "in in_one_call" in said


def test_where_nobody_reads_it_stops_nothing() -> None:
    read, write = os.pipe()
    os.write(write, bytes(fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)))
    subprocess.run([sys.executable, "-c", STALLS], stderr=write, check=True, timeout=60)
    os.close(read)
    os.close(write)
