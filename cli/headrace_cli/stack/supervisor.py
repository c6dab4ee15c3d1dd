"""Runs a stack: starts its processes in order, restarts dead ones, records what runs, and ends everything in order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.tasks import stops

from headrace_cli.machine.child import FIRST_DELAY, LONGEST_DELAY, Child, ChildState, end_group, last_line, started
from headrace_cli.stack.stack import Stack

Report = Callable[[str, str, str], None]
"""Called with a name, a kind ("good", "bad" or "note") and what happened."""

TELL_SECONDS: Final = 5.0
"""Seconds after which, and then whenever they have doubled, a slow start says what it waits for."""


class Supervisor:
    """The supervisor of one stack. It calls `on_ready` once, when everything is ready for the first time."""

    def __init__(self, stack: Stack, report: Report, on_ready: Callable[[], None] = lambda: None) -> None:
        self._stack = stack
        self._report = report
        self._on_ready: Callable[[], None] | None = on_ready
        self._started_at = time.monotonic()
        self._stop = asyncio.Event()
        self._stop_kafka = asyncio.Event()
        self._kafka = [Child(stack.kafka, self._on_change)] if stack.kafka is not None else []
        self._parts = [Child(part, self._on_change) for part in stack.parts]
        self._topics_made = False
        self._kafka_problem = ""
        self._ever_ready: set[str] = set()

    async def run(self) -> int:
        """Run until SIGTERM, SIGINT or SIGHUP, or until a child refuses its settings. Return the exit status."""
        loop = asyncio.get_running_loop()
        for number in stops():
            loop.add_signal_handler(number, self._on_signal)
        self._write_record()
        kafka = [asyncio.ensure_future(child.run(self._stop_kafka)) for child in self._kafka]
        telling = asyncio.ensure_future(self._tell_who_starts())
        try:
            status = await self._make_topics()
            if self._topics_made:
                status = await self._run_parts()
            return status
        finally:
            telling.cancel()
            self._stop_kafka.set()
            await asyncio.gather(*kafka)
            self._stack.state.record.unlink(missing_ok=True)

    async def _run_parts(self) -> int:
        running = {asyncio.ensure_future(child.run(self._stop)) for child in self._parts}
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()  # one child may have refused its settings: then the stack is incomplete and ends
        await asyncio.wait(running)  # for all of them, before the first exception is raised
        for task in running:
            task.result()
        return EXIT_CONFIG if any(child.settings_refused for child in self._parts) else 0

    async def _tell_who_starts(self) -> None:
        """Say now and then which processes are not ready yet, and why."""
        while self._on_ready is not None and not self._stop.is_set():
            await self._sleep(max(TELL_SECONDS, time.monotonic() - self._started_at))
            waiting = [child for child in self._children if child.state is ChildState.STARTING]
            if waiting and self._on_ready is not None and not self._stop.is_set():
                names = ", ".join(f"{child.part.name} ({child.why or 'it starts'})" for child in waiting)
                self._report("stack", "note", f"waiting for {names}, {time.monotonic() - self._started_at:.0f} s")

    def _on_signal(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._report("stack", "note", "stopping: receivers first, they acknowledge what they have taken")
            return
        self._report("stack", "bad", "second signal: ending everything at once")
        for child in self._children:
            if child.process is not None and child.pid is not None:
                end_group(child.process)

    async def _make_topics(self) -> int:
        """Run the module that makes the topics until it succeeds. Return 0, or 78 when its settings are wrong."""
        topics, delay = self._stack.topics, FIRST_DELAY
        while not self._stop.is_set():
            problem = await topics.probe()
            self._tell_kafka(problem)
            if not problem:
                topics.log.unlink(missing_ok=True)
                async with started(topics) as process:
                    await asyncio.wait(
                        {asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._stop.wait())},
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                if process.returncode == 0:
                    self._topics_made = True
                    self._report("topics", "good", "made or checked")
                    return 0
                if self._stop.is_set():
                    break
                self._report("topics", "bad", last_line(topics.log) or f"status {process.returncode}")
                if process.returncode == EXIT_CONFIG:
                    return EXIT_CONFIG
            if self._kafka and problem:
                await self._sleep(0.1)
            else:
                await self._sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY)
        return 0

    def _tell_kafka(self, problem: str) -> None:
        """Say why the user's own brokers cannot be reached, once for each reason, and that they can be again."""
        if self._kafka or problem == self._kafka_problem:
            return
        self._kafka_problem = problem
        told = f"{problem}: check --kafka; trying again" if problem else "there"
        self._report("kafka", "bad" if problem else "good", told)
        self._write_record()

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _on_change(self, child: Child, detail: str) -> None:
        name = child.part.name
        if not self._stop.is_set():
            if child.state is ChildState.READY:
                text = f"ready on {child.part.address}"
                if name not in self._ever_ready:
                    self._ever_ready.add(name)
                    text += f" ({time.monotonic() - self._started_at:.1f} s)"
                self._report(name, "good", text)
            elif child.state is ChildState.UNREADY:
                self._report(name, "bad", f"not ready: {detail}")
            elif child.state is ChildState.RESTARTING:
                self._report(name, "bad", detail)
        self._write_record()
        if self._on_ready is not None and self.ready:
            announce, self._on_ready = self._on_ready, None
            announce()

    @property
    def ready(self) -> bool:
        """Whether the topics are made and every child is ready now."""
        return self._topics_made and all(child.state is ChildState.READY for child in self._children)

    @property
    def _children(self) -> list[Child]:
        return [*self._kafka, *self._parts]

    def _write_record(self) -> None:
        with suppress(OSError):  # a full disk must not end the stack; the record stays stale for a while
            self._stack.state.write_record(self._as_record())

    def _as_record(self) -> dict[str, Any]:
        """Return what runs, which `status --json` prints. `parts` has all processes, `services` the receivers among them."""
        parts = {child.part.name: _described(child) for child in self._children}
        return {
            "state": str(self._stack.state.path),
            "supervisor_pid": os.getpid(),
            "ready": self.ready,
            "kafka": self._stack.bootstrap,
            "embedded": bool(self._kafka),
            "kafka_problem": self._kafka_problem,
            "lake": str(self._stack.state.lake),
            "checkpoint": str(self._stack.state.checkpoint),
            "live": parts["live"]["address"] if "live" in parts else "",
            "parts": parts,
            "services": {name: part for name, part in parts.items() if part["listeners"]},
        }


def _described(child: Child) -> dict[str, Any]:
    return {
        "state": child.state.value,
        "pid": child.pid,
        "restarts": child.restarts,
        "address": child.part.address,
        "listeners": dict(child.part.listeners),
        "ops": child.part.ops,
    }
