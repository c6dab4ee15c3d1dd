"""Runs a stack: starts its processes in order, records what runs, and ends everything in order. A part that ends by itself ends
the stack: on one machine that is seen at once, and no start is repeated behind its user's back.

A part leads a session of its own. So the terminal's Ctrl-C reaches only the supervisor, and a part can be ended together with the
processes that it has started (Spark's JVM). It gets SIGTERM when the supervisor dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.tasks import stops

from headrace_cli.ground import EXIT_FAILED
from headrace_cli.machine.tether import tethered
from headrace_cli.stack.broker import message
from headrace_cli.stack.reach import NO_ANSWER, not_ready
from headrace_cli.stack.state import StateFolder

Report = Callable[[str, str, str], None]
"""Called with a name, a kind ("good", "bad" or "note") and what happened."""

PROBE_INTERVAL: Final = 0.3
TELL_SECONDS: Final = 5.0
"""Seconds after which, and then whenever they have doubled, a slow start says what it waits for."""


@dataclass(frozen=True, eq=False)
class Part:
    """A process to run. `variables` add to the supervisor's own, without those named in `without`.

    `address`: where clients find it; `listeners`: all of its ports for clients, by name; `ops`: HOST:PORT of its health and
    metrics; `ready`: HOST:PORT of its ``/readyz``, without which it is ready when `address` takes a connection; `start`: what it
    does until it answers; `grace`: seconds from SIGTERM to SIGKILL; `early`: it starts beside Kafka, and waits
    for the topics itself.
    """

    name: str
    command: tuple[str, ...]
    variables: Mapping[str, str]
    log: Path
    address: str = ""
    listeners: Mapping[str, str] = field(default_factory=dict)
    ops: str = ""
    ready: str = ""
    start: str = "it starts"
    grace: float = 40.0
    early: bool = False
    without: tuple[str, ...] = ()


@dataclass
class Stack:
    """What the supervisor runs. `kafka` is None with the user's own; `topics` runs once; `parts` are all others."""

    state: StateFolder
    bootstrap: str
    kafka: Part | None
    topics: Part
    parts: list[Part]

    def stop_seconds(self) -> float:
        """Return how long it may take to stop: the parts end together, then Kafka, and each may have to be killed."""
        return max(part.grace for part in self.parts) + (self.kafka.grace if self.kafka else 0) + 10


