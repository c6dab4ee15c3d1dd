"""Connections between clients and a process: bytes arrive in pieces, late, and sometimes the connection is gone before they do.

Each direction keeps order and loses nothing, as TCP does, until its connection ends. How a connection ends follows Linux: a close
with bytes that were not read is a reset, and a reset may take what the other side had not read yet with it.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.loop import OWNER, WORLD, Mortal, SimulatedLoop

SILENT_UNTIL = 120.0
"""Seconds after which the kernel gives up a peer that is gone: the receivers ask for keep-alives."""


@dataclass
class Line:
    """How a connection behaves. Times in seconds, sizes in bytes."""

    latency: tuple[float, float] = (0.0001, 0.002)
    piece: int = 1 << 16
    """Longest piece; a piece has any length up to it."""
    buffer: int = 1 << 16
    """What each direction holds before its writer must wait."""
    cut_after: int | None = None
    """Bytes from the client after which the connection is reset."""
    vanishes: bool = False
    """It is not reset but silent: nothing arrives any more, at either end."""


class End(asyncio.Transport):
    """One end of a connection, as asyncio gives it to a protocol, and before that an accepted socket.

    It has what is on its way to it, in order. `version`: what the other side knew when it wrote what was read last.
    """

    peer: End

    def __init__(self, network: Network, line: Line, chance: random.Random, name: tuple[str, int]) -> None:
        """`name`: the client's address and port."""
        super().__init__()
        self._network, self._loop, self.line, self._chance = network, network.loop, line, chance
        self.name = name
        self.owner: Any = None  # the process that accepted it; nobody kills a client
        self._protocol: Any = None
        self._coming: deque[tuple[bytes, int]] = deque()
        self.size = 0  # bytes that are coming
        self.version = 0
        self._end_version: int | None = None  # the other side writes no more: what it knew then
        self._moving = self._told_end = self._lossy = False
        self._closing = self._lost = self._paused = self._is_reset = self._stopped = False
        self._sent = 0
        self.severed = False  # what is written from now on goes nowhere

    @property
    def address(self) -> str:
        """The client's, as `ce_source` names it."""
        return self.name[0]

    def _soon(self, seconds: tuple[float, float], work: Callable[[], None]) -> None:
        """Whatever the network does happens whether or not a process is alive."""
        self._loop.call_later(self._chance.uniform(*seconds), work, context=WORLD.copy())

    def _call(self, work: Callable[..., Any], *args: Any) -> Any:
        if self._lost or (self.owner is not None and self.owner.dead):
            return None
        return work(*args) if self.owner is None else self.owner.context.copy().run(work, *args)

    # As a socket, before it is handed to a protocol

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *option: Any) -> None:
        pass

    def accepted(self, owner: Mortal) -> None:
        self.owner = owner
        owner.ends[self] = None  # type: ignore[attr-defined]

    def connect(self, protocol: Any) -> None:
        """`loop.connect_accepted_socket`, in the owner's context."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self._is_reset:
            self._lose(ConnectionResetError())
        else:
            self._move()

    # What comes

    def _move(self) -> None:
        reads = self._lost or (self._protocol is not None and not (self._paused or self._closing))
        more = self._coming or self._end_version is not None
        if reads and more and not (self._moving or self._lossy or self._told_end):
            self._moving = True
            self._soon(self.line.latency, self._arrive)

    def _arrive(self) -> None:
        self._moving = False
        if self._lossy or self._told_end or ((self._paused or self._closing) and not self._lost):
            return
        if not self._coming:
            self._told_end, self.version = True, self._end_version or 0
            is_taken = self._protocol is not None  # else its process died first
            if is_taken and not self._closing and not self._call(self._protocol.eof_received):
                self.close()
            return
        data, version = self._coming.popleft()
        cut = min(self.line.piece, len(data))
        if self._chance.random() < (0.2 if cut == len(data) else 0.5):
            cut = self._chance.randint(1, cut)
        if cut < len(data):
            self._coming.appendleft((data[cut:], version))
            data = data[:cut]
        self.size -= len(data)
        if self._lost:  # nobody reads here any more
            self.peer.meets_reset()
            return
        self.version = version
        self._call(self._protocol.data_received, data)
        self.peer.drained()
        self._move()

    def drained(self) -> None:
        """Something of what this side has written was read."""
        if self._is_reset:
            return
        if self._stopped and self.peer.size <= self.line.buffer // 4:
            self._stopped = False
            self._call(self._protocol.resume_writing)
        self._end_if_written()

    def forget(self) -> None:
        """What is on its way here never arrives."""
        self._lossy = True
        self._coming.clear()
        self.size = 0

    def reset(self) -> None:
        """The connection is gone. A paused transport does not notice before it reads or writes."""
        self._is_reset = True
        if self._protocol is not None and (not self._paused or self._closing):
            self._lose(ConnectionResetError())

    def meets_reset(self) -> None:
        """The other side's kernel sends a reset; it may overtake what was not read here."""
        self.peer.forget()
        if self._chance.random() < 0.7:
            self.forget()
        self._soon(self.line.latency, self.reset)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = True
        protocol = self._protocol

        def lost() -> None:
            if not self._lost:
                self._lost = True
                protocol.connection_lost(error)
                self._move()

        self._loop.call_soon(lost, context=WORLD.copy() if self.owner is None else self.owner.context.copy())

    # As a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if not self._closing:
            self._paused = False
            self._begin()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_shut(), "written after its own end"
        if self._is_reset:
            self._lose(ConnectionResetError())
        elif not self._lost:
            self.peer.comes(self._until_cut(bytes(data)), self._network.version())
            if not self._stopped and self.peer.size > self.line.buffer:
                self._stopped = True
                self._protocol.pause_writing()

    def _until_cut(self, data: bytes) -> bytes:
        """As much of a client's bytes as come before its connection is cut."""
        if self.owner is not None or self.line.cut_after is None:
            return data
        at, self._sent = self._sent, self._sent + len(data)
        if self._sent >= self.line.cut_after and not self.severed:
            self.severed = True
            self._soon((0, 0.05), self._vanish if self.line.vanishes else self._cut)
        return data[: max(0, self.line.cut_after - at)]

    def _vanish(self) -> None:
        for end in (self, self.peer):
            end.forget()
        self._soon((SILENT_UNTIL, SILENT_UNTIL), self._cut)

    def _cut(self) -> None:
        """The network drops it: both ends hear, the one that does not read only when it writes or reads again."""
        for end in (self, self.peer):
            end.forget()
            end.reset()

    def comes(self, data: bytes, version: int) -> None:
        """The other side has written something."""
        if data and not self._lossy:
            self._coming.append((data, version))
            self.size += len(data)
            self._move()

    def write_eof(self) -> None:
        if not self.is_shut():
            self.peer.ends(self._network.version())

    def ends(self, version: int) -> None:
        """The other side writes no more."""
        self._end_version = version
        self._move()

    def is_shut(self) -> bool:
        """Whether its own side has ended: a write would fail."""
        return self.peer._end_version is not None

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if self._protocol is None:  # a socket that nobody took
                self.died()
            self._end_if_written()

    def _end_if_written(self) -> None:
        if self._closing and not self._lost and self.peer.size <= self.line.buffer:
            self._over()
            self._lose(None)

    def abort(self) -> None:
        if not self._lost:
            self.peer.meets_reset()
            self._lose(None)

    def _over(self) -> None:
        """The kernel closes the socket: where something was not read, or still comes, this is a reset."""
        if self.size and not self._is_reset:
            self.peer.meets_reset()
        else:
            self.write_eof()

    def died(self) -> None:
        """Its process is dead: the kernel closes what it had."""
        if not self._lost:
            self._lost = True
            self._over()


