"""The connections of a run: each sends frames, at most a window of them unacknowledged, and listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace_common.operations.errors import ProtocolError

from headrace_cli.clients.compression import Compression
from headrace_cli.clients.logjam import LogjamClient
from headrace_cli.clients.protocols import DEMO_CLIENTS, DemoClient
from headrace_cli.operating.wire.address import Target, why_not
from headrace_cli.operating.wire.opening import HELO
from headrace_cli.operating.wire.send.channel import Channel, channel_to
from headrace_cli.operating.wire.send.source import Source

WINDOW: Final = 32
"""Frames of a connection that are not acknowledged yet, at most."""
GRACE: Final = 2.0
"""Seconds that acknowledgements have after Ctrl-C."""
KEPT: Final = 100_000
"""Frames whose time is kept, the latest."""
CLIENTS: Final[Mapping[str, Callable[..., DemoClient]]] = {**DEMO_CLIENTS, "logjam": LogjamClient}
"""What `send` speaks."""
_LOOK: Final = 0.1


@dataclass
class Tally:
    """What a run has done. Times in seconds; `open`: frames that were sent and not acknowledged, by their numbers."""

    began: float = field(default_factory=time.monotonic)
    sent: int = 0
    acknowledged: int = 0
    frames: int = 0
    size: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    open: list[range] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    took: float = 0.0
    complete: bool = False
    """Nothing is left to be sent."""
    unasked: list[range] = field(default_factory=list)
    """Frames that asked for no acknowledgement, by their events' numbers."""

    def count(self, events: int, frame: bytes) -> None:
        """A frame is sent for the first time."""
        self.sent += events
        self.frames += 1
        self.size += len(frame)

    @property
    def fine(self) -> bool:
        """Whether all was sent, or all until somebody stopped it, and is acknowledged."""
        return not self.in_flight and (self.complete or not self.problems)

    @property
    def in_flight(self) -> int:
        """Events that wait for their acknowledgement, or never got one."""
        return self.sent - self.acknowledged - self.not_asked

    @property
    def not_asked(self) -> int:
        """Events whose frames asked for no acknowledgement."""
        return sum(map(len, self.unasked))

    def quantile(self, share: float) -> float | None:
        """Of the times until a frame was acknowledged; None while there are none."""
        found = sorted(self.times)
        return found[min(len(found) - 1, int(share * len(found)))] if found else None


@dataclass
class Waiting:
    """A frame that is not acknowledged yet. `frame`: its bytes, if they may be sent again.

    `repeats`: it is the frame before it once more.
    """

    numbers: range
    at: float
    frame: bytes = b""
    repeats: bool = False


