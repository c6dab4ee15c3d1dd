"""The connections of a run: each sends frames, at most a window of them unacknowledged, and listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import Answer

from headrace_cli.wire.channel import Channel, channel_to
from headrace_cli.wire.source import EventSource
from headrace_cli.wire.target import Target, client_of, why_not

WINDOW: Final = 32
"""Frames of a connection that are not acknowledged yet, at most."""
KEPT: Final = 100_000
"""Frames whose time is kept, the latest."""


@dataclass
class Tally:
    """The outcome of a run. Times in seconds."""

    run: str = ""
    """What its events are marked with."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    sent: int = 0
    acknowledged: int = 0
    frames: int = 0
    size: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    problems: Counter[str] = field(default_factory=Counter)
    took: float = 0.0
    complete: bool = False
    """Nothing is left to be sent."""

    @property
    def fine(self) -> bool:
        """Whether all was sent and acknowledged."""
        return self.complete and not self.in_flight

    @property
    def in_flight(self) -> int:
        """Events that wait for their acknowledgement, or never got one."""
        return self.sent - self.acknowledged

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the times until a frame was acknowledged; None before the first."""
        found = sorted(self.times)
        return found[min(len(found) - 1, int(share * len(found)))] if found else None


class Connection:
    """One connection of a run."""

    def __init__(self, target: Target, source: EventSource, tally: Tally, batch: int, timeout: float) -> None:
        self._target = target
        self._source = source
        self._tally = tally
        self._timeout = timeout
        self._client = client_of(target.protocol)()
        self._batch = min(batch, self._client.batch)
        self._waiting: dict[int, tuple[int, float]] = {}  # events and moment of each frame, by the frames' numbers
        self._room = asyncio.Semaphore(WINDOW)
        self._patience = asyncio.timeout(None)  # until the next acknowledgement, if something waits for one

    async def run(self) -> None:
        """Send until the source ends, and wait for the answers. A failure is noted in the tally."""
        try:
            channel = await channel_to(self._target, self._timeout)
        except (OSError, TimeoutError) as error:
            self._tally.problems[why_not(self._target, error, self._timeout)] += 1
            return
        sending, listening = asyncio.create_task(self._send(channel)), asyncio.create_task(self._listen(channel))
        try:
            async with self._patience:
                done, _ = await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in (listening, sending):
                if task in done and not (sending in done and sending.exception() is None):
                    task.result()
        except TimeoutError:
            self._fail(f"acknowledged nothing for {self._timeout:g} s")
        except ConnectionError:
            self._fail("reset the connection")
        except ProtocolError as error:
            self._fail(f"answered against the protocol: {error}")
        except (OSError, EOFError) as error:
            self._fail(str(error))
        finally:
            sending.cancel()
            listening.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)
            channel.abort()

    def _fail(self, what_happened: str) -> None:
        self._tally.problems[f"{self._target.address} {what_happened}"] += 1

    async def _send(self, channel: Channel) -> None:
        """Send all that the source has. Returns when all is acknowledged."""
        await channel.send(self._client.again())
        while True:
            await self._room.acquire()
            events = await self._source.take(self._batch)
            if not events:
                break
            number = self._client.made
            frame = self._client.frame(events)
            now = time.monotonic()
            if not self._waiting:
                self._patience.reschedule(now + self._timeout)
            self._waiting[number] = len(events), now
            self._tally.sent += len(events)
            self._tally.frames += 1
            self._tally.size += len(frame)
            await channel.send(frame)
        self._tally.complete = True
        for _ in range(WINDOW - 1):
            await self._room.acquire()

    async def _listen(self, channel: Channel) -> None:
        """Take acknowledgements. Raises `EOFError` when the server ends the connection."""
        while data := await channel.read():
            for answer in self._client.receive(data):
                if isinstance(answer, Answer):
                    self._take(answer, time.monotonic())
        raise EOFError("closed the connection")

    def _take(self, answer: Answer, now: float) -> None:
        """Note that the server has acknowledged events of a frame; a keep-alive, which covers none, is no progress."""
        if answer.frame not in self._waiting:
            raise ProtocolError("an acknowledgement of a frame that does not wait for one")
        events, sent = self._waiting[answer.frame]
        if answer.whole:
            del self._waiting[answer.frame]
            self._tally.acknowledged += events
            self._tally.times.append(now - sent)
            self._room.release()
        if answer.count:
            self._patience.reschedule(now + self._timeout if self._waiting else None)
