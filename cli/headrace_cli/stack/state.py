"""The state folder of a stack: ``kafka/ lake/ checkpoint/ log/<name>.log run/stack.json lock``.

The supervisor holds the lock while it lives, and the lock's file has its pid. A folder without that file is no state folder. Only
this user may open it: its topics, its lake and its logs hold what clients have sent.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from headrace_cli.ground import EXIT_NOTHING_RUNS, CommandError, command

_FOLDERS: Final = ("kafka", "lake", "checkpoint", "log", "run")


class StateFolder:
    """The state folder at `path`, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.kafka = self.path / "kafka"
        self.lake = self.path / "lake"
        self.checkpoint = self.path / "checkpoint"
        self.logs = self.path / "log"
        self._lock = self.path / "lock"
        self.record = self.path / "run" / "stack.json"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def make(self) -> None:
        """Create the folders that are missing. Raises `CommandError` if `path` holds other files or cannot be written, or if
        readers of the lake cannot take its name.
        """
        from headrace_lake.configuration.places import unreadable

        if (part := unreadable(str(self.path))) is not None:
            raise CommandError(f"No reader could open the lake in {self.path}: name a folder whose path has no {part}.")
        try:
            if not self._lock.exists():
                if self.path.exists() and any(self.path.iterdir()):
                    raise CommandError(f"{self.path} is not empty and not a state folder of Headrace; name another.")
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock.touch(mode=0o600)
            for folder in _FOLDERS:
                (self.path / folder).mkdir(exist_ok=True)
        except OSError as error:
            raise CommandError(f"The state folder {self.path} cannot be used: {error.strerror}.") from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for a block. Raises `CommandError` when a stack runs here."""
        with self._lock.open("r+") as lock:
            try:  # the kernel releases it when its holder dies, and children do not inherit it
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stop = command("down", self.path)
                raise CommandError(f"A stack already runs on {self.path}; `{stop}` stops it.") from None
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def running(self) -> bool:
        """Return whether a process holds the lock. Raises `CommandError` if the folder belongs to another user, or is none."""
        try:
            with self._lock.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except PermissionError as error:
            raise CommandError(f"{self.path} belongs to another user.") from error
        except OSError as error:
            raise CommandError(f"The state folder {self.path} cannot be used: {error.strerror}.") from error

    def supervisor(self) -> psutil.Process | None:
        """Return the living process that took the lock last, or None. Ask only while it `running`."""
        try:
            process = psutil.Process(int(self._lock.read_text()))
            return process if process.pid > 1 else None
        except (OSError, ValueError, psutil.Error):
            return None

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record of what runs. Readers see either the old or the new record."""
        part = self.record.with_name("stack.json.new")
        part.write_text(json.dumps(record, indent=1) + "\n")
        part.rename(self.record)

    def what_runs(self) -> dict[str, Any]:
        """Return the record of the stack that runs here; empty if none does, or if it has just begun. Raises as `running`."""
        try:
            return dict(json.loads(self.record.read_text())) if self.running() else {}
        except (OSError, ValueError):
            return {}

    def nothing_runs(self, instead: str) -> CommandError:
        """Return the error of a verb that finds no stack. `instead`: how a user can do without one."""
        start = command("up", self.path)
        return CommandError(f"Nothing runs on {self.path}: start it ({start}), or {instead}.", status=EXIT_NOTHING_RUNS)

    def remove(self) -> None:
        """Delete the folder. Raises `CommandError` when it is not a state folder, or in use."""
        if not self._lock.exists():
            raise CommandError(
                f"{self.path} has no lock, so it is not a state folder of Headrace: nothing was deleted."
            )
        with self.held():  # no stack may start here meanwhile
            try:
                shutil.rmtree(self.path)
            except OSError as error:
                raise CommandError(f"{error.filename or self.path} cannot be deleted: {error.strerror}.") from error
