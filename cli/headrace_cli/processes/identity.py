"""Tells one process from all others, also from a later one with the same pid: by its pid, its start and its command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil


def describe(pid: int) -> dict[str, Any]:
    """Return what identifies the process, as JSON can hold it. Raises `psutil.Error`."""
    process = psutil.Process(pid)
    return {"pid": pid, "started": _started(process), "command": process.cmdline()}


def find(described: object) -> psutil.Process | None:
    """Return the living process of this user that `describe` described; None if there is none, or it was never described."""
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
    """When it started. On Linux in ticks since the boot: `create_time` moves when the machine's clock is set."""
    if sys.platform != "linux":
        return repr(process.create_time())
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError as error:
        raise psutil.NoSuchProcess(process.pid) from error
