"""The connections of a run: each sends frames, at most a window of them unacknowledged, and listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import Answer

from headrace_cli.wire.channel import Channel, channel_to
from headrace_cli.wire.source import EventSource
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
    """The outcome of a run. Times in seconds."""

    began: float = field(default_factory=time.monotonic)
    sent: int = 0
    acknowledged: int = 0
    frames: int = 0
    size: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    problems: Counter[str] = field(default_factory=Counter)
    took: float = 0.0
    complete: bool = False
    """Nothing is left to be sent."""

    def count(self, events: int, frame: bytes) -> None:
        """Count a frame that is sent."""
        self.sent += events
        self.frames += 1
        self.size += len(frame)

    @property
    def fine(self) -> bool:
        """Whether all was sent, or all until it was stopped, and is acknowledged."""
        return not self.in_flight and (self.complete or not self.problems)

    @property
    def in_flight(self) -> int:
        """Events that wait for their acknowledgement, or never got one."""
        return self.sent - self.acknowledged

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the times until a frame was acknowledged; None before the first."""
        found = sorted(self.times)
        return found[min(len(found) - 1, int(share * len(found)))] if found else None


@dataclass
class SentFrame:
    """A frame that is not acknowledged as a whole: its events, when it was sent, and how far it is acknowledged."""

    events: int
    at: float
    count: int = 0


class Connection:
    """One connection of a run."""

    def __init__(
        self,
        target: Target,
        source: EventSource,
        tally: Tally,
        batch: int,
        timeout: float,
    ) -> None:
        self._target = target
        self._source = source
        self._tally = tally
        self._timeout = timeout
        self._client = client_of(target.protocol)()
        self._waiting: dict[int, SentFrame] = {}  # by the frames' numbers
        self._progress = time.monotonic()
        self._room = asyncio.Semaphore(WINDOW)
        self._all_sent = False
        self._batch = min(batch, self._client.batch)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until the source ends or `stop`, and wait for the answers. A failure is noted in the tally."""
        try:
            channel = await channel_to(self._target, self._timeout)
        except (OSError, TimeoutError) as error:
            self._tally.problems[why_not(self._target, error, self._timeout)] += 1
            return
        sending, listening = asyncio.create_task(self._send(channel)), asyncio.create_task(self._listen(channel))
        try:
            await self._watch(sending, listening, stop)
        except (OSError, ProtocolError, ServerError) as error:
            self._tally.problems[f"{self._target.address} {_what_happened(error)}"] += 1
        finally:
            sending.cancel()
            listening.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)
            channel.abort()

    async def _watch(self, sending: asyncio.Task[None], listening: asyncio.Task[None], stop: asyncio.Event) -> None:
        """Wait until all is sent and acknowledged, or `GRACE` seconds after `stop`. Raises what ends the connection before."""
        stopped: float | None = None
        while self._waiting or not sending.done():
            running = {task for task in (listening, sending) if not task.done()}
            await asyncio.wait(running, timeout=_LOOK, return_when="FIRST_COMPLETED")
            for task in (listening, sending):
                if task.done() and not task.cancelled():
                    task.result()
            now = time.monotonic()
            if stop.is_set():
                sending.cancel()
                stopped = now if stopped is None else stopped
                if now - stopped > GRACE:
                    return
            if self._waiting and now - self._progress > self._timeout:
                raise ServerError(f"acknowledged nothing for {self._timeout:g} s")

    async def _send(self, channel: Channel) -> None:
        await channel.send(self._client.again())
        while True:
            await self._room.acquire()
            events = await self._source.take(self._batch)
            if not events:
                self._tally.complete = self._all_sent = True
                return
            name = self._client.made
            frame = self._client.frame(events)
            now = time.monotonic()
            if not self._waiting:
                self._progress = now
            self._waiting[name] = SentFrame(len(events), now)
            self._tally.count(len(events), frame)
            await channel.send(frame)

    async def _listen(self, channel: Channel) -> None:
        """Take acknowledgements until all is acknowledged. Raise `ServerError` if the server ends the connection before."""
        while data := await channel.read():
            for answer in self._client.receive(data):
                if isinstance(answer, Answer):
                    self._take(answer, time.monotonic())
            if self._all_sent and not self._waiting:
                return
        raise ServerError("closed the connection")

    def _take(self, answer: Answer, now: float) -> None:
        """Note that the server has acknowledged events of a frame."""
        frame = self._waiting.get(answer.frame)
        if frame is None:
            raise ServerError("acknowledged a frame that was not sent")
        if answer.count > frame.count:
            frame.count, self._progress = answer.count, now
        if answer.whole:
            del self._waiting[answer.frame]
            self._tally.acknowledged += frame.events
            self._tally.times.append(now - frame.at)
            self._room.release()


class ServerError(Exception):
    """The server broke the conversation; says how."""


def _what_happened(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "reset the connection"
    if isinstance(error, ProtocolError):
        return f"answered against the protocol: {error}"
    return str(error)
