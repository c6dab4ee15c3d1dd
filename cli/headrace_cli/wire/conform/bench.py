"""The bench of every probe: connections, events, limits and a storage to stall; and a probe's finding."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headrace_common.session.client import Client

from headrace_cli.ground import CommandError
from headrace_cli.wire.line import Line, connected
from headrace_cli.wire.target import ASKED, Target

EVERY: Final[Collection[str]] = frozenset(ASKED)
PATIENCE: Final = 60.0
"""Seconds that a command has."""


class Verdict(StrEnum):
    """The meaning of an answer."""

    KEPT = "kept"
    """As a client hopes."""
    BROKEN = "broken"
    """A client loses events by it, or everybody the server."""
    NOTED = "noted"
    """Allowed, and good to know."""
    NOT_ASKED = "not asked"
    """This run cannot ask it."""


@dataclass(frozen=True)
class Finding:
    """A probe's result: one sentence without its point, and figures for programs."""

    verdict: Verdict
    answer: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Bench:
    """`wait`: seconds that a server has for what is waited for; `silence`: seconds of listening where it should say nothing.

    `largest`, `inflated`: bytes, the user's bounds.
    """

    target: Target
    wait: float
    silence: float
    storage: Storage | None
    largest: int
    inflated: int
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    connections: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def line(self, client: Client | None = None) -> AbstractAsyncContextManager[Line]:
        """A new connection of this protocol's usual client, or of another."""
        self.connections += 1
        return connected(self.target, client or ASKED[self.target.protocol](), self.wait)

    def events(self, count: int, size: int = 0) -> list[Mapping[str, Any]]:
        """New events, each with the mark by which `send` finds its own again, and about `size` bytes more."""
        filler = {"filler": secrets.token_hex(size // 2)} if size else {}
        return [
            {"message": "a probe", "headrace": {"run": self.run, "n": next(self._numbers)}, **filler}
            for _ in range(count)
        ]

    async def alive(self) -> str:
        """Why a new client is not served; empty if it is."""
        try:
            async with self.line() as line:
                await line.send(line.client.frame(self.events(3)), self.wait)
                if await line.acknowledged(0, self.wait):
                    return ""
                return line.fault or line.ended or f"acknowledges nothing for {self.wait:g} s"
        except (OSError, TimeoutError) as error:
            return f"takes no connection ({getattr(error, 'strerror', None) or type(error).__name__})"


Ask = Callable[[Bench], Awaitable[Finding]]


@dataclass(frozen=True)
class Probe:
    """One question to a server. `held`: it needs a stalled storage; `risky`: afterwards a new client must still be served."""

    name: str
    question: str
    ask: Ask
    protocols: Collection[str] = EVERY
    held: bool = False
    risky: bool = False


@dataclass(frozen=True)
class Storage:
    """`hold` stalls the storage, `release` ends that: commands for the shell."""

    hold: str
    release: str

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Stalls the storage for a block; however that ends, releases it. Raises `CommandError` if a command fails."""
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
