"""Connections between clients and a process: bytes arrive in pieces, late, and sometimes the connection is gone before they do.

Each direction is a `Pipe`: what was written and is not read yet. It keeps order and loses nothing, as TCP does, until its
connection ends. How a connection ends follows Linux: a close with bytes that were not read is a reset, and a reset may take what
the other side had not read yet with it.
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


class Pipe:
    """One direction. `version`: what the writer knew when it wrote, handed out with each piece."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, line: Line) -> None:
        self._loop, self._chance, self._line = loop, chance, line
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._moving = False
        self.size = 0
        self.ended = False  # the writer writes no more
        self.version = 0  # what it knew then
        self.told_end = False
        self.lost = False
        self.reading = False
        self.deliver: Callable[[bytes, int], None] = lambda data, version: None
        self.end: Callable[[], None] = lambda: None
        self.drained: Callable[[], None] = lambda: None
        self.reader: Mortal | None = None

    def write(self, data: bytes, version: int = 0) -> None:
        if data and not self.lost and not self.ended:
            self._waiting.append((data, version))
            self.size += len(data)
            self.move()

    def write_eof(self, version: int = 0) -> None:
        self.ended, self.version = True, version
        self.move()

    def lose(self) -> None:
        """What is under way never arrives."""
        self.lost = True
        self._waiting.clear()
        self.size = 0

    def read(self, allowed: bool) -> None:
        self.reading = allowed
        self.move()

    def move(self) -> None:
        if self._moving or self.lost or not self.reading or self.told_end or not (self._waiting or self.ended):
            return
        self._moving = True
        self._loop.call_later(self._chance.uniform(*self._line.latency), self._arrive, context=WORLD.copy())

    def _arrive(self) -> None:
        if self.reader is not None and self._loop.hold(self.reader, self._arrive):
            return
        self._moving = False
        if self.lost or not self.reading or self.told_end:
            return
        if self._waiting:
            data, version = self._waiting.popleft()
            most = self._line.piece
            if len(data) > most or (len(data) > 1 and self._chance.random() < 0.2):
                cut = self._chance.randint(1, min(most, len(data)))
                if cut < len(data):
                    self._waiting.appendleft((data[cut:], version))
                    data = data[:cut]
            self.size -= len(data)
            self.deliver(data, version)
            self.drained()
        elif self.ended:
            self.told_end = True
            self.end()
            return
        self.move()


class Connection:
    """Both ends of one connection, and what happens to it."""

    def __init__(self, network: Network, line: Line, address: tuple[str, int]) -> None:
        self.network = network
        self.line = line
        self.address = address
        chance = random.Random(network.chance.getrandbits(64))
        self.chance = chance
        self.up = Pipe(network.loop, chance, line)
        self.down = Pipe(network.loop, chance, line)
        self.client = ClientEnd(self)
        self.server: ServerEnd | None = None
        self.sent_up = 0

    def cut(self) -> None:
        """The network drops it: both ends hear, the one that does not read only when it writes or reads again."""
        self.up.lose()
        self.down.lose()
        self.client.reset()
        if self.server is not None:
            self.server.reset()

    def vanish(self) -> None:
        self.up.lose()
        self.down.lose()
        self.network.loop.call_later(SILENT_UNTIL, self.cut, context=WORLD.copy())

    def reset_client(self) -> None:
        """The server's kernel sends a reset; it may overtake what the client has not read."""
        self.up.lose()
        if self.chance.random() < 0.7:
            self.down.lose()
        self.network.loop.call_later(self.chance.uniform(*self.line.latency), self.client.reset, context=WORLD.copy())


