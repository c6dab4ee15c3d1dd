"""A process: when it is ready, what a task that ends does, and what is said of a loop that does not turn."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys

import pytest
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.tasks import Tasks
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


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(
    ("error", "cause"),
    [(None, "None"), (ValueError("a bug"), "ValueError('a bug')"), (asyncio.CancelledError(), "cancelled")],
)
async def test_one_that_ends_says_so_once_unless_the_process_stops(
    error: BaseException | None, cause: str, stops: bool
) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        if error is not None:
            raise error

    ends: list[str | None] = []
    tasks = Tasks(lambda: ends.append(tasks.problem))
    tasks.start(asyncio.sleep(3600), "other")
    task = tasks.start(work(), "worker")
    if stops:
        tasks.stopping = True
    await asyncio.wait({task})
    await tasks.stop()
    assert ends == ([] if stops else [f"worker has ended: {cause}"])


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
