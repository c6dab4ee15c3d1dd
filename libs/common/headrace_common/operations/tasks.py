"""A process: its tasks, the signals that stop it, and the name of its machine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any


class Tasks:
    """Tasks that run until the process stops. If one of them ends before that, for any reason, it calls `on_end`, once, which
    must stop the process.
    """

    def __init__(self, on_end: Callable[[], None] = lambda: None) -> None:
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = False
        """The process is stopping: tasks may end."""
        self.problem: str | None = None
        """Which task ended first, and why. None: all are running."""

    def start(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[Any]:
        """Starts a task that must not end by itself. `name`: its name in the log."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        self.stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        cause = "cancelled" if task.cancelled() else repr(task.exception())
        if self.problem is None and not self.stopping:
            self.problem = f"{task.get_name()} has ended: {cause}"
            self._on_end()


def stops() -> Iterator[signal.Signals]:
    """Yields the signals at which a process stops in order. A hang-up is one, unless it is ignored, as under nohup."""
    yield from (signal.SIGTERM, signal.SIGINT)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        yield signal.SIGHUP


def own_name() -> str:
    """Returns the name of this machine as text that can be encoded; ``localhost`` where it has none."""
    return os.fsencode(socket.gethostname()).decode(errors="replace") or "localhost"
