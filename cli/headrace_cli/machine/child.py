"""One process of the stack: started, watched, and started again when it dies.

A child leads a session of its own. So the terminal's ctrl-C reaches only the supervisor, and a child can be ended together
with the processes that it has started (Spark's JVM). The child gets SIGTERM when the supervisor dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil
from headrace_common.operations.errors import EXIT_CONFIG

from headrace_cli.machine.tether import tethered

PROBE_INTERVAL: Final = 0.3
LOG_BYTES: Final = 10 * 1024 * 1024
"""A longer log file is moved to ``<name>.log.1``, so that a child's logs take at most twice this."""
DISK_FULL: Final = 1024 * 1024
"""With fewer bytes free, a child's end is put down to the full disk."""
LIVENESS_GRACE: Final = 15.0
"""Seconds for which a child's /livez may be red before the child is restarted."""

_SESSION_GRACE: Final = 5.0
_SESSION_INTERVAL: Final = 0.05

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
STABLE_SECONDS: Final = 10.0
"""Seconds without a break that a process must be ready before its delays begin at the first again."""


def delays() -> Iterator[float]:
    """Yield how many seconds to wait before each start in a row: 1, 2, 4 … 60."""
    delay = FIRST_DELAY
    while True:
        yield delay
        delay = min(2 * delay, LONGEST_DELAY)


class ChildState(StrEnum):
    """A child's state, as `status --json` shows it."""

    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    RESTARTING = "restarting"


@dataclass(frozen=True)
class ProbeResult:
    """The finding of a probe. `why`: the reason that the child gives. `live` is false only when the child itself says so."""

    ready: bool
    why: str = ""
    live: bool = True


Probe = Callable[[], Awaitable[ProbeResult]]


@dataclass(frozen=True)
class ProcessSpec:
    """A process to run. `environment` adds to the supervisor's own, without the variables `without`; `grace` is the seconds from
    SIGTERM to SIGKILL.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    probe: Probe
    grace: float = 35.0
    without: tuple[str, ...] = ()


@dataclass
class Child:
    """A running `ProcessSpec`. It calls `on_change` after every change of its state, with the child and the reason."""

    spec: ProcessSpec
    on_change: Callable[[Child, str], None]
    delays: Iterator[float] = field(default_factory=delays)
    state: ChildState = ChildState.STARTING
    restarts: int = 0
    was_ready: bool = False
    settings_refused: bool = False  # it ended because of its settings before it was ever ready
    process: asyncio.subprocess.Process | None = None
    created: float = 0.0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the child running until `stop` is set, then end it. Returns early if the child refuses its settings."""
        while not stop.is_set():
            try:
                await self._start()
            except OSError as error:
                self._set_state(ChildState.RESTARTING, f"cannot be started: {error.strerror}")
            else:
                await self._watch(stop)
                if stop.is_set():
                    break
                if self.settings_refused:
                    return
            delay = next(self.delays)
            self._set_state(ChildState.RESTARTING, f"starting again in {delay:.0f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
            self.restarts += 1
        await self._end()

    async def _start(self) -> None:
        rotate_log(self.spec.log)
        kept = {name: value for name, value in os.environ.items() if name not in self.spec.without}
        self.process = await started(self.spec.command, {**kept, **self.spec.environment}, self.spec.log)
        with suppress(psutil.Error):
            self.created = psutil.Process(self.process.pid).create_time()
        self._set_state(ChildState.STARTING, "started")

    async def _watch(self, stop: asyncio.Event) -> None:
        """Wait until the child has died or `stop` is set."""
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
        self.settings_refused = status == EXIT_CONFIG and not self.was_ready
        self.kill()
        self._set_state(ChildState.RESTARTING, f"{describe_exit(status)}; {why(self.spec.log)}")

    async def _poll(self) -> None:
        ready_since = not_live_since = None
        while True:
            result = await self.spec.probe()
            now = time.monotonic()
            if result.ready:
                ready_since = ready_since or now
                self.was_ready = True
                self._set_state(ChildState.READY, "ready")
                if now - ready_since >= STABLE_SECONDS:
                    self.delays = delays()
            else:
                ready_since = None
                if self.state is not ChildState.STARTING:
                    self._set_state(ChildState.UNREADY, result.why)
            not_live_since = None if result.live else not_live_since or now
            if not_live_since is not None and now - not_live_since >= LIVENESS_GRACE:
                self._set_state(ChildState.UNREADY, f"asks to be restarted: {result.why}")
                self.kill()
                return
            rotate_log(self.spec.log)
            await asyncio.sleep(PROBE_INTERVAL)

    def _set_state(self, state: ChildState, detail: str) -> None:
        if state is self.state and state in (ChildState.READY, ChildState.UNREADY):
            return
        self.state = state
        self.on_change(self, detail)

    async def _end(self) -> None:
        """Send SIGTERM, after the grace SIGKILL; then SIGKILL to every process that the child had started."""
        if self.process is None:
            return
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), self.spec.grace)
            if self.process.returncode is not None:
                await self._wait_for_session(_SESSION_GRACE)
        self.kill()
        await self.process.wait()

    async def _wait_for_session(self, seconds: float) -> None:
        """Give the processes that the child had started (Spark's JVM) time to end by themselves."""
        for _ in range(round(seconds / _SESSION_INTERVAL)):
            if not self._session_pids():
                return
            await asyncio.sleep(_SESSION_INTERVAL)

    def _session_pids(self) -> list[int]:
        """Return the living processes of the child's session."""
        assert self.process is not None
        members = []
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if os.getsid(pid) == self.process.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    members.append(pid)
        return members

    def kill(self) -> None:
        """Send SIGKILL to the child and to every process that it has started."""
        if self.process is not None:
            for pid in self._session_pids():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