class Supervisor:
    """The supervisor of one stack. It calls `on_ready` when everything is ready."""

    def __init__(self, stack: Stack, report: Report, on_ready: Callable[[], None] = lambda: None) -> None:
        self._stack = stack
        self._report = report
        self._on_ready = on_ready
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self._running: dict[Part, asyncio.subprocess.Process] = {}
        self._ended: list[Part] = []

    async def run(self) -> int:
        """Run until SIGTERM, SIGINT or SIGHUP, or until a part ends. Return 0, 78 if one refused its settings, else 1."""
        for number in stops():
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        kafka = [self._stack.kafka] if self._stack.kafka is not None else []
        try:
            await self._start([*kafka, *(part for part in self._stack.parts if part.early)])
            if await self._all_ready(kafka) and await self._make_topics():
                await self._start([part for part in self._stack.parts if not part.early])
                if await self._all_ready(self._stack.parts):
                    self._write_record(ready=True)
                    self._on_ready()
                    while await self._goes_on():
                        pass
            return self._status()
        finally:
            await self._end([part for part in self._running if part not in kafka])
            await self._end(kafka)
            self._stack.state.record.unlink(missing_ok=True)

    async def _start(self, parts: Sequence[Part]) -> None:
        for part in parts:
            kept = {name: value for name, value in os.environ.items() if name not in part.without}
            with part.log.open("ab") as output:
                self._running[part] = await asyncio.create_subprocess_exec(
                    *tethered(list(part.command)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env={**kept, **part.variables},
                )
        self._write_record(ready=False)

    async def _goes_on(self) -> bool:
        """Wait a moment. Return whether no part has ended and nothing is to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), PROBE_INTERVAL)
        self._ended = [part for part, process in self._running.items() if process.returncode is not None]
        return not (self._ended or self._stop.is_set())

    async def _all_ready(self, parts: Sequence[Part]) -> bool:
        """Wait until all of these are ready, and say which is. Return False if a part has ended, or all is to stop."""
        waiting, told = list(parts), TELL_SECONDS
        while waiting:
            if not await self._goes_on():
                return False
            reasons = await asyncio.gather(*(not_ready(part.ready, part.address) for part in waiting))
            took = time.monotonic() - self._began
            for part in [part for part, why in zip(waiting, reasons, strict=True) if not why]:
                self._report(part.name, "good", f"ready on {part.address} ({took:.1f} s)")
            slow = {part: why for part, why in zip(waiting, reasons, strict=True) if why}
            waiting = list(slow)
            if slow and took > told:
                told = 2 * took
                names = [f"{part.name} ({part.start if why == NO_ANSWER else why})" for part, why in slow.items()]
                self._report("stack", "note", f"waiting for {', '.join(names)}, {took:.0f} s")
        return True

    async def _make_topics(self) -> bool:
        """Run the module that makes the topics. Return whether it has done so."""
        topics = self._stack.topics
        topics.log.unlink(missing_ok=True)
        await self._start([topics])
        while await self._goes_on():
            pass
        made = self._ended == [topics] and self._running[topics].returncode == 0
        if made:
            del self._running[topics]
            self._report("topics", "good", "made or checked")
        return made

    def _status(self) -> int:
        """Say which parts have ended by themselves, and how; return the stack's exit status."""
        for part in self._ended:
            how = describe_exit(self._running[part].returncode or 0)
            self._report(part.name, "bad", f"{how}; {last_line(part.log) or 'its log is empty'}")
        if any(self._running[part].returncode == EXIT_CONFIG for part in self._ended):
            return EXIT_CONFIG
        return EXIT_FAILED if self._ended else 0

    def _on_signal(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._report("stack", "note", "stopping: receivers first, they acknowledge what they have taken")
            return
        self._report("stack", "bad", "second signal: ending everything at once")
        for process in self._running.values():
            _kill(process)

    async def _end(self, parts: Sequence[Part]) -> None:
        """End these together: SIGTERM, after its grace SIGKILL to each and to all that it has started."""

        async def end(process: asyncio.subprocess.Process, grace: float) -> None:
            with suppress(ProcessLookupError, TimeoutError):
                process.terminate()
                await asyncio.wait_for(process.wait(), grace)
            _kill(process)
            await process.wait()

        await asyncio.gather(*(end(self._running[part], part.grace) for part in parts if part in self._running))

    def _write_record(self, *, ready: bool) -> None:
        """Record what runs, which `status --json` prints. `parts` has all processes, `services` the receivers among them."""
        kafka, state = self._stack.kafka, self._stack.state
        all_parts = [*([kafka] if kafka is not None else []), *self._stack.parts]
        parts = {
            part.name: {
                "pid": self._running[part].pid if part in self._running else None,
                **{name: getattr(part, name) for name in ("address", "listeners", "ops", "ready")},
            }
            for part in all_parts
        }
        state.write_record(
            {
                "state": str(state.path),
                "supervisor_pid": os.getpid(),
                "ready": ready,
                "stop_seconds": self._stack.stop_seconds(),
                "kafka": self._stack.bootstrap,
                "embedded": kafka is not None,
                "lake": str(state.lake),
                "live": parts["live"]["address"] if "live" in parts else "",
                "parts": parts,
                "services": {name: part for name, part in parts.items() if part["listeners"]},
            }
        )


def _kill(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL to a process and to all that it has started."""
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
        os.killpg(process.pid, signal.SIGKILL)


def describe_exit(status: int) -> str:
    return f"exited with status {status}" if status >= 0 else f"was killed by signal {-status}"


def last_line(path: Path) -> str:
    """Return the last message of a log, at most 300 characters of it."""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 8192))
        return message(log.read().decode(errors="replace"))[:300]
