"""The bench of every probe: connections, events, limits and a storage to stall; and how a server is asked."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headrace_cli.ground import CommandError
from headrace_cli.wire.channel import opened
from headrace_cli.wire.target import ASKED, Target, why_not
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import Answer, Client

EVERY: Final = frozenset(ASKED)
PATIENCE: Final = 60.0
"""Seconds that a command has."""
AFTERWARDS: Final = 4
"""New clients that must be served after harmful bytes."""
_READ_BYTES: Final = 65_536


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
    """A probe's result: one sentence without its point."""

    verdict: Verdict
    answer: str


@dataclass
class Bench:
    """`wait`: seconds that a server has for an answer; `silence`: seconds of listening where it should send nothing.

    `largest`, `inflated`: bytes, the user's bounds.
    """

    target: Target
    wait: float
    silence: float
    storage: StorageSwitch | None
    largest: int
    inflated: int
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def line(self, client: Client | None = None) -> AbstractAsyncContextManager[Line]:
        """Return a new connection of this protocol's usual client, or of another."""
        return connected(self.target, client or ASKED[self.target.protocol](), self.wait)

    def events(self, count: int, size: int = 0) -> list[Mapping[str, Any]]:
        """Return new events, each with the mark by which `send` finds its own again, and about `size` bytes more."""
        filler = {"filler": secrets.token_hex(size // 2)} if size else {}
        return [
            {"message": "a probe", "headrace": {"run": self.run, "n": next(self._numbers)}, **filler}
            for _ in range(count)
        ]

    async def alive(self) -> str:
        """Return why one of some new clients is not served; empty if all are. A server may have lost one of its threads."""
        return next(filter(None, await asyncio.gather(*(self._served() for _ in range(AFTERWARDS)))), "")

    async def _served(self) -> str:
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
class StorageSwitch:
    """`hold` stalls the storage, `release` ends that: commands for the shell."""

    hold: str
    release: str

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Stall the storage for a block; however that ends, release it. Raises `CommandError` if a command fails."""
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


@dataclass
class Line:
    """A connection. `answers` have the time at which each came, in seconds of the monotonic clock.

    `ended`: how the server ended it (``closes``, ``resets``); `fault`: a reply that no server may send.
    """

    client: Client
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answers: list[tuple[float, Answer]] = field(default_factory=list)
    ended: str = ""
    fault: str = ""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, data: bytes, seconds: float) -> None:
        """Write `data` within `seconds`. The answers show whether a server does not read, or closes."""
        with contextlib.suppress(OSError, TimeoutError):
            self.writer.write(data)
            async with asyncio.timeout(seconds):
                await self.writer.drain()

    def finish(self) -> None:
        """Send no more; over TLS that cannot be said."""
        with contextlib.suppress(OSError, RuntimeError):
            if self.writer.can_write_eof():
                self.writer.write_eof()

    def whole(self, frame: int) -> float | None:
        """Return when all of a frame was acknowledged; None if it was not."""
        return next((at for at, answer in self.answers if answer.frame == frame and answer.whole), None)

    async def until(self, there: Callable[[], bool], seconds: float) -> bool:
        """Wait until `there`, the connection's end or `seconds`; say whether it is there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not there() and not self.over:
                    self._news.clear()
                    await self._news.wait()
        return there()

    async def acknowledged(self, frame: int, seconds: float) -> bool:
        return await self.until(lambda: self.whole(frame) is not None, seconds)

    async def silence(self, seconds: float) -> None:
        """Listen for `seconds`, or until the server ends it."""
        await self.until(lambda: False, seconds)

    @property
    def over(self) -> bool:
        """Whether nothing more will be heard."""
        return bool(self.ended or self.fault)

    async def listen(self) -> None:
        """Note answers, until the server ends the connection or breaks the protocol."""
        try:
            while data := await self.reader.read(_READ_BYTES):
                now = time.monotonic()
                for heard in self.client.receive(data):
                    if isinstance(heard, Answer):
                        self.answers.append((now, heard))
                self._news.set()
            self.ended = "closes"
        except ProtocolError as error:
            self.fault = str(error)
        except OSError:
            self.ended = "resets"
        finally:
            self._news.set()


@asynccontextmanager
async def connected(target: Target, client: Client, seconds: float) -> AsyncIterator[Line]:
    """Open a connection and send the greeting. Frames that `client` made before are not under way on it.

    Raises the errors of `opened` if none opens within `seconds`.
    """
    reader, writer = await opened(target, seconds)
    line = Line(client, reader, writer)
    listening = asyncio.create_task(line.listen())
    try:
        if greeting := client.again():
            await line.send(greeting, seconds)
        yield line
    finally:
        listening.cancel()
        await asyncio.wait({listening})
        writer.transport.abort()


def outcome(line: Line, frame: int = 0) -> str:
    """Return a server's reaction to a frame, in a few words."""
    if line.fault:
        return f"says what no server may say: {line.fault}"
    done = "acknowledges it" if line.whole(frame) else ""
    return " and ".join(filter(None, (done, f"{line.ended} the connection" if line.ended else ""))) or "says nothing"


async def ask(
    bench: Bench, probes: Sequence[Probe], told: Callable[[Probe, Finding], None]
) -> list[tuple[Probe, Finding]]:
    """Ask all; `told` hears each answer when it comes. Raises `CommandError` if the server takes no connection at all."""
    try:
        async with bench.line():
            pass
    except (OSError, TimeoutError) as error:
        raise CommandError(f"{why_not(bench.target, error, bench.wait)}.") from error
    asked = []
    for probe in probes:
        asked.append((probe, await _ask(bench, probe)))
        told(*asked[-1])
    return asked


async def _ask(bench: Bench, probe: Probe) -> Finding:
    if probe.held and bench.storage is None:
        return Finding(Verdict.NOT_ASKED, "needs --hold-command and --release-command")
    try:
        finding = await probe.ask(bench)
    except (OSError, TimeoutError) as error:
        return Finding(Verdict.BROKEN, f"takes no connection any more: {why_not(bench.target, error, bench.wait)}")
    if probe.risky and (problem := await bench.alive()):
        return Finding(Verdict.BROKEN, f"{finding.answer}; afterwards a new client hears: {problem}")
    return finding
