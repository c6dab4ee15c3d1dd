"""A connection of a broken client: it sends all that a sound one sends, and plays a fault on every N-th frame."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from typing import Final

from headrace_cli.wire.channel import Channel, StreamChannel
from headrace_cli.wire.send.connections import Connection, ServerClosedError, ServerError, Tally
from headrace_cli.wire.send.source import Source
from headrace_cli.wire.target import Target
from headrace_common.session.client import Answer
from typing_extensions import override

from tests.broken.beside import Beside, leave, unheard
from tests.broken.faults import BESIDE, Fault, Kind, Played

RETURNS: Final = 10
"""Connections in a row that the server may end before it acknowledges anything, until the client stays away."""
SLOW_WINDOW: Final = 1024
"""Frames that a slow reader sends ahead."""
RECEIVE_BUFFER: Final = 4096
"""Bytes that its kernel takes in for it, about."""
_RETURN: Final = 0.1


RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s


def option(channel: StreamChannel, name: int, value: int | bytes) -> None:
    """Sets an option of a connection's socket, if it is still there."""
    with contextlib.suppress(OSError):
        channel.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, name, value)


class BrokenOffError(ServerError):
    """The connection is broken off on purpose."""


class FaultyConnection(Connection):
    """After a connection that it broke off, or that the server ended, it comes again and sends what is unacknowledged again."""

    def __init__(
        self, target: Target, source: Source, tally: Tally, batch: int, timeout: float, played: Played, beside: Beside
    ) -> None:
        if played.fault.kind is Kind.SLOW_READER:
            self.window = SLOW_WINDOW
        super().__init__(target, source, tally, batch, timeout)
        self._fault = played.fault
        self._played = played
        self._beside = beside
        self._numbered = 0
        self._sent: dict[int, bytes] = {}
        self._copies: dict[int, int] = {}
        """Answers that a frame has yet to get beside its first, because it was sent more than once."""
        self._heard = self._heard_before = self._came_back = 0
        self._channel: Channel | None = None
        self._broke_off = False
        self._hearing: asyncio.TimerHandle | None = None

    @override
    def begun(self, channel: Channel) -> None:
        self._channel = channel
        if self._fault.kind is Kind.SLOW_READER and isinstance(channel, StreamChannel):
            option(channel, socket.SO_RCVBUF, RECEIVE_BUFFER)
        super().begun(channel)
        self._copies.clear()
        for frame in self.waiting:
            self.client.repeat(frame)
            channel.write(self._sent[frame])
        self._played.again += len(self.waiting)

    @override
    async def put(self, channel: Channel, numbers: range) -> None:
        self._numbered += 1
        kind, due = self._fault.kind, self._numbered % self._fault.every == 0
        if due and kind is Kind.NO_ACK:
            await self._leave(numbers)
            return
        while due and kind is Kind.HALF_FRAME and self.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # so that nothing but this frame is sent twice
        data = self.made(numbers)
        frame = next(reversed(self.waiting))
        self._sent = {known: self._sent.get(known, data) for known in self.waiting}
        if due and kind is Kind.HALF_FRAME:
            channel.write(data[: len(data) // 2])
            self._broke_off = True
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self.timeout):
                    await channel.close()
            raise BrokenOffError
        channel.write(data)
        if due and kind is Kind.RESEND:
            self.client.repeat(frame)
            self._copies[frame] = 1
            channel.write(data)
            self._played.times += 1
            self._played.again += 1
        await channel.drain()
        if due and kind is Kind.CUT:
            if isinstance(channel, StreamChannel):
                option(channel, socket.SO_LINGER, RESET)
            raise BrokenOffError
        if due and kind is Kind.SLOW_READER and self._hearing is None:
            self._deafen(channel)
        if due and kind in BESIDE:
            self._beside.start()

    async def _leave(self, numbers: range) -> None:
        frame = unheard(self.target.protocol, [self.source.event(number) for number in numbers])
        self._played.unasked.append(numbers)
        self._played.times += 1
        try:
            self._played.answers[await leave(self.target, frame, self.timeout)] += 1
        finally:
            self.room.release()

    @override
    def taken(self, answer: Answer, now: float) -> None:
        if answer.frame not in self.waiting and self._copies.get(answer.frame):
            self._copies[answer.frame] -= answer.whole
            return
        self._heard += answer.whole
        super().taken(answer, now)

    @override
    async def run(self, stop: asyncio.Event) -> None:
        while (error := await self.converse(stop)) is not None and await self._returns(error):
            pass
        self.note(error)

    async def _returns(self, error: Exception) -> bool:
        """Whether it comes again after this."""
        self._hear_again()
        if isinstance(error, BrokenOffError) or self._broke_off:
            self._broke_off = False
            self._played.times += 1
            return True
        if not isinstance(error, ServerClosedError | OSError):
            return False
        self._played.closed += 1
        self._came_back = 1 if self._heard > self._heard_before else self._came_back + 1
        self._heard_before = self._heard
        if self._came_back > RETURNS:
            return False
        await asyncio.sleep(_RETURN)
        return True

    # A slow reader

    def _deafen(self, channel: Channel) -> None:
        self._played.times += 1
        self.progress = time.monotonic() + self._fault.pause
        if isinstance(channel, StreamChannel):
            channel.writer.transport.pause_reading()  # type: ignore[attr-defined]
        self._hearing = asyncio.get_running_loop().call_later(self._fault.pause, self._hear_again)

    def _hear_again(self) -> None:
        if self._hearing is None:
            return
        self._hearing.cancel()
        self._hearing = None
        self.progress = time.monotonic()
        if isinstance(self._channel, StreamChannel) and not self._channel.writer.transport.is_closing():
            self._channel.writer.transport.resume_reading()  # type: ignore[attr-defined]


async def play(
    target: Target, source: Source, fault: Fault, batch: int, patience: float = 60.0, stop: asyncio.Event | None = None
) -> tuple[Tally, Played]:
    """Sends all that `source` has over one connection that plays the fault; what was done, and what came of it."""
    tally, played, stop = Tally(), Played(fault), stop or asyncio.Event()
    beside = Beside(target, played, patience)
    await FaultyConnection(target, source, tally, batch, patience, played, beside).run(stop)
    await beside.finish(stop)
    return tally, played