class ServerEnd(asyncio.Transport):
    """The receiver's end: what asyncio gives a protocol. `Listener` sees it as the accepted socket before that."""

    def __init__(self, connection: Connection, owner: Mortal) -> None:
        super().__init__()
        self._connection = connection
        self._owner = owner
        self._loop = connection.network.loop
        self._protocol: Any = None
        self._closing = self._lost = self._paused = False
        self._is_reset = False
        self._writing_paused = False
        self.received = 0
        self.address = connection.address[0]
        connection.server = self
        owner.ends[self] = None  # type: ignore[attr-defined]

    @property
    def owner(self) -> Mortal:
        """The process that accepted it."""
        return self._owner

    # As a socket, before it is handed to a protocol

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *option: Any) -> None:
        pass

    def connect(self, protocol: Any) -> None:
        """`loop.connect_accepted_socket`, in the owner's context."""
        self._protocol = protocol
        up, down = self._connection.up, self._connection.down
        up.deliver, up.end, up.reader, down.drained = self._data, self._eof, self._owner, self._drained
        protocol.connection_made(self)
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self._is_reset:
            self._lose(ConnectionResetError())
        elif not self._closing and not self._paused:
            self._connection.up.read(True)

    # From the network, in the owner's context

    def _call(self, work: Callable[..., Any], *args: Any) -> Any:
        if not self._owner.dead and not self._lost:
            return self._owner.context.copy().run(work, *args)
        return None

    def _data(self, data: bytes, _: int) -> None:
        self.received += len(data)
        self._call(self._protocol.data_received, data)

    def _eof(self) -> None:
        if not self._closing and not self._call(self._protocol.eof_received):
            self.close()

    def _drained(self) -> None:
        if self._loop.hold(self._owner, self._drained) or self._is_reset:
            return
        if self._writing_paused and self._connection.down.size <= self._connection.line.buffer // 4:
            self._writing_paused = False
            self._call(self._protocol.resume_writing)
        self._end_if_written()

    def reset(self) -> None:
        """The connection is gone. A paused transport does not notice before it reads or writes."""
        self._is_reset = True
        if self._protocol is not None and (not self._paused or self._closing):
            self._lose(ConnectionResetError())

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = True
        self._connection.up.read(False)
        protocol = self._protocol

        def lost() -> None:
            if not self._lost:
                self._lost = True
                protocol.connection_lost(error)

        self._loop.call_soon(lost, context=self._owner.context.copy())

    # As a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        if not self._closing:
            self._paused = True
            self._connection.up.read(False)

    def resume_reading(self) -> None:
        if not self._closing:
            self._paused = False
            if self._is_reset:
                self._lose(ConnectionResetError())
            else:
                self._connection.up.read(True)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        down = self._connection.down
        assert not down.ended, "written after its own end"
        if self._is_reset:
            self._lose(ConnectionResetError())
            return
        if self._lost:
            return
        down.write(bytes(data), self._connection.network.version())
        if not self._writing_paused and down.size > self._connection.line.buffer:
            self._writing_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        self._connection.down.write_eof(self._connection.network.version())

    def is_shut(self) -> bool:
        """Whether its own side has ended: a write would fail."""
        return self._connection.down.ended

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._protocol is None:  # a socket that nobody took
            self._over()
            return
        self._connection.up.read(False)
        self._end_if_written()

    def _end_if_written(self) -> None:
        if self._closing and not self._lost and self._connection.down.size <= self._connection.line.buffer:
            self._over()
            self._lose(None)

    def abort(self) -> None:
        if not self._lost:
            self._connection.down.lose()
            self._connection.reset_client()
            self._lose(None)

    def _over(self) -> None:
        """The kernel closes the socket."""
        up = self._connection.up
        if up.size and not self._is_reset:
            self._connection.reset_client()
            return
        self._connection.down.write_eof(self._connection.network.version())
        up.deliver = lambda data, version: self._connection.reset_client()
        up.end = lambda: None
        up.drained = lambda: None
        up.read(True)

    def died(self) -> None:
        """Its process is dead: the kernel closes what it had."""
        if not self._lost:
            self._lost = True
            self._over()


