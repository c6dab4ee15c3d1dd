"""ZeroMQ's sockets, at their whole messages: what libzmq's own thread does for its process.

Of a socket that clients connect to, it keeps `peer_messages` of a client and reads no further, takes turns with clients, and
tells once that there is something to read. Whole messages outlive their connection; what was not whole is lost with it. A socket
that connects to a device keeps what that says, in order, through cuts; while it is not connected it hears nothing. ZMTP, its
handshake and who is let in are not here: `tests/logjam` has them with libzmq's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import headrace_logjam.sockets
import zmq
from headrace_logjam.devices import endpoints
from headrace_logjam.wire import joined, split

from tests.simulation.loop import OWNER, replaced
from tests.simulation.network import End, Listening

SIZE: Final = 4


def wired(frames: Sequence[bytes]) -> bytes:
    """A message as it goes over the network here; one of no frames tells a client that it is connected."""
    data = joined(frames)
    return len(data).to_bytes(SIZE, "big") + data


def taken(data: bytearray) -> list[bytes] | None:
    """Takes the next message out of `data`; None: it is not whole."""
    end = SIZE + int.from_bytes(data[:SIZE], "big")
    if len(data) < max(SIZE, end):
        return None
    frames = split(bytes(data[SIZE:end]))
    del data[:end]
    return frames


class Part:
    """A frame of a message, as `recv(copy=False)` returns it. `address`: of the connection that it came from."""

    def __init__(self, data: bytes, more: bool, address: str) -> None:
        self.bytes = data
        self.more = more
        self._address = address

    def __len__(self) -> int:
        return len(self.bytes)

    def get(self, what: Any) -> Any:
        return 0 if what == zmq.SRCFD else self._address


class Socket:
    """A socket, and its descriptor, which becomes readable when something comes for one who had found nothing, and is not any
    more as soon as the socket is used in any way.
    """

    def __init__(self, context: Context) -> None:
        self.life = context.life
        self.context = context
        self.options: dict[int, Any] = {}
        self.ends = deque[list[bytes]]()
        """The connections whose ends the process has not read yet."""
        self.closed = False
        self._parts: deque[Part] = deque()
        self._asleep = True
        self._callback: Callable[[], None] | None = None
        self._readable = False

    def setsockopt(self, option: int, value: Any) -> None:
        self.options[option] = value

    def getsockopt(self, option: int) -> Any:
        assert option == zmq.FD
        return self

    def read_with(self, callback: Callable[[], None] | None) -> None:
        """As the event loop watches a descriptor."""
        self._callback = callback
        self._look()

    def arrived(self) -> None:
        """There is something to read."""
        if self._asleep:
            self._asleep, self._readable = False, True
            self._look()

    def _look(self) -> None:
        if self._readable and self._callback is not None:
            self.life.world.loop.call_soon(self._fire, context=self.life.context.copy())

    def _fire(self) -> None:
        if self._readable and self._callback is not None:
            self._callback()

    def recv(self, flags: int = 0, *, copy: bool = True) -> Part:
        self._readable = False
        if not self._parts:
            found = self._next()
            if found is None:
                self._asleep = True
                raise zmq.Again
            parts, address = found
            self._parts.extend(Part(part, at < len(parts) - 1, address) for at, part in enumerate(parts))
        return self._parts.popleft()

    def _next(self) -> tuple[list[bytes], str] | None:
        """The next message, and whence it came."""
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True
        self._callback = None


class SubSocket(Socket):
    """A socket that hears a device."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inbox: deque[list[bytes]] = deque()
        self.taken: list[list[bytes]] = []
        """The messages that its process has read."""

    def connect(self, where: str) -> None:
        self.life.world.devices[where].subscribe(self)

    def close(self) -> None:
        super().close()
        for device in self.life.world.devices.values():
            device.unsubscribe(self)

    def arrives(self, parts: list[bytes]) -> bool:
        """Whether there is room for it."""
        if len(self._inbox) >= self.options[zmq.RCVHWM]:
            return False
        self._inbox.append(parts)
        self.arrived()
        return True

    def _next(self) -> tuple[list[bytes], str] | None:
        if not self._inbox:
            return None
        self.taken.append(self._inbox.popleft())
        return self.taken[-1], ""


class Monitor:
    """Where a socket says that a connection of it has ended."""

    def __init__(self, socket: Socket) -> None:
        self._ends = socket.ends

    def recv_multipart(self, flags: int) -> list[bytes]:
        if not self._ends:
            raise zmq.Again
        return self._ends.popleft()

    def close(self) -> None:
        pass


