"""One process of the stack: started, watched, and started again when it dies.

A child leads a session of its own. So the terminal's Ctrl-C reaches only the supervisor, and a child can be ended together
with the processes that it has started (Spark's JVM). The child gets SIGTERM when the supervisor dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from headrace_common.operations.errors import EXIT_CONFIG

from headrace_cli.machine.tether import tethered

PROBE_INTERVAL: Final = 0.3
LOG_BYTES: Final = 10 * 1024 * 1024
"""A longer log file is moved to ``<name>.log.1``, so that a child's logs take at most twice this."""
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
"""Seconds before a start; each one in a row waits twice as long as the last."""
STABLE_SECONDS: Final = 10.0
"""Seconds that a process must have been ready before its delays begin at the first again."""


class ChildState(StrEnum):
    """A child's state, as `status --json` shows it."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    RESTARTING = "restarting"


@dataclass(frozen=True)
class Part:
    """A process to run. `variables` add to the supervisor's own, without those named in `without`.

    `probe` returns why it is not ready; an empty text if it is. `address`: where clients find it; `listeners`: all of its ports
    for clients, by name; `ops`: HOST:PORT of its health and metrics. `grace`: seconds from SIGTERM to SIGKILL.
    """

    name: str
    command: tuple[str, ...]
    variables: Mapping[str, str]
    log: Path
    probe: Callable[[], Awaitable[str]]
    address: str = ""
    listeners: Mapping[str, str] = field(default_factory=dict)
    ops: str = ""
    grace: float = 40.0
    without: tuple[str, ...] = ()


@asynccontextmanager
async def started(part: Part) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a part until the block ends: SIGTERM, after its grace SIGKILL to it and to all that it has started."""
    rotate_log(part.log)
    kept = {name: value for name, value in os.environ.items() if name not in part.without}
    with part.log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *tethered(list(part.command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**kept, **part.variables},
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, TimeoutError):
            process.terminate()
            await asyncio.wait_for(process.wait(), part.grace)
        end_group(process)
        await process.wait()


def end_group(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL to a process and to all that it has started."""
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
        os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Child:
    """A part that is kept running. It calls `on_change` after every change of its state, with itself and the reason."""

    part: Part
    on_change: Callable[[Child, str], None]
    state: ChildState = ChildState.STARTING
    restarts: int = 0
    why: str = ""
    settings_refused: bool = False  # it ended because of its settings before it was ever ready
    process: asyncio.subprocess.Process | None = None
    _ready_since: float | None = None
    _was_ready: bool = False

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the child running until `stop` is set, then end it. Returns early if the child refuses its settings."""
        delay = FIRST_DELAY
        while not stop.is_set():
            try:
                ended = await self._run_once(stop)
            except OSError as error:
                ended = f"cannot be started: {error.strerror}"
            if stop.is_set():
                return
            if self.settings_refused:
                self._set_state(ChildState.RESTARTING, ended)
                return
            if self._ready_since is not None and time.monotonic() - self._ready_since >= STABLE_SECONDS:
                delay = FIRST_DELAY
            self._ready_since = None
            self._set_state(ChildState.RESTARTING, f"{ended}; starting again in {delay:.0f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
            delay = min(2 * delay, LONGEST_DELAY)
            self.restarts += 1

    async def _run_once(self, stop: asyncio.Event) -> str:
        """Start the process and watch it until it has died or `stop` is set. Return how it ended."""
        async with started(self.part) as process:
            self.process = process
            self._set_state(ChildState.STARTING, "started")
            ended, stopped = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())
            try:
                while not (ended.done() or stopped.done()):
                    await asyncio.wait({ended, stopped}, timeout=PROBE_INTERVAL, return_when="FIRST_COMPLETED")
                    if not (ended.done() or stopped.done()):
                        await self._look()
            finally:
                ended.cancel()
                stopped.cancel()
        status = process.returncode or 0
        self.settings_refused = status == EXIT_CONFIG and not self._was_ready
        return f"{describe_exit(status)}; {last_line(self.part.log) or 'its log is empty'}"

    async def _look(self) -> None:
        rotate_log(self.part.log)
        self.why = await self.part.probe()
        if not self.why:
            self._was_ready = True
            self._ready_since = self._ready_since or time.monotonic()
            self._set_state(ChildState.READY, "ready")
        elif self.state is not ChildState.STARTING:
            self._ready_since = None
            self._set_state(ChildState.UNREADY, self.why)

    def _set_state(self, state: ChildState, detail: str) -> None:
        if state is self.state and state in (ChildState.READY, ChildState.UNREADY):
            return
        self.state = state
        self.on_change(self, detail)


def describe_exit(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def last_line(path: Path) -> str:
    """Return the last message of a log as people read it, at most 300 characters of it."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 8192))
            line = message(log.read().decode(errors="replace"))
    except OSError:
        return ""
    try:  # a line of our own JSON logs: what happened and why
        entry = json.loads(line)
        line = ": ".join(str(entry[key]) for key in ("event", "reason", "problem") if key in entry) or line
    except (ValueError, TypeError):
        pass
    return line[:300]


def message(said: str) -> str:
    """Return the last line that is a message and no frame of Java's stack traces; or an empty text."""
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return lines[-1].strip() if lines else ""


def rotate_log(path: Path) -> None:
    """Copy a long log to ``<name>.log.1`` and truncate it. The child appends, so it continues at the file's new end."""
    with suppress(OSError):
        if path.stat().st_size > LOG_BYTES:
            with path.open("rb") as log:
                log.seek(-LOG_BYTES, os.SEEK_END)
                path.with_name(f"{path.name}.1").write_bytes(log.read(LOG_BYTES))
            os.truncate(path, 0)
