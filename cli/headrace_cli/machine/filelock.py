"""Locks between processes, which the kernel releases when their holder dies, and the identities of processes."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

_ATTEMPTS: Final = 10
_ATTEMPT_SECONDS: Final = 0.02  # `is_locked` holds it for less


class Locked(Exception):  # noqa: N818  (a state, not a fault)
    """Another process holds the lock."""


def acquire(path: Path) -> int:
    """Take the lock on `path`; return the descriptor that holds it, which children do not inherit.

    Raises `Locked` if it is held for longer than `is_locked` looks. The file stays after the release; only the kernel's lock on
    it counts.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_ATTEMPT_SECONDS)
        else:
            return descriptor
    os.close(descriptor)
    raise Locked(str(path))


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock on `path`. Those that only look, also at the same time, do not hold it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on `path`. Waits for it without a limit, and calls `on_wait` once if it has to wait."""
    try:
        descriptor = acquire(path)
    except Locked:
        on_wait()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def describe(pid: int) -> dict[str, Any]:
    """Return what identifies the process, as JSON can hold it. Raises `psutil.Error`."""
    process = psutil.Process(pid)
    return {"pid": pid, "started": _started(process), "command": process.cmdline()}


def find(described: object) -> psutil.Process | None:
    """Return the living process of this user that `describe` described; None if it is dead or was never described."""
    pid = described.get("pid") if isinstance(described, dict) else None
    if not isinstance(pid, int) or pid <= 1:  # to `kill`, 0 and below are groups, and -1 is everybody
        return None
    try:
        process = psutil.Process(pid)
        same = describe(pid) == described and process.uids().real == os.getuid()
    except psutil.Error:
        return None
    return process if same else None


def _started(process: psutil.Process) -> str:
    """Return when it started. On Linux in ticks since the boot: `create_time` moves when the machine's clock is set."""
    if sys.platform != "linux":
        return repr(process.create_time())
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError as error:
        raise psutil.NoSuchProcess(process.pid) from error