async def started(command: Sequence[str], environment: Mapping[str, str], log: Path) -> asyncio.subprocess.Process:
    """Start a process in a session of its own, tethered to this one; what it prints is appended to `log`."""
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *tethered(list(command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment,
        )


def describe_exit(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def why(log: Path) -> str:
    """Return why a child ended, as far as its log says so: on a full disk the log itself ends anywhere."""
    with suppress(OSError):
        if shutil.disk_usage(log.parent).free < DISK_FULL:
            return f"no space is left in {log.parent}"
    return last_line(log) or "its log is empty"


def last_line(path: Path) -> str:
    """Return the last message of a log as people read it, at most 300 characters of it."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 8192))
            return _told(message(log.read().decode(errors="replace")))[:300]
    except OSError:
        return ""


def message(said: str) -> str:
    """Return the last line that is a message and no frame of Java's stack traces; or an empty text."""
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return lines[-1].strip() if lines else ""


def _told(line: str) -> str:
    """Return a line of our own JSON logs as people read it: what happened and why."""
    try:
        entry = json.loads(line)
        return ": ".join(str(entry[key]) for key in ("event", "reason", "problem") if key in entry) or line
    except (ValueError, TypeError):
        return line


def rotate_log(path: Path) -> None:
    """Copy a long log to ``<name>.log.1`` and truncate it. The child appends, so it continues at the file's new end."""
    with suppress(OSError):
        if path.stat().st_size > LOG_BYTES:
            with path.open("rb") as log:
                log.seek(-LOG_BYTES, os.SEEK_END)
                path.with_name(f"{path.name}.1").write_bytes(log.read(LOG_BYTES))
            os.truncate(path, 0)


def written_since(log: Path, position: int) -> tuple[list[str], int]:
    """Return the whole lines since `position`, and where they end. A log that became shorter is read from its start."""
    with log.open("rb") as source:
        source.seek(position if log.stat().st_size >= position else 0)
        begin, text = source.tell(), source.read()
    whole = text[: text.rfind(b"\n") + 1]
    return whole.decode(errors="replace").split("\n")[:-1], begin + len(whole)
