"""A Courier client as its protocol sheet describes log-courier's: the bytes by our encoder, the rules by its own state.

It says HELO and waits for VERS; keeps payloads in flight; believes an ACKN only where it may rise; gives up a connection that
has said nothing of a known nonce for `timeout` seconds; and sends what is pending again, with the same nonce, without the
acknowledged beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace_courier.replies import Acknowledged, PlainReply, Replies, Version
from headrace_courier.wire import evnt, identity, jdat

from tests.contract.waiting import PATIENCE


@dataclass
class Parcel:
    """A payload as its client keeps it: `events` are those not acknowledged when it was sent last."""

    nonce: bytes
    events: list[bytes]
    streamed: bool = False
    acknowledged: int = 0
    """Of `events`, from their start."""

    @property
    def partly(self) -> bool:
        return 0 < self.acknowledged < len(self.events)

    @property
    def complete(self) -> bool:
        return self.acknowledged == len(self.events)

    def data(self) -> bytes:
        return (evnt if self.streamed else jdat)(self.nonce, self.events)

    def drop_acknowledged(self) -> None:
        """Before it is sent again."""
        self.events = self.events[self.acknowledged :]
        self.acknowledged = 0


def parcel(events: list[bytes], streamed: bool = False) -> Parcel:
    return Parcel(os.urandom(16), events, streamed)


@dataclass
class Heard:
    """One ACKN."""

    at: float
    nonce: bytes
    count: int


@dataclass
class CourierClient:
    """One endpoint. `pending` lives on over its connections."""

    address: tuple[str, int]
    timeout: float = PATIENCE
    pending: dict[bytes, Parcel] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)
    pongs: int = 0
    complaints: int = 0
    connections: int = 0
    timed_out: int = 0
    ended: bool = True
    finished: set[bytes] = field(default_factory=set)

    async def connect(self) -> None:
        """A new connection, and its handshake. What is pending is not sent yet."""
        self._reader, self._writer = await asyncio.open_connection(*self.address)
        self._replies = Replies()
        self._news = asyncio.Condition()
        self._version: Version | None = None
        self.ended = False
        self.connections += 1
        self._last_word = time.monotonic()
        self._reading = asyncio.create_task(self._read())
        await self.write(identity(b"HELO", "2.12.0", b"LCOR"))
        await self.until(lambda: self._version is not None)
        assert self._version is not None
        assert self._version.evnt

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, item: Parcel) -> None:
        self.pending[item.nonce] = item
        await self.write(item.data())

    async def send_again(self) -> None:
        """All that is pending, oldest first."""
        for item in list(self.pending.values()):
            item.drop_acknowledged()
            if item.events:
                await self.write(item.data())
            else:
                del self.pending[item.nonce]

    def kill(self) -> None:
        """Cuts the connection without a word. What was not read yet is never read."""
        self._reading.cancel()
        self._writer.transport.abort()
        self.ended = True

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Waits until `condition`, looked at after each reply, is true or the connection has ended; whether it is true.

        However late the client reads: of several replies that came together it has heard none behind that one.
        """
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: condition() or self.ended)
        if self._reading.done() and not self._reading.cancelled():
            self._reading.result()
        return condition()

    async def all_acknowledged(self, seconds: float = PATIENCE) -> None:
        assert await self.until(lambda: not self.pending, seconds), f"closed with {len(self.pending)} payloads pending"

    async def _read(self) -> None:
        try:
            while True:
                left = self._last_word + self.timeout - time.monotonic() if self.pending else None
                try:
                    async with asyncio.timeout(left):
                        data = await self._reader.read(65536)
                except TimeoutError:
                    if self.pending and time.monotonic() >= self._last_word + self.timeout:
                        self.timed_out += 1
                        self._writer.transport.abort()
                        return
                    continue
                if not data:
                    return
                for reply in self._replies.receive(data):
                    self._hear(reply)
                    async with self._news:
                        self._news.notify_all()
                    await asyncio.sleep(0)  # who waits for this reply acts before the next one is heard
        except ConnectionError:
            pass
        finally:
            self.ended = True
            async with self._news:
                self._news.notify_all()

    def _hear(self, reply: Acknowledged | Version | PlainReply) -> None:
        if isinstance(reply, Version):
            assert self._version is None
            self._version = reply
        elif reply is PlainReply.PONG:
            self.pongs += 1
        elif reply is PlainReply.UNKNOWN:
            self.complaints += 1
        else:
            assert isinstance(reply, Acknowledged)
            item = self.pending.get(reply.nonce)
            assert item is not None, "an ACKN for what is not pending"
            assert item is next(iter(self.pending.values())), "an ACKN out of order"
            assert item.acknowledged <= reply.count <= len(item.events)
            self._last_word = time.monotonic()
            self.heard.append(Heard(self._last_word, reply.nonce, reply.count))
            item.acknowledged = reply.count
            if item.complete:
                del self.pending[reply.nonce]
                self.finished.add(reply.nonce)


def longest_silence(heard: list[Heard], since: float, until: float) -> float:
    """Seconds between two ACKNs, at most, from `since` to `until`."""
    times = [since, *(each.at for each in heard if since <= each.at <= until), until]
    return max(after - before for before, after in itertools.pairwise(times))