class ClientEnd:
    """A client's end. Raises `ConnectionError` once the connection is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = connection.network.loop
        self._changed = asyncio.Event()
        self._arrived: deque[tuple[bytes, int]] = deque()
        self._gone = self._ended = self._closed = self._severed = False
        down, up = connection.down, connection.up
        down.deliver, down.end = self._data, self._eof
        up.drained = self._changed.set

    @property
    def address(self) -> str:
        """As `ce_source` names it."""
        return self._connection.address[0]

    def slow_down(self, seconds: float) -> None:
        """What has not arrived yet takes up to so long, piece by piece."""
        self._connection.line.latency = (0.0, seconds)

    @property
    def server(self) -> ServerEnd | None:
        """The other end, once it was accepted."""
        return self._connection.server

    @property
    def broken(self) -> bool:
        """What was sent may be lost with the connection."""
        return self._gone or self._severed

    @property
    def ended(self) -> bool:
        """The receiver has said that it writes no more, or the connection is gone."""
        return self._ended or self._gone

    def _data(self, data: bytes, version: int) -> None:
        self._arrived.append((data, version))
        self._connection.down.read(False)  # until the client asks for more
        self._changed.set()

    def _eof(self) -> None:
        self._ended = True
        self._changed.set()

    def reset(self) -> None:
        self._gone = True
        self._changed.set()

    async def send(self, data: bytes) -> None:
        """Waits while the receiver does not read."""
        line, up = self._connection.line, self._connection.up
        for at in range(0, len(data), line.buffer):
            piece = data[at : at + line.buffer]
            while up.size > line.buffer and not self._gone:
                self._changed.clear()
                await self._changed.wait()
            if self._gone or self._closed:
                raise ConnectionResetError
            if self._severed:
                return
            connection = self._connection
            after = None if line.cut_after is None else line.cut_after - connection.sent_up
            if after is not None and after <= len(piece):
                up.write(piece[: max(0, after)])
                connection.sent_up += len(piece)
                wait = connection.chance.uniform(0, 0.05)
                self._loop.call_later(
                    wait, connection.vanish if line.vanishes else connection.cut, context=WORLD.copy()
                )
                self._severed = True
                return
            connection.sent_up += len(piece)
            up.write(piece)

    def send_now(self, data: bytes) -> None:
        """Sends a few bytes, however much waits."""
        self._connection.up.write(data)

    async def read(self) -> tuple[bytes, int]:
        """The next piece, and what the receiver's version was; no bytes: the end."""
        while True:
            if self._arrived:
                return self._arrived.popleft()
            if self._gone or self._closed:
                raise ConnectionResetError
            if self._ended:
                return b"", self._connection.down.version
            self._connection.down.read(True)
            self._changed.clear()
            await self._changed.wait()

    def write_eof(self) -> None:
        self._connection.up.write_eof()

    def close(self) -> None:
        """Closes as a program does that ends: with bytes unread, this is a reset."""
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        connection = self._connection
        if connection.down.size or self._arrived:
            self.abort()
        else:
            connection.up.write_eof()
            connection.down.deliver = lambda data, version: self.abort()
            connection.down.read(True)

    def abort(self) -> None:
        """Resets the connection."""
        self._closed = True
        self._changed.set()
        connection = self._connection
        connection.down.lose()
        if connection.chance.random() < 0.7:
            connection.up.lose()
        if connection.server is not None:
            self._loop.call_later(
                connection.chance.uniform(*connection.line.latency), connection.server.reset, context=WORLD.copy()
            )


class Listening:
    """The socket on which a process listens."""

    family = socket.AF_INET

    def __init__(self, network: Network, owner: Mortal, port: int) -> None:
        self._network = network
        self._owner = owner
        self.port = port
        self._backlog: deque[Connection] = deque()
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
        for connection in self._backlog:
            connection.reset_client()
        self._backlog.clear()

    def accept(self) -> tuple[ServerEnd, tuple[str, int]]:
        if not self._backlog:
            raise BlockingIOError
        connection = self._backlog.popleft()
        return ServerEnd(connection, self._owner), connection.address

    def offer(self, connection: Connection) -> bool:
        """A client connects. False: the backlog is full, its packets are dropped."""
        if len(self._backlog) >= self._most:
            return False
        self._backlog.append(connection)
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
        connection = Connection(self, line, (address, 40_000 + number % 20_000))
        self.addresses[address] = whose
        while True:
            there = [each for each in self.listening if port in (None, each.port)]
            if not there:
                raise ConnectionRefusedError
            if there[number % len(there)].offer(connection):
                return connection.client
            await asyncio.sleep(1)
