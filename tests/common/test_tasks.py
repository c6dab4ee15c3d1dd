"""A task that ends ends the process; while it stops, tasks may end."""

from __future__ import annotations

import asyncio
import socket

import pytest
from headrace_common.operations.tasks import Tasks, full_name, own_name


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


@pytest.mark.parametrize(
    ("work", "cause"), [(returns, "None"), (raises, "ValueError('a bug')"), (is_cancelled, "cancelled")]
)
async def test_one_that_ends_says_so_once(work: object, cause: str) -> None:
    ends: list[str | None] = []
    tasks = Tasks(lambda: ends.append(tasks.problem))
    tasks.start(lives(), "other")
    task = tasks.start(work(), "worker")  # type: ignore[operator]
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert ends == [f"worker has ended: {cause}"]
    await tasks.stop()
    assert ends == [tasks.problem]


async def test_they_may_end_while_the_process_stops() -> None:
    ends: list[str] = []
    tasks = Tasks(lambda: ends.append("ended"))
    tasks.start(lives(), "one")
    task = tasks.start(returns(), "two")
    tasks.stopping()
    await asyncio.wait({task})
    await tasks.stop()
    assert (ends, tasks.problem) == ([], None)


@pytest.mark.parametrize("name", ["a" * 64, "a..b", "b\udcff", ""])
def test_a_machine_may_have_a_name_that_no_resolver_takes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Linux takes 64 letters, or any bytes: nothing started there."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert own_name().encode()
    full_name()