class ClientEnd(asyncio.Protocol):
    """A client's end. Raises `ConnectionError` once the connection is gone."""

    def __init__(self, end: End) -> None:
        self._end = end
        self.address = end.address
        self._changed = asyncio.Event()
        self._arrived: deque[tuple[bytes, int]] = deque()
        self._gone = self._ended = self._full = False
        end.connect(self)
        end.pause_reading()

    @property
    def receiver(self) -> Any:
        """The process that accepted it, or None."""
        return self._end.peer.owner

    @property
    def broken(self) -> bool:
        """What was sent may be lost with the connection."""
        return self._gone or self._end.severed

    def data_received(self, data: bytes) -> None:
        self._end.pause_reading()  # until the client asks for more
        self._arrived.append((data, self._end.version))
        self._changed.set()

    def eof_received(self) -> bool:
        self._ended = True
        self._changed.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = exc is not None  # else it has closed itself
        self._changed.set()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def send(self, data: bytes) -> None:
        """Waits while the receiver does not read."""
        while self._full and not self._gone:
            await self._change()
        if self._gone or self._end.is_closing():
            raise ConnectionResetError
        self._end.write(data)

    async def read(self) -> tuple[bytes, int]:
        """The next piece, and what the receiver's version was; no bytes: the end."""
        while True:
            if self._arrived:
                return self._arrived.popleft()
            if self._gone or self._end.is_closing():
                raise ConnectionResetError
            if self._ended:
                return b"", self._end.version
            self._end.resume_reading()
            await self._change()

    def write_eof(self) -> None:
        self._end.write_eof()

    def close(self) -> None:
        """Closes as a program does that ends: with bytes unread, this is a reset."""
        self._changed.set()
        if self._arrived:
            self._end.abort()
        else:
            self._end.close()

    def abort(self) -> None:
        """Resets the connection."""
        self._changed.set()
        self._end.abort()