class Engine(asyncio.Protocol):
    """libzmq's end of a client's connection. `end`: the transport."""

    end: End

    def __init__(self, opened: PeerSocket, number: int) -> None:
        self.route = b"\0" + number.to_bytes(4, "big")
        self.inbox: deque[list[bytes]] = deque()
        self._socket = opened
        self._data = bytearray()
        self._outbox: deque[bytes] = deque()
        self._stopped = self._gone = False

    def connection_made(self, transport: Any) -> None:
        self.end = transport
        self._write(wired([]))

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True

    def pause_writing(self) -> None:
        self._stopped = True

    def resume_writing(self) -> None:
        self._stopped = False
        while self._outbox and not self._stopped:
            self._write(self._outbox.popleft())

    def _parse(self) -> None:
        most = self._socket.options[zmq.RCVHWM]
        while not (is_full := len(self.inbox) >= most) and (parts := taken(self._data)) is not None:
            self.inbox.append(parts)
            self._socket.arrives(self)
        if not self._gone:
            (self.end.pause_reading if is_full else self.end.resume_reading)()

    def takes(self) -> list[bytes]:
        """The process takes a message."""
        asyncio.get_running_loop().call_soon(self._parse)
        return self.inbox.popleft()

    def sends(self, parts: list[bytes]) -> None:
        """A message for it, which it loses if it has too many."""
        if len(self._outbox) < self._socket.options[zmq.SNDHWM]:
            self._write(wired(parts))

    def _write(self, data: bytes) -> None:
        if self._stopped:
            self._outbox.append(data)
        elif not (self._gone or self.end.is_shut()):  # of a connection that was shut down, libzmq loses what is sent
            self.end.write(data)

    def close(self) -> None:
        """The socket is closed. What was said leaves, as far as the client takes it."""
        self._stopped = False
        while self._outbox:
            self._write(self._outbox.popleft())
        self.end.close()


class PeerSocket(Socket):
    """A socket that clients connect to."""

    def __init__(self, context: Context, kind: int) -> None:
        super().__init__(context)
        self._routed = kind == zmq.ROUTER
        self._listening: Listening | None = None
        self._engines: dict[bytes, Engine] = {}
        self._turn: deque[Engine] = deque()

    def bind(self, address: str) -> None:
        self._listening = self.options[zmq.USE_FD]
        self._listening.read_with(self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        assert self.context.access is not None
        while not self.context.access.stopping:
            try:
                end, _ = self._listening.accept()
            except BlockingIOError:
                return
            engine = Engine(self, len(self._engines))
            self._engines[engine.route] = engine
            end.connect(engine)

    def arrives(self, engine: Engine) -> None:
        if not self.closed:
            if engine not in self._turn:
                self._turn.append(engine)
            self.arrived()

    def _next(self) -> tuple[list[bytes], str] | None:
        """Takes turns with whole messages, as libzmq's fair queue does."""
        if not self._turn:
            return None
        engine = self._turn.popleft()
        parts = engine.takes()
        if engine.inbox:
            self._turn.append(engine)
        return [engine.route, *parts] if self._routed else parts, engine.end.address

    def send_multipart(self, parts: tuple[bytes, ...], flags: int) -> None:
        self._readable = False
        route, *said = parts
        if (engine := self._engines.get(route)) is not None:
            engine.sends(said)

    def close(self) -> None:
        super().close()
        if self._listening is not None:
            self._listening.close()
        for engine in self._engines.values():
            engine.close()


class Context:
    """ZeroMQ's, of one process."""

    def __init__(self, life: Any) -> None:
        self.life = life
        self.access: SimpleNamespace | None = None

    def socket(self, kind: int) -> Socket:
        return SubSocket(self) if kind == zmq.SUB else PeerSocket(self, kind)

    def term(self) -> None:
        pass


def access(context: Context, *_: Any) -> SimpleNamespace:
    """In place of `headrace_logjam.access.Access`: all may come until it stops."""
    context.access = SimpleNamespace(stopping=False, start=lambda: None, stop=lambda: None)
    return context.access


def doors(*_: Any) -> SimpleNamespace:
    """In place of `headrace_logjam.peers.Doors`: nobody comes who is one too many, or holds too much."""
    never = asyncio.Event()
    return SimpleNamespace(guard=lambda *_: lambda messages: None, watch=never.wait, close=lambda: None)


@contextmanager
def in_place(world: Any) -> Iterator[None]:
    """What is replaced, and by what."""
    with replaced(
        (zmq, "Context", lambda: Context(OWNER.get())),
        (headrace_logjam.sockets, "bound_socket", world.network.bound),
        (headrace_logjam.sockets, "address_of", lambda _: "simulated"),
        (headrace_logjam.sockets, "Access", access),
        (headrace_logjam.sockets, "Doors", doors),
        (endpoints, "monitor", lambda context, opened, *_: Monitor(opened)),
    ):
        yield
