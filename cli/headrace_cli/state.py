"""The folder that holds one stack: ``kafka/ lake/ checkpoint/ log/<name>.log run/stack.json lock`` and a marker.

The lock is held by the supervisor for as long as it lives. The marker names the stack; every process of the stack has
that name in its environment, so that what a killed supervisor left behind can be found without trusting a pid.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any, Final

import psutil

from headrace_cli.errors import CommandError
from headrace_cli.filelock import Locked, acquire, held

MARKER: Final = "headrace.json"
STACK_VARIABLE: Final = "HEADRACE_STACK"
"""In the environment of every process of a stack: the stack's name."""

_FOLDERS: Final = ("kafka", "lake", "checkpoint", "log", "run")
_TERM_SECONDS: Final = 5.0


class StateFolder:
    """The state of one stack at `path`, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.kafka = self.path / "kafka"
        self.lake = self.path / "lake"
        self.checkpoint = self.path / "checkpoint"
        self.logs = self.path / "log"
        self._lock = self.path / "lock"
        self._stack = self.path / "run" / "stack.json"

    def log(self, name: str) -> Path:
        """The log file of one process of the stack."""
        return self.logs / f"{name}.log"

    @property
    def name(self) -> str | None:
        """The stack's name; None if this is no state folder of ours."""
        try:
            marker = json.loads((self.path / MARKER).read_text())
            return str(marker["stack"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def make(self) -> None:
        """Create what is missing. Raises `CommandError` for a folder that holds something else or cannot be written."""
        try:
            if self.name is None:
                if self.path.exists() and any(self.path.iterdir()):
                    raise CommandError(f"{self.path} is not empty and not a state folder of Headrace; name another.")
                self.path.mkdir(parents=True, exist_ok=True)
                _write(self.path / MARKER, {"stack": uuid.uuid4().hex, "about": "state of a Headrace stack"})
            for folder in _FOLDERS:
                (self.path / folder).mkdir(exist_ok=True)
        except OSError as error:
            raise CommandError(f"The state folder {self.path} cannot be used: {error.strerror}.") from error

    def lock(self) -> int:
        """Take the lock until this process ends. Raises `CommandError` when a stack runs here."""
        try:
            descriptor = acquire(self._lock)
        except Locked:
            pid = self.supervisor_pid()
            raise CommandError(
                f"A stack already runs on {self.path} (supervisor pid {pid}); `./headrace down` stops it."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def running(self) -> bool:
        """Whether a supervisor holds the lock."""
        return held(self._lock)

    def supervisor_pid(self) -> int | None:
        """The process that holds the lock, or held it last."""
        try:
            return int(self._lock.read_text())
        except (OSError, ValueError):
            return None

    def write_stack(self, stack: dict[str, Any]) -> None:
        """Record what runs; readers see the old or the new record, never half of one."""
        _write(self._stack, stack)

    def read_stack(self) -> dict[str, Any]:
        """What the supervisor recorded last; empty if nothing."""
        try:
            stack = json.loads(self._stack.read_text())
        except (OSError, ValueError):
            return {}
        return stack if isinstance(stack, dict) else {}

    def forget_stack(self) -> None:
        self._stack.unlink(missing_ok=True)

    def processes(self) -> list[psutil.Process]:
        """Every living process of this stack but the supervisor and this process: whose environment has its name."""
        name = self.name
        if name is None:
            return []
        own = {os.getpid(), self.supervisor_pid() if self.running() else None}
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid not in own and process.environ().get(STACK_VARIABLE) == name:
                    found.append(process)
            except (psutil.Error, OSError):
                continue  # another user's, or gone
        return found

    def end_processes(self) -> int:
        """Stop what a killed supervisor left behind: SIGTERM, after a few seconds SIGKILL. How many there were."""
        ended = set()
        left = self.processes()
        for process in left:
            _signal(process, hard=False)
        ended |= {process.pid for process in left}
        psutil.wait_procs(left, _TERM_SECONDS)
        while left := self.processes():  # also what they have started meanwhile
            for process in left:
                _signal(process, hard=True)
            ended |= {process.pid for process in left}
            psutil.wait_procs(left, _TERM_SECONDS)
        return len(ended)

    def remove(self) -> None:
        """Delete the folder. Raises `CommandError` when it is not ours, or in use."""
        if self.name is None:
            raise CommandError(f"{self.path} has no {MARKER}: it is not a state folder of Headrace, and stays.")
        self.lock()  # nobody starts a stack on what is being deleted
        self.end_processes()
        marker = self.path / MARKER
        try:
            for entry in self.path.iterdir():
                if entry == marker:
                    continue  # last, so that a purge that was interrupted can be repeated
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            marker.unlink()
            self.path.rmdir()
        except OSError as error:
            raise CommandError(f"{error.filename or self.path} cannot be deleted: {error.strerror}.") from error


def _signal(process: psutil.Process, *, hard: bool) -> None:
    try:
        if hard:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        pass


def _write(path: Path, document: dict[str, Any]) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(document, indent=1) + "\n")
    new.rename(path)
