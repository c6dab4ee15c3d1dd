"""Stalls the server's storage, by commands that the user names."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from headrace_cli.errors import CommandError

PATIENCE: Final = 60.0
"""Seconds that a command has."""


@dataclass(frozen=True)
class Storage:
    """`hold` stalls the storage, `release` lets it go: commands for the shell."""

    hold: str
    release: str

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Within it nothing is stored; it is let go at its end, whatever happens. Raises `CommandError` if a command fails."""
        try:
            await asyncio.to_thread(_run, self.hold, "--hold-command")
            yield
        finally:
            _run(self.release, "--release-command")


def _run(command: str, option: str) -> None:
    try:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S602
    except subprocess.TimeoutExpired:
        raise CommandError(f"{option} {command}: it did not end within {PATIENCE:g} s.") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CommandError(f"{option} {command}: it ended with {done.returncode}{f' ({said[-1]})' if said else ''}.")