class Listening:
    """The socket on which a process listens."""

    family = socket.AF_INET

    def __init__(self, network: Network, owner: Mortal, port: int) -> None:
        self._network = network
        self._owner = owner
        self.port = port
        self._backlog: deque[End] = deque()
        self._most = 0
        self._reader: Callable[[], None] | None = None
        owner.listening.append(self)  # type: ignore[attr-defined]

    def listen(self, backlog: int) -> None:
        self._most = min(backlog, self._network.backlog)
        self._network.listening.append(self)

    def detach(self) -> Listening:
        """Returns itself: here a descriptor is all that there is of a listener."""
        return self

    def close(self) -> None:
        if self in self._network.listening:
            self._network.listening.remove(self)
        for end in self._backlog:
            end.peer.meets_reset()
        self._backlog.clear()

    def accept(self) -> tuple[End, tuple[str, int]]:
        if not self._backlog:
            raise BlockingIOError
        end = self._backlog.popleft()
        end.accepted(self._owner)
        return end, end.name

    def offer(self, end: End) -> bool:
        """A client connects. False: the backlog is full, its packets are dropped."""
        if len(self._backlog) >= self._most:
            return False
        self._backlog.append(end)
        self.notify()
        return True

    def notify(self) -> None:
        if self._reader is not None and self._backlog:
            self._network.loop.call_soon(self._reader, context=self._owner.context.copy())

    def read_with(self, callback: Callable[[], None] | None) -> None:
        self._reader = callback
        self.notify()


class Network:
    """Where clients find the process that listens. `version`: what a server knows that writes now."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, version: Callable[[], int]) -> None:
        self.loop = loop
        self.chance = chance
        self.version = version
        self.backlog = 1 << 16
        """Connections that the kernel keeps for a process that has not accepted them, at most."""
        self.listening: list[Listening] = []
        """A connection goes to one of them, as through a balancer."""
        self.addresses: dict[str, Any] = {}
        """Each connection has an address of its own: `ce_source` tells which it was."""

    def bound(self, host: str, port: int, *_: Any, **__: Any) -> Listening:
        """In place of `bound_socket`."""
        owner = OWNER.get()
        assert owner is not None
        return Listening(self, owner, port)

    async def connect(self, line: Line, whose: Any, port: int | None = None) -> ClientEnd:
        """`port`: None, where a process has one alone. Raises `ConnectionRefusedError`; waits while the backlog is full."""
        await asyncio.sleep(self.chance.uniform(*line.latency))
        number = len(self.addresses) + 1
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        chance, name = random.Random(self.chance.getrandbits(64)), (address, 40_000 + number % 20_000)
        client, server = (End(self, line, chance, name) for _ in range(2))
        client.peer, server.peer = server, client
        self.addresses[address] = whose
        while True:
            there = [each for each in self.listening if port in (None, each.port)]
            if not there:
                raise ConnectionRefusedError
            if there[number % len(there)].offer(server):
                return ClientEnd(client)
            await asyncio.sleep(1)
