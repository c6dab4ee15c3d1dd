"""Runs a stack: starts its processes in order, restarts dead ones, records what runs, and ends everything in order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.tasks import stops

from headrace_cli.ground import EXIT_FAILED
from headrace_cli.machine.child import Child, ChildState, delays, last_line, started
from headrace_cli.stack.reach import unreachable
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
        self._kafka = Child(stack.kafka, self._on_change) if stack.kafka is not None else None
        self._receivers = [Child(spec, self._on_change) for spec, _ in stack.receivers]
        self._lake = Child(stack.lake, self._on_change)
        self._live = Child(stack.live, self._on_change) if stack.live is not None else None
        self._addresses = {"kafka": stack.bootstrap, "lake": str(stack.state.lake), "live": stack.live_url}
        self._addresses |= {spec.name: endpoint.listen for spec, endpoint in stack.receivers}
        self._topics_made = False
        self._kafka_problem = ""
        self._ever_ready: set[str] = set()

    async def run(self) -> int:
        """Run until SIGTERM, SIGINT or SIGHUP, or until a child refuses its settings. Return the exit status."""
        loop = asyncio.get_running_loop()
        for number in stops():
            loop.add_signal_handler(number, self._on_signal)
        self._write_record()
        kafka = asyncio.ensure_future(self._kafka.run(self._stop_kafka)) if self._kafka is not None else None
        live = asyncio.ensure_future(self._live.run(self._stop)) if self._live is not None else None
        work = asyncio.ensure_future(self._run_services())
        waiting = asyncio.ensure_future(self._tell_who_starts())
        try:
            return await work
        finally:
            waiting.cancel()
            if live is not None:  # it never ends the others: it only looks
                self._stop.set()
                await live
            self._stop_kafka.set()
            if kafka is not None:
                await kafka
            self._stack.state.delete_record()

    async def _tell_who_starts(self) -> None:
        """Say now and then which processes are not ready yet: Spark takes half a minute."""
        while self._on_ready is not None and not self._stop.is_set():
            await self._sleep(max(TELL_SECONDS, time.monotonic() - self._started_at))
            names = [child.spec.name for child in self._children if child.state is ChildState.STARTING]
            if names and self._on_ready is not None and not self._stop.is_set():
                took = time.monotonic() - self._started_at
                self._report("stack", "note", f"waiting for {', '.join(names)} ({took:.0f} s)")

    def _on_signal(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._report("stack", "note", "stopping: receivers first, they acknowledge what they have taken")
            return
        self._report("stack", "bad", "second signal: ending everything at once")
        for child in self._children:
            child.kill()

    async def _run_services(self) -> int:
        status = await self._make_topics()
        if status != 0 or self._stop.is_set():
            return status
        children = [*self._receivers, self._lake]
        running = {asyncio.ensure_future(child.run(self._stop)) for child in children}
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()  # one child may have refused its settings: then the stack is incomplete and ends
        await asyncio.wait(running)  # for all of them, before the first exception is raised
        for task in running:
            task.result()
        return EXIT_CONFIG if any(child.settings_refused for child in children) else 0

    async def _make_topics(self) -> int:
        """Run the module that makes the topics until it succeeds. Return 0, or 78 when its settings are wrong."""
        pauses = delays()
        while not self._stop.is_set():
            if self._kafka is None and await self._cannot_reach_kafka():
                await self._sleep(next(pauses))
            elif self._kafka is None or self._kafka.state is ChildState.READY:
                status = await self._run_topics()
                if status == 0:
                    self._topics_made = True
                    self._report("topics", "good", "made or checked")
                    self._write_record()
                    return 0
                if self._stop.is_set():
                    break
                self._report("topics", "bad", last_line(self._stack.state.log("topics")) or f"status {status}")
                if status == EXIT_CONFIG:
                    return EXIT_CONFIG
                await self._sleep(next(pauses))
            else:
                await self._sleep(0.1)
        return 0

    async def _cannot_reach_kafka(self) -> bool:
        """Return whether the user's own brokers cannot be reached; say why, once for each reason."""
        problem = await unreachable(self._stack.bootstrap) or ""
        if problem != self._kafka_problem:
            self._kafka_problem = problem
            self._report(
                "kafka", "bad" if problem else "good", f"{problem}: check --kafka; trying again" if problem else "there"
            )
            self._write_record()
        return bool(problem)

    async def _run_topics(self) -> int:
        command, variables = self._stack.topics
        log = self._stack.state.log("topics")
        log.unlink(missing_ok=True)
        process = await started(command, {**os.environ, **variables}, log)
        ended = asyncio.ensure_future(process.wait())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            process.kill()
        status = await ended
        return status if status >= 0 else EXIT_FAILED

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _on_change(self, child: Child, detail: str) -> None:
        name = child.spec.name
        if not self._stop.is_set():
            if child.state is ChildState.READY:
                text = f"ready on {self._addresses[name]}"
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
        live = [self._live] if self._live is not None and not self._live.settings_refused else []
        return [*([self._kafka] if self._kafka else []), *self._receivers, self._lake, *live]

    def _write_record(self) -> None:
        with suppress(OSError):  # a full disk must not end the stack; the record stays stale for a while
            self._stack.state.write_record(self._as_record())

    def _as_record(self) -> dict[str, Any]:
        stack, state = self._stack, self._stack.state
        return {
            "state": str(state.path),
            "supervisor_pid": os.getpid(),
            "ready": self.ready,
            "kafka": stack.bootstrap,
            "kafka_problem": self._kafka_problem,
            "kafka_child": _child_record(self._kafka) if self._kafka is not None else None,
            "services": {
                child.spec.name: {**_child_record(child), **asdict(endpoint)}
                for child, (_, endpoint) in zip(self._receivers, stack.receivers, strict=True)
            },
            "lake": str(state.lake),
            "lake_child": _child_record(self._lake),
            "lake_ops": stack.lake_ops,
            "live": stack.live_url,
            "live_child": _child_record(self._live) if self._live is not None else None,
            "checkpoint": str(state.checkpoint),
        }


def _child_record(child: Child) -> dict[str, Any]:
    return {"state": child.state.value, "pid": child.pid, "created": child.created, "restarts": child.restarts}