class Connection:
    """One connection of a run. A broken client overrides `begun`, `may_send`, `put`, `returns` and `stopped`."""

    window = WINDOW

    def __init__(
        self,
        target: Target,
        source: Source,
        tally: Tally,
        batch: int,
        timeout: float,
        compression: Compression | None = None,
    ) -> None:
        self.target = target
        self.source = source
        self.tally = tally
        self.timeout = timeout
        self.client = CLIENTS[target.protocol](source.event, compression)
        self.waiting: deque[Waiting] = deque()
        self.progress = time.monotonic()
        self.deaf = False
        """It does not read at the moment."""
        self.idle = asyncio.Event()
        """Nothing waits for its acknowledgement."""
        self.idle.set()
        self.heard = 0
        """Times that something was acknowledged."""
        self.room = asyncio.Semaphore(self.window)
        self._batch = batch
        self._done = 0  # events of the oldest waiting frame that are acknowledged

    async def run(self, stop: asyncio.Event) -> None:
        """Send until the source ends or `stop`, and wait for what is to come. A failure is noted in the tally."""
        while await self._one(stop):
            pass
        self.tally.open += [each.numbers for each in self.waiting if not each.repeats]

    async def _one(self, stop: asyncio.Event) -> bool:
        """One connection to its end; whether another follows it."""
        try:
            channel = await channel_to(self.target, self.timeout)
        except (OSError, TimeoutError) as error:
            self.tally.problems[why_not(self.target, error, self.timeout)] += 1
            return False
        self.begun(channel)
        self.progress = time.monotonic()
        sending = asyncio.create_task(self._send(channel))
        try:
            await self._listen(channel, sending, stop)
        except (OSError, ProtocolError, ServerError, BrokenOffError) as error:
            if await self.returns(error, channel):
                return True
            self.tally.problems[f"{self.target.address} {_what_happened(error)}"] += 1
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.exception()  # it was told by the listener
            channel.abort()
        return False

    def begun(self, channel: Channel) -> None:
        """A connection is there."""

    async def may_send(self) -> None:
        """Wait until the next frame may be made."""

    async def put(self, channel: Channel, numbers: range) -> None:
        """Send these events. It may raise `BrokenOffError`."""
        channel.write(self.made(numbers))
        await channel.drain()

    async def returns(self, error: Exception, channel: Channel) -> bool:
        """Whether it comes again after this."""
        return False

    def stopped(self) -> None:
        """Nothing more is sent."""

    def made(self, numbers: range) -> bytes:
        """The frame of these events, which waits for its acknowledgement from now on."""
        frame = self.client.frame(numbers.start, len(numbers))
        if not self.waiting:
            self.progress = time.monotonic()
        self.waiting.append(Waiting(numbers, time.monotonic()))
        self.idle.clear()
        self.tally.count(len(numbers), frame)
        return frame

    async def _send(self, channel: Channel) -> None:
        await channel.drain()  # what `begun` wrote
        while True:
            await self.room.acquire()
            try:
                await self.may_send()
                numbers = await self.source.take(self._batch)
            except asyncio.CancelledError:  # the next connection has the same room
                self.room.release()
                raise
            if not numbers:
                self.tally.complete = True
                return
            await self.put(channel, numbers)

    async def _listen(self, channel: Channel, sending: asyncio.Task[None], stop: asyncio.Event) -> None:
        reading = asyncio.create_task(channel.read())
        stopped: float | None = None
        try:
            while not (sending.done() and not sending.cancelled() and not sending.exception() and not self.waiting):
                await asyncio.wait(
                    {reading} if sending.done() else {reading, sending}, timeout=_LOOK, return_when="FIRST_COMPLETED"
                )
                now = time.monotonic()
                if reading.done():
                    data = reading.result()
                    if not data:
                        raise ServerClosedError("closed the connection")
                    self._hear(data, now)
                    reading = asyncio.create_task(channel.read())
                if sending.done() and not sending.cancelled() and (error := sending.exception()) is not None:
                    raise error
                if stop.is_set():
                    sending.cancel()
                    self.stopped()
                    stopped = now if stopped is None else stopped
                    if now - stopped > GRACE or not self.waiting:
                        return
                if self.waiting and not self.deaf and now - self.progress > self.timeout:
                    raise ServerError(f"acknowledged nothing for {self.timeout:g} s")
        finally:
            reading.cancel()

    def _hear(self, data: bytes, now: float) -> None:
        if self.target.login is None and self.target.protocol == "forward" and data.startswith(HELO):
            raise ServerError("asks for a login: name the shared key with --shared-key-file")
        try:
            done = self.client.receive(data)
        except (KeyError, IndexError):
            raise ServerError("acknowledged what was not sent") from None
        if not done:
            return
        self.progress = now
        self.heard += 1
        self._done += done
        while self.waiting and self._done >= len(self.waiting[0].numbers):
            frame = self.waiting.popleft()
            self._done -= len(frame.numbers)
            if not frame.repeats:
                self.tally.acknowledged += len(frame.numbers)
                self.tally.times.append(now - frame.at)
                self.room.release()
        if not self.waiting:
            self.idle.set()


class BrokenOffError(Exception):
    """The connection is broken off on purpose."""


class ServerError(Exception):
    """What the server did."""


class ServerClosedError(ServerError):
    """It ended the connection."""


def _what_happened(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "reset the connection"
    if isinstance(error, ProtocolError):
        return f"answered what it should not: {error}"
    return str(error)
