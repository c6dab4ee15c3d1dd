"""The connections of a run: each sends frames, at most a window of them unacknowledged, and listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import Answer, Compression

from headrace_cli.wire.channel import Channel, channel_to
from headrace_cli.wire.send.source import Source
from headrace_cli.wire.target import Target, client_of, why_not

WINDOW: Final = 32
"""Frames of a connection that are not acknowledged yet, at most."""
GRACE: Final = 2.0
"""Seconds that acknowledgements have after Ctrl-C."""
KEPT: Final = 100_000
"""Frames whose time is kept, the latest."""
_LOOK: Final = 0.1


@dataclass
class Tally:
    """The outcome of a run. Times in seconds; `open`: frames that were sent and not acknowledged, by their numbers."""

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
        return self.sent - self.acknowledged

    def quantile(self, share: float) -> float | None:
        """Of the times until a frame was acknowledged; None while there are none."""
        found = sorted(self.times)
        return found[min(len(found) - 1, int(share * len(found)))] if found else None


@dataclass
class Waiting:
    """A frame that is not acknowledged as a whole: its events' numbers, when it was sent, and how far it is acknowledged."""

    numbers: range
    at: float
    count: int = 0


class Connection:
    """One connection of a run."""

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
        self.client = client_of(target.protocol)(compression)
        self.waiting: dict[int, Waiting] = {}
        """By the frames' numbers, in the order in which they were made."""
        self.progress = time.monotonic()
        self.room = asyncio.Semaphore(self.window)
        self._batch = min(batch, self.client.batch)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until the source ends or `stop`, and wait for what is to come. A failure is noted in the tally."""
        self.note(await self.converse(stop))

    async def converse(self, stop: asyncio.Event) -> Exception | None:
        """One connection to its end; why it ended, if that was not in order."""
        try:
            channel = await channel_to(self.target, self.timeout)
        except (OSError, TimeoutError) as error:
            return NoConnectionError(why_not(self.target, error, self.timeout))
        self.begun(channel)
        self.progress = time.monotonic()
        sending = asyncio.create_task(self._send(channel))
        try:
            await self._listen(channel, sending, stop)
        except (OSError, ProtocolError, ServerError) as error:
            return error
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.exception()  # it was told by the listener
            channel.abort()
        return None

    def note(self, error: Exception | None) -> None:
        if isinstance(error, NoConnectionError):
            self.tally.problems[str(error)] += 1
        elif error is not None:
            self.tally.problems[f"{self.target.address} {_what_happened(error)}"] += 1
        self.tally.open += [each.numbers for each in self.waiting.values()]

    def begun(self, channel: Channel) -> None:
        """Say what a new connection begins with."""
        if greeting := self.client.again():
            channel.write(greeting)

    async def put(self, channel: Channel, numbers: range) -> None:
        channel.write(self.made(numbers))
        await channel.drain()

    def made(self, numbers: range) -> bytes:
        """The frame of these events, which waits for its acknowledgement from now on."""
        name = self.client.made
        frame = self.client.frame([self.source.event(number) for number in numbers])
        if not self.waiting:
            self.progress = time.monotonic()
        self.waiting[name] = Waiting(numbers, time.monotonic())
        self.tally.count(len(numbers), frame)
        return frame

    async def _send(self, channel: Channel) -> None:
        await channel.drain()  # what `begun` wrote
        while True:
            await self.room.acquire()
            try:
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
                    stopped = now if stopped is None else stopped
                    if now - stopped > GRACE or not self.waiting:
                        return
                if self.waiting and now - self.progress > self.timeout:
                    raise ServerError(f"acknowledged nothing for {self.timeout:g} s")
        finally:
            reading.cancel()

    def _hear(self, data: bytes, now: float) -> None:
        for answer in self.client.receive(data):
            if isinstance(answer, Answer):
                self.taken(answer, now)

    def taken(self, answer: Answer, now: float) -> None:
        """The server has acknowledged events of a frame."""
        frame = self.waiting.get(answer.frame)
        if frame is None:
            raise ServerError("acknowledged what was not sent")
        if answer.count > frame.count:
            frame.count, self.progress = answer.count, now
        if answer.whole:
            del self.waiting[answer.frame]
            self.tally.acknowledged += len(frame.numbers)
            self.tally.times.append(now - frame.at)
            self.room.release()


class NoConnectionError(Exception):
    """There is no connection; says why."""


class ServerError(Exception):
    """The server broke the conversation; says how."""


class ServerClosedError(ServerError):
    """It ended the connection."""


def _what_happened(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "reset the connection"
    if isinstance(error, ProtocolError):
        return f"answered what it should not: {error}"
    return str(error)
