"""Runs a stack: starts its processes in their order, restarts what dies, records what runs, ends everything in order."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from headrace_common.errors import EXIT_CONFIG

from headrace_cli.backoff import Backoff
from headrace_cli.child import Child, Spec, State, last_line
from headrace_cli.errors import EXIT_FAILED
from headrace_cli.stack import Stack
from headrace_cli.tether import tethered

Report = Callable[[str, str, str], None]
"""Called with a name, "good", "bad" or "note", and what happened."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Of one stack. `on_ready` is called once, when everything is ready for the first time."""

    def __init__(self, stack: Stack, report: Report, on_ready: Callable[[], None] = lambda: None) -> None:
        self._stack = stack
        self._report = report
        self._on_ready: Callable[[], None] | None = on_ready
        self._begun = time.monotonic()
        self._stop = asyncio.Event()
        self._stop_kafka = asyncio.Event()
        self._kafka = self._child(stack.kafka) if stack.kafka is not None else None
        self._receivers = [self._child(spec) for spec, _ in stack.receivers]
        self._lake = self._child(stack.lake)
        self._topics_made = False
        self._ever_ready: set[str] = set()

    def _child(self, spec: Spec) -> Child:
        return Child(spec, self._changed)

    async def run(self) -> int:
        """Until SIGTERM, SIGINT or SIGHUP, or until a child refuses its settings. The exit status."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._asked_to_stop)
        self._record()
        kafka = asyncio.ensure_future(self._kafka.run(self._stop_kafka)) if self._kafka is not None else None
        work = asyncio.ensure_future(self._run_the_rest())
        try:
            return await work
        finally:
            self._stop_kafka.set()
            if kafka is not None:
                await kafka
            self._stack.state.forget_stack()

    def _asked_to_stop(self) -> None:
        if not self._stop.is_set():
            self._report("stack", "note", "stopping: receivers first, they acknowledge what they have")
            self._stop.set()
            return
        self._report("stack", "bad", "asked again: ending everything at once")
        for child in self._children:
            child.kill()

    async def _run_the_rest(self) -> int:
        status = await self._make_topics()
        if status != 0 or self._stop.is_set():
            return status
        children = [*self._receivers, self._lake]
        running = {asyncio.ensure_future(child.run(self._stop)) for child in children}
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()  # also when one gave up: the stack cannot be what was asked for
        await asyncio.wait(running)  # every one, before the first exception is passed on
        for task in running:
            task.result()
        return EXIT_CONFIG if any(child.refused for child in children) else 0

    async def _make_topics(self) -> int:
        """Run the module that makes the topics until it succeeds; 78 when its settings are wrong."""
        backoff = Backoff()
        while not self._stop.is_set():
            if self._kafka is None or self._kafka.state is State.READY:
                status = await self._topics_once()
                if status == 0:
                    self._topics_made = True
                    self._report("topics", "good", "made or checked")
                    self._record()
                    return 0
                if self._stop.is_set():
                    break
                self._report("topics", "bad", last_line(self._stack.state.log("topics")) or f"status {status}")
                if status == EXIT_CONFIG:
                    return EXIT_CONFIG
                await self._sleep(backoff.pause())
            else:
                await self._sleep(0.1)
        return 0

    async def _topics_once(self) -> int:
        command, variables = self._stack.topics
        with self._stack.state.log("topics").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *tethered(list(command)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **variables},
            )
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

    def _changed(self, child: Child, detail: str) -> None:
        name = child.spec.name
        if not self._stop.is_set():
            if child.state is State.READY:
                text = f"ready on {self._address(name)}"
                if name not in self._ever_ready:
                    self._ever_ready.add(name)
                    text += f" ({time.monotonic() - self._begun:.1f} s)"
                self._report(name, "good", text)
            elif child.state is State.UNREADY:
                self._report(name, "bad", f"not ready: {detail}")
            elif child.state is State.RESTARTING:
                self._report(name, "bad", detail)
        self._record()
        if self._on_ready is not None and self.ready:
            announce, self._on_ready = self._on_ready, None
            announce()

    @property
    def ready(self) -> bool:
        """Whether the topics are made and every child is ready now."""
        return self._topics_made and all(child.state is State.READY for child in self._children)

    @property
    def _children(self) -> list[Child]:
        return [*([self._kafka] if self._kafka else []), *self._receivers, self._lake]

    def _address(self, name: str) -> str:
        if name == "kafka":
            return self._stack.bootstrap
        if name == "lake":
            return str(self._stack.state.lake)
        return next(endpoint.listen for spec, endpoint in self._stack.receivers if spec.name == name)

    def _record(self) -> None:
        with suppress(OSError):  # a full disk must not end what still runs; the record is stale for a while
            self._stack.state.write_stack(self._described())

    def _described(self) -> dict[str, Any]:
        stack, state = self._stack, self._stack.state
        return {
            "state": str(state.path),
            "supervisor_pid": os.getpid(),
            "ready": self.ready,
            "kafka": stack.bootstrap,
            "kafka_child": _told(self._kafka) if self._kafka is not None else None,
            "services": {
                child.spec.name: {
                    **_told(child),
                    "listen": endpoint.listen,
                    "listeners": dict(endpoint.listeners),
                    "ops": endpoint.ops,
                    "hint": endpoint.hint,
                    "ca": endpoint.ca,
                }
                for child, (_, endpoint) in zip(self._receivers, stack.receivers, strict=True)
            },
            "lake": str(state.lake),
            "lake_child": _told(self._lake),
            "lake_ops": stack.lake_ops,
            "checkpoint": str(state.checkpoint),
        }


def _told(child: Child) -> dict[str, Any]:
    return {"state": child.state.value, "pid": child.pid, "created": child.created, "restarts": child.restarts}
