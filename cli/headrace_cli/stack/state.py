"""The state folder of a stack: ``kafka/ lake/ checkpoint/ log/<name>.log run/stack.json run/ports.json lock`` and a marker file.

The supervisor holds the lock while it lives, and the lock's file says which process it is. Only this user may open the folder:
its topics, its lake and its logs hold what clients have sent. The marker holds the stack's name, and every process of the stack
has that name in its environment. So the processes that a killed supervisor left can be found without trusting a pid.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
from headrace_lake.configuration.places import unreadable

from headrace_cli.ground import EXIT_NOTHING_RUNS, CommandError, command
from headrace_cli.machine.filelock import Locked, acquire, describe, find, is_locked

MARKER: Final = "headrace.json"
STACK_VARIABLE: Final = "HEADRACE_STACK"
"""Environment variable with the stack's name; every process of a stack has it."""

_FOLDERS: Final = ("kafka", "lake", "checkpoint", "log", "run")
_TERM_SECONDS: Final = 5.0


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
        self._ports = self.path / "run" / "ports.json"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    @property
    def name(self) -> str | None:
        """The stack's name; None if this is not a state folder of Headrace. A copy of the folder has another."""
        try:
            marker = json.loads((self.path / MARKER).read_text())
            return uuid.uuid5(uuid.UUID(str(marker["stack"])), str(self.path.resolve())).hex
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def make(self) -> None:
        """Create the folders that are missing. Raises `CommandError` if `path` holds other files or cannot be written, or if
        readers of the lake cannot take its name.
        """
        try:
            if self.name is None:
                if (part := unreadable(str(self.path))) is not None:
                    raise CommandError(
                        f"No reader could open the lake in {self.path}: name a folder whose path has no {part}."
                    )
                if self.path.exists() and any(self.path.iterdir()):
                    raise CommandError(f"{self.path} is not empty and not a state folder of Headrace; name another.")
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(self.path / MARKER, {"stack": uuid.uuid4().hex, "about": "state of a Headrace stack"})
            for folder in _FOLDERS:
                (self.path / folder).mkdir(exist_ok=True)
        except OSError as error:
            raise CommandError(f"The state folder {self.path} cannot be used: {error.strerror}.") from error

    def is_open(self) -> bool:
        """Return whether other users of this machine may look into the folder."""
        return bool(self.path.stat().st_mode & 0o077)

    def lock(self) -> int:
        """Take the lock; return the descriptor that holds it. Raises `CommandError` when a stack runs here."""
        try:
            descriptor = acquire(self._lock)
        except Locked:
            supervisor = self.supervisor()
            who = "held by an unknown process" if supervisor is None else f"supervisor pid {supervisor.pid}"
            raise CommandError(
                f"A stack already runs on {self.path} ({who}); `{command('down', self.path)}` stops it."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(describe(os.getpid())).encode(), 0)
        return descriptor

    def running(self) -> bool:
        """Return whether a process holds the lock. Raises `CommandError` if the folder belongs to another user, or is none."""
        try:
            return is_locked(self._lock)
        except PermissionError as error:
            raise CommandError(f"{self.path} belongs to another user.") from error
        except OSError as error:
            raise CommandError(f"The state folder {self.path} cannot be used: {error.strerror}.") from error

    def supervisor(self) -> psutil.Process | None:
        """Return the living process of this user that took the lock last, or None."""
        try:
            return find(json.loads(self._lock.read_text()))
        except (OSError, ValueError):
            return None

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record of what runs. Readers see either the old or the new record."""
        _write(self.record, record)

    def read_record(self) -> dict[str, Any]:
        """Return the supervisor's last record, which may be empty."""
        return _read(self.record)

    def what_runs(self) -> dict[str, Any]:
        """Return the record of the stack that runs here; empty if none does. Raises `CommandError` as `running` does."""
        return self.read_record() if self.running() else {}

    def nothing_runs(self, instead: str) -> CommandError:
        """Return the error of a verb that finds no stack. `instead`: how a user can do without one."""
        start = command("up", self.path)
        return CommandError(f"Nothing runs on {self.path}: start it ({start}), or {instead}.", status=EXIT_NOTHING_RUNS)

    def write_ports(self, ports: Mapping[str, int]) -> None:
        """Keep the ports that were chosen, so that the next start takes the same."""
        _write(self._ports, dict(ports))

    def read_ports(self) -> dict[str, int]:
        """Return the ports that the last start chose, by purpose; invalid ones are left out."""
        return {name: port for name, port in _read(self._ports).items() if type(port) is int and 0 < port < 65_536}

    def delete_record(self) -> None:
        self.record.unlink(missing_ok=True)

    def processes(self) -> list[psutil.Process]:
        """Return this user's living processes with this stack's name in their environment, except the supervisor and this
        process.
        """
        name = self.name
        if name is None:
            return []
        supervisor = self.supervisor()
        spared = {os.getpid(), None if supervisor is None else supervisor.pid}
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.pid not in spared and process.uids().real == os.getuid()
                if mine and process.environ().get(STACK_VARIABLE) == name:
                    found.append(process)
            except (psutil.Error, OSError):
                continue  # the process has ended
        return found

    def end_processes(self) -> int:
        """End the processes that a killed supervisor left; return their number. SIGTERM first, SIGKILL after a few seconds."""
        ended: set[int] = set()
        hard = False
        while left := self.processes():  # the loop also ends processes that those have started meanwhile
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    (process.kill if hard else process.terminate)()
            ended |= {process.pid for process in left}
            psutil.wait_procs(left, _TERM_SECONDS)
            hard = True
        return len(ended)

    def remove(self) -> None:
        """Delete the folder. Raises `CommandError` when it is not a state folder, or in use."""
        if self.name is None:
            raise CommandError(
                f"{self.path} has no {MARKER}, so it is not a state folder of Headrace: nothing was deleted."
            )
        self.lock()  # no stack may start here meanwhile
        self.end_processes()
        marker = self.path / MARKER
        try:
            for entry in self.path.iterdir():
                if entry == marker:
                    continue  # the marker goes last, so that what was interrupted can be repeated
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            marker.unlink()
            self.path.rmdir()
        except OSError as error:
            raise CommandError(f"{error.filename or self.path} cannot be deleted: {error.strerror}.") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(path: Path, document: dict[str, Any]) -> None:
    replace_file(path, (json.dumps(document, indent=1) + "\n").encode())


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file by a rename, so that its readers find either the old or the new content."""
    part = path.with_name(f"{path.name}.{os.getpid()}.new")
    part.unlink(missing_ok=True)
    try:
        part.touch(mode, exist_ok=False)
        part.write_bytes(content)
        part.rename(path)
    except OSError:  # on a full disk an empty file may stay, and the folder would be no longer empty
        part.unlink(missing_ok=True)
        raise
