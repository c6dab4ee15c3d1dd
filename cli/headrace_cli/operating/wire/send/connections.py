"""The connections of a run: each sends frames, at most a window of them unacknowledged, and listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from headrace_common.operations.errors import ProtocolError

from headrace_cli.clients.protocols import DEMO_CLIENTS
from headrace_cli.operating.wire.address import Target, why_not
from headrace_cli.operating.wire.send.source import Source

WINDOW: Final = 32
"""Frames of a connection that are not acknowledged yet, at most."""
GRACE: Final = 2.0
"""Seconds that acknowledgements have after Ctrl-C."""
KEPT: Final = 100_000
"""Frames whose time is kept, the latest."""
_LOOK: Final = 0.1
_READ: Final = 65_536


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


class Connection:
    """One connection of a run."""

    def __init__(self, target: Target, source: Source, tally: Tally, batch: int, timeout: float) -> None:
        self._target = target
        self._source = source
        self._tally = tally
        self._batch = batch
        self._timeout = timeout
        self._client = DEMO_CLIENTS[target.protocol](source.event)
        self._waiting: deque[tuple[range, float]] = deque()
        self._done = 0  # events of the oldest waiting frame that are acknowledged
        self._room = asyncio.Semaphore(WINDOW)
        self._progress = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until the source ends or `stop`, and wait for what is to come. A failure is noted in the tally."""
        try:
            async with asyncio.timeout(self._timeout):
                reader, writer = await asyncio.open_connection(
                    self._target.host, self._target.port, ssl=self._target.tls
                )
        except (OSError, TimeoutError) as error:
            self._tally.problems[why_not(self._target, error, self._timeout)] += 1
            return
        sending = asyncio.create_task(self._send(writer))
        try:
            await self._listen(reader, sending, stop)
        except (OSError, ProtocolError, _ServerError) as error:
            self._tally.problems[f"{self._target.address} {_what_happened(error)}"] += 1
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.exception()  # it was told by the listener
            self._tally.open += [numbers for numbers, _ in self._waiting]
            writer.transport.abort()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._room.acquire()
            numbers = await self._source.take(self._batch)
            if not numbers:
                self._tally.complete = True
                return
            frame = self._client.frame(numbers.start, len(numbers))
            if not self._waiting:
                self._progress = time.monotonic()
            self._waiting.append((numbers, time.monotonic()))
            self._tally.sent += len(numbers)
            self._tally.frames += 1
            self._tally.size += len(frame)
            writer.write(frame)
            await writer.drain()

    async def _listen(self, reader: asyncio.StreamReader, sending: asyncio.Task[None], stop: asyncio.Event) -> None:
        reading = asyncio.create_task(reader.read(_READ))
        stopped: float | None = None
        try:
            while not (sending.done() and not self._waiting):
                await asyncio.wait(
                    {reading} if sending.done() else {reading, sending}, timeout=_LOOK, return_when="FIRST_COMPLETED"
                )
                now = time.monotonic()
                if reading.done():
                    data = reading.result()
                    if not data:
                        raise _ServerError("closed the connection")
                    self._hear(data, now)
                    reading = asyncio.create_task(reader.read(_READ))
                if sending.done() and not sending.cancelled() and (error := sending.exception()) is not None:
                    raise error
                if stop.is_set():
                    sending.cancel()
                    stopped = now if stopped is None else stopped
                    if now - stopped > GRACE or not self._waiting:
                        return
                if self._waiting and now - self._progress > self._timeout:
                    raise _ServerError(f"acknowledged nothing for {self._timeout:g} s")
        finally:
            reading.cancel()

    def _hear(self, data: bytes, now: float) -> None:
        try:
            done = self._client.receive(data)
        except (KeyError, IndexError):
            raise _ServerError("acknowledged what was not sent") from None
        if not done:
            return
        self._progress = now
        self._tally.acknowledged += done
        self._done += done
        while self._waiting and self._done >= len(self._waiting[0][0]):
            numbers, sent_at = self._waiting.popleft()
            self._done -= len(numbers)
            self._tally.times.append(now - sent_at)
            self._room.release()


class _ServerError(Exception):
    """What the server did."""


def _what_happened(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "reset the connection"
    if isinstance(error, ProtocolError):
        return f"answered what it should not: {error}"
    return str(error)
