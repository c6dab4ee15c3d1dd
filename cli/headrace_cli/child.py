"""One process of the stack: started, watched, started again when it dies.

A child leads a session of its own, so that the terminal's ctrl-C reaches only the supervisor and what the child has
started (Spark's JVM) can be ended with it. It gets SIGTERM when the supervisor dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil
from headrace_common.errors import EXIT_CONFIG

from headrace_cli.backoff import STABLE, Backoff
from headrace_cli.tether import tethered

POLL: Final = 0.3
LOG_BYTES: Final = 10 * 1024 * 1024
"""A log file that has grown beyond this is cut: its content moves to ``<name>.log.1``, so a child has twice this."""
DEAD_AFTER: Final = 15.0
"""Seconds that a child may say that it must be restarted (/livez) before it is."""

_GROUP_SECONDS: Final = 5.0
_LOOK: Final = 0.05


class State(StrEnum):
    """As `status --json` shows it."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    RESTARTING = "restarting"


@dataclass(frozen=True)
class Health:
    """What a probe has found. `why`: what the child says is missing. `live` is false only when it says so itself."""

    ready: bool
    why: str = ""
    live: bool = True


Probe = Callable[[], Awaitable[Health]]


@dataclass(frozen=True)
class Spec:
    """What to run. `environment` is added to the supervisor's own; `grace`: seconds from SIGTERM to SIGKILL."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    probe: Probe
    grace: float = 35.0


@dataclass
class Child:
    """A running `Spec`. `changed` is called after every change of what is shown of it."""

    spec: Spec
    changed: Callable[[Child, str], None]
    backoff: Backoff = field(default_factory=Backoff)
    state: State = State.STARTING
    restarts: int = 0
    was_ready: bool = False
    refused: bool = False  # it said that its settings are wrong before it was ever ready
    process: asyncio.subprocess.Process | None = None
    created: float = 0.0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the child running until `stop` is set, then end it. Returns early if its settings are wrong."""
        while not stop.is_set():
            try:
                await self._start()
            except OSError as error:
                self._show(State.RESTARTING, f"cannot be started: {error.strerror}")
            else:
                await self._watch(stop)
                if stop.is_set():
                    break
                if self.refused:
                    return
            pause = self.backoff.pause()
            self._show(State.RESTARTING, f"starting again in {pause:.0f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            self.restarts += 1
        await self._end()

    async def _start(self) -> None:
        cut_log(self.spec.log)
        with self.spec.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *tethered(list(self.spec.command)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.spec.environment},
            )
        with suppress(psutil.Error):
            self.created = psutil.Process(self.process.pid).create_time()
        self._show(State.STARTING, "started")

    async def _watch(self, stop: asyncio.Event) -> None:
        """Until the child is dead, or `stop` is set and it is still alive."""
        assert self.process is not None
        ended = asyncio.ensure_future(self.process.wait())
        stopped = asyncio.ensure_future(stop.wait())
        polling = asyncio.ensure_future(self._poll())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (polling, stopped):
                task.cancel()
        if stop.is_set():
            return
        status = await ended
        self.refused = status == EXIT_CONFIG and not self.was_ready
        self.kill()
        self._show(State.RESTARTING, f"{ending(status)}; {last_line(self.spec.log) or 'no word in its log'}")

    async def _poll(self) -> None:
        ready_since = dead_since = None
        while True:
            health = await self.spec.probe()
            now = time.monotonic()
            if health.ready:
                ready_since = ready_since or now
                self.was_ready = True
                self._show(State.READY, "ready")
                if now - ready_since >= STABLE:
                    self.backoff.stable()
            else:
                ready_since = None
                if self.state is not State.STARTING:
                    self._show(State.UNREADY, health.why)
            dead_since = None if health.live else dead_since or now
            if dead_since is not None and now - dead_since >= DEAD_AFTER:
                self._show(State.UNREADY, f"asks to be restarted: {health.why}")
                self.kill()
                return
            cut_log(self.spec.log)
            await asyncio.sleep(POLL)

    def _show(self, state: State, detail: str) -> None:
        if state is self.state and state in (State.READY, State.UNREADY):
            return
        self.state = state
        self.changed(self, detail)

    async def _end(self) -> None:
        """SIGTERM; SIGKILL for what is left after the grace; then for everything that it had started."""
        if self.process is None:
            return
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), self.spec.grace)
            if self.process.returncode is not None:
                await self._others_ended(_GROUP_SECONDS)
        self.kill()
        await self.process.wait()

    async def _others_ended(self, seconds: float) -> None:
        """Give what the child had started (Spark's JVM) time to end by itself."""
        for _ in range(round(seconds / _LOOK)):
            if not self._session():
                return
            await asyncio.sleep(_LOOK)

    def _session(self) -> list[int]:
        """The living processes of the child's session."""
        assert self.process is not None
        members = []
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if os.getsid(pid) == self.process.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    members.append(pid)
        return members

    def kill(self) -> None:
        """SIGKILL for the child and everything that it has started."""
        if self.process is not None:
            for pid in self._session():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def ending(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def last_line(path: Path, limit: int = 300) -> str:
    """The last line in a log that says something."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 8192))
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1].strip()[:limit] if lines else ""


def cut_log(path: Path) -> None:
    """Keep a log bounded while a child writes to it: copy it away and cut it (the child appends, so it goes on at 0)."""
    with suppress(OSError):
        if path.stat().st_size > LOG_BYTES:
            with path.open("rb") as log:
                log.seek(-LOG_BYTES, os.SEEK_END)
                path.with_name(f"{path.name}.1").write_bytes(log.read(LOG_BYTES))
            os.truncate(path, 0)
