"""ZeroMQ's sockets: what libzmq's own thread does with bytes, connections and descriptors.

Of a socket that clients connect to, it keeps `peer_messages` of a client and reads no further, says on a monitor who comes and
goes, gives a descriptor that was closed to the next connection, and tells once that there is something to read. Whole messages
outlive their connection; what was not whole is lost with it. A socket that connects to a device keeps what that says, in order,
through cuts; while it is not connected it hears nothing.
"""

from __future__ import annotations

import asyncio
import errno
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import headrace_logjam.access
import headrace_logjam.peers
import headrace_logjam.sockets
import zmq

from tests.contract.logjam import COMMAND, GREETING, LONG, MORE, READY, message, zmtp
from tests.simulation.loop import OWNER, replaced
from tests.simulation.network import Listening, ServerEnd

EVENT: Final = struct.Struct("=Hi")
FIRST_DESCRIPTOR: Final = 20
KEPT: Final = 65
"""Frames of a message that a receiver keeps, and counts."""

EMPTY: Final = re.compile(b"(?:" + re.escape(zmtp(MORE, b"")) + b")+")
"""Empty frames in a row, as intruders send them by the hundred thousand."""

OVERHEAD: Final = 64
"""Bytes that a frame takes in libzmq's memory, beside its content."""


class Nothing(zmq.Again):
    """There is nothing to read: without asking ZeroMQ for its words for that, each time."""

    def __init__(self) -> None:
        self.errno = errno.EAGAIN


class Part:
    """A frame of a message, as `recv(copy=False)` returns it. `about`: the connection that it came from."""

    def __init__(self, data: bytes, more: bool, about: Engine | None = None) -> None:
        self.bytes = data
        self.more = more
        self._about = about

    def __len__(self) -> int:
        return len(self.bytes)

    def get(self, what: Any) -> Any:
        assert self._about is not None
        return self._about.number if what == zmq.SRCFD else self._about.end.address


class Told:
    """A socket's descriptor. It becomes readable when something comes for one who had found nothing, and is not any more as soon
    as the socket is used in any way.
    """

    def __init__(self, life: Any) -> None:
        self.life = life
        self.closed = False
        self._callback: Callable[[], None] | None = None
        self._readable = False

    def setsockopt(self, option: int, value: Any) -> None:
        pass

    def getsockopt(self, option: int) -> Any:
        assert option == zmq.FD
        return self

    def fileno(self) -> Told:
        return self

    def read_with(self, callback: Callable[[], None] | None) -> None:
        """As the event loop watches a descriptor."""
        self._callback = callback
        self._look()

    def tell(self) -> None:
        self._readable = True
        self._look()

    def used(self) -> None:
        self._readable = False

    def close(self) -> None:
        self.closed = True
        self._callback = None

    def _look(self) -> None:
        if self._readable and self._callback is not None:
            self.life.world.loop.call_soon(self._fire, context=self.life.context.copy())

    def _fire(self) -> None:
        if self._readable and self._callback is not None:
            self._callback()


class Inbox(Told):
    """A socket inside of the process."""

    def __init__(self, life: Any) -> None:
        super().__init__(life)
        self._messages: deque[list[bytes]] = deque()
        self._asleep = True

    def arrives(self, parts: list[bytes]) -> None:
        self._messages.append(parts)
        if self._asleep:
            self._asleep = False
            self.tell()

    def getsockopt(self, option: int) -> Any:
        if option != zmq.EVENTS:
            return super().getsockopt(option)
        self.used()
        return zmq.POLLIN if self._messages else 0

    def recv_multipart(self, flags: int) -> list[bytes]:
        self.used()
        if not self._messages:
            self._asleep = True
            raise Nothing
        return self._messages.popleft()


class Monitor(Inbox):
    """Where a socket says what happens to its connections."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.life)
        self._context = context

    def connect(self, address: str) -> None:
        self._context.monitored[address].events = self


class Engine(asyncio.Protocol):
    """libzmq's end of a connection: ZMTP 3 without security. `end`: the transport."""

    end: ServerEnd

    def __init__(self, opened: PeerSocket, route: int) -> None:
        self._socket = opened
        self._life = opened.life
        self.route = b"\0" + route.to_bytes(4, "big")
        self.inbox: deque[list[bytes]] = deque()
        self.asleep = True
        """The socket has found nothing of it to read."""
        self.cut = False
        """The process has ended it, both ways."""
        self.over = False
        self.shaken = False
        self._step: Callable[[], bool] = self._greeted
        self._data = bytearray()
        self._frames: list[bytes] = []
        self._size = 0  # of them
        self._outbox: deque[bytes] = deque()
        self._stopped = self._gone = False
        self._arrived = self._taken = self._known = 0  # messages; the last: taken, as far as this side has heard
        self.number = next(each for each in range(FIRST_DESCRIPTOR, 1 << 20) if each not in self._life.descriptors)
        self._life.descriptors[self.number] = self

    @property
    def partial(self) -> int:
        """Bytes of a message that is not whole."""
        return len(self._data) + self._size

    @property
    def held(self) -> int:
        """Bytes that it takes in memory."""
        whole = sum(OVERHEAD + len(frame) for parts in self.inbox for frame in parts)
        return self.partial + OVERHEAD * len(self._frames) + whole

    @property
    def received(self) -> int:
        """Bytes that the kernel has received."""
        return self.end.received + self.unread

    @property
    def unread(self) -> int:
        """Bytes that the kernel has received and libzmq has not read."""
        return self.end.unread

    # From the network

    def connection_made(self, transport: Any) -> None:
        self.end = transport
        self._socket.says(zmq.EVENT_ACCEPTED, self.number)
        self._write(GREETING)
        asyncio.get_running_loop().call_later(self._socket.options[zmq.HANDSHAKE_IVL] / 1000, self._too_late)

    def data_received(self, data: bytes) -> None:
        if not self.over:
            self._data += data
            self._parse()

    def eof_received(self) -> bool:
        self.connection_lost(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        if not self._is_full():  # else it is noticed when it reads again
            self._ends(errno.ECONNRESET)

    def pause_writing(self) -> None:
        self._stopped = True

    def resume_writing(self) -> None:
        self._stopped = False
        while self._outbox and not self._stopped:
            self._write(self._outbox.popleft())

    # Conversation

    def _parse(self) -> None:
        while not self.over and self._step():
            pass
        if not self.over and not self._gone:
            (self.end.pause_reading if self._is_full() else self.end.resume_reading)()

    def _is_full(self) -> bool:
        return self._arrived - self._known >= self._socket.options[zmq.RCVHWM]

    def _greeted(self) -> bool:
        beginning, size = GREETING[:10], min(10, len(self._data))
        if self._data[:1] != beginning[:1] or (size == 10 and self._data[9] != beginning[9]):
            self._fails()
        elif len(self._data) >= len(GREETING) and not self._socket.stopping:
            del self._data[: len(GREETING)]
            self._step = self._shakes
            self._write(READY)
            return True
        return False

    def _shakes(self) -> bool:
        found = self._next()
        if found is None:
            return False
        if not found[0] & COMMAND or not found[1].startswith(b"\5READY"):
            self._fails()
            return False
        self.shaken = True
        self._step = self._reads
        return True

    def _reads(self) -> bool:
        if self._is_full():
            return False
        if empty := EMPTY.match(self._data):
            end = empty.end()
            del empty  # it would keep the bytes from being changed
            self._frames += [b""] * (end // len(zmtp(MORE, b"")))
            del self._data[:end]
            return True
        found = self._next()
        if found is None:
            return False
        flags, body = found
        if flags & COMMAND:
            return True
        self._frames.append(body)
        self._size += len(body)
        if not flags & MORE:
            self.inbox.append(self._frames)
            self._frames, self._size = [], 0
            self._arrived += 1
            self._socket.arrives(self)
        return True

    def _next(self) -> tuple[int, bytes] | None:
        data = self._data
        width = 8 if data and data[0] & LONG else 1
        if len(data) < 1 + width:
            return None
        size = int.from_bytes(data[1 : 1 + width], "big")
        if size > self._socket.options[zmq.MAXMSGSIZE]:
            self._fails()
            return None
        if len(data) < 1 + width + size:
            return None
        found = data[0], bytes(data[1 + width : 1 + width + size])
        del data[: 1 + width + size]
        return found

    def takes(self) -> None:
        """The process has taken a message. It is told so now and then."""
        self._taken += 1
        if self._taken % -(-self._socket.options[zmq.RCVHWM] // 2) == 0:
            asyncio.get_running_loop().call_soon(self._taken_until, self._taken)

    def _taken_until(self, taken: int) -> None:
        self._known = max(self._known, taken)
        self._parse()
        if self._gone and not self._is_full():
            self._ends(errno.ECONNRESET)

    def sends(self, parts: list[bytes]) -> None:
        """A message for it, which it loses if it has too many."""
        if len(self._outbox) < self._socket.options[zmq.SNDHWM]:
            self._write(message(parts))

    def _write(self, data: bytes) -> None:
        if self._stopped:
            self._outbox.append(data)
        elif not (self.over or self._gone):
            self.end.write(data)

    # The end

    def _too_late(self) -> None:
        if not self.shaken:
            self._fails(errno.EAGAIN)

    def _fails(self, number: int = errno.EPROTO) -> None:
        self._data.clear()
        self._ends(number)

    def _ends(self, number: int) -> None:
        """It is over. `number`: of the error, if it had not shaken hands."""
        if self.over:
            return
        self.over = True
        self._frames, self._size = [], 0
        if not self.shaken:
            self._socket.says(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, number)
        self._socket.says(zmq.EVENT_DISCONNECTED, self.number)
        del self._life.descriptors[self.number]
        self.end.close()

    def shut(self) -> None:
        """The process has shut its descriptor down."""
        self.cut = True
        self.end.close()
        self.connection_lost(None)

    def close(self) -> None:
        """The socket is closed. What was said leaves, as far as the client takes it."""
        self._stopped = False
        while self._outbox:
            self._write(self._outbox.popleft())
        self.over = True
        self.end.close()


class Opened(Told):
    """A socket to other processes. A monitor hears of its connections."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.life)
        self.options: dict[int, Any] = {}
        self.events: Monitor | None = None
        self._context = context
        self._parts: deque[Part] = deque()

    def setsockopt(self, option: int, value: Any) -> None:
        self.options[option] = value

    def monitor(self, address: str, events: int) -> None:
        self._context.monitored[address] = self

    def says(self, event: int, value: int) -> None:
        if self.events is not None and not self.closed:
            self.events.arrives([EVENT.pack(event, value), b""])

    def recv(self, flags: int = 0, *, copy: bool = True) -> Part:
        self.used()
        if not self._parts:
            self._next()
        return self._parts.popleft()

    def _next(self) -> None:
        """Takes the next message. Raises `zmq.Again` if there is none."""
        raise NotImplementedError


class SubSocket(Opened):
    """A socket that hears a device."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inbox: deque[list[bytes]] = deque()
        self._asleep = True
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
        if self._asleep:
            self._asleep = False
            self.tell()
        return True

    def _next(self) -> None:
        if not self._inbox:
            self._asleep = True
            raise Nothing
        parts = self._inbox.popleft()
        self.taken.append(parts)
        self.life.heard += sum(map(len, parts))
        self._parts.extend(Part(part, at < len(parts) - 1) for at, part in enumerate(parts))


class PeerSocket(Opened):
    """A socket that clients connect to."""

    def __init__(self, context: Context, kind: int) -> None:
        super().__init__(context)
        self.kind = kind
        self._listening: Listening | None = None
        self._engines: dict[bytes, Engine] = {}
        self._turn: deque[Engine] = deque()  # in order
        self._had: deque[Engine] = deque()  # those that had their turn; who is new comes before it is theirs again

    @property
    def stopping(self) -> bool:
        assert self._context.access is not None
        return self._context.access.stopping

    def bind(self, address: str) -> None:
        self._listening = self.options[zmq.USE_FD]
        self._listening.read_with(self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        while True:
            try:
                end, _ = self._listening.accept()
            except BlockingIOError:
                return
            engine = Engine(self, len(self._engines))
            self._engines[engine.route] = engine
            end.connect(engine)

    def arrives(self, engine: Engine) -> None:
        if self.closed:
            return
        if engine.asleep:
            engine.asleep = False
            self._turn.append(engine)
            self.tell()

    def _next(self) -> None:
        """Takes turns with whole messages, as libzmq's fair queue does."""
        while True:
            if not self._turn:
                self._turn, self._had = self._had, self._turn
            if not self._turn:
                raise Nothing
            engine = self._turn.popleft()
            if engine.inbox:
                break
            engine.asleep = True
            self._turn.rotate(1)  # the last one takes its place
        parts = engine.inbox.popleft()
        self._had.append(engine)
        engine.takes()
        if self.kind == zmq.ROUTER:
            parts = [engine.route, *parts]
        self.life.heard += sum(map(len, parts[: KEPT + (self.kind == zmq.ROUTER)]))
        self._parts.extend(Part(part, at < len(parts) - 1, engine) for at, part in enumerate(parts))

    def send_multipart(self, parts: tuple[bytes, ...], flags: int) -> None:
        self.used()
        route, *said = parts
        if (engine := self._engines.get(route)) is not None:
            engine.sends(said)

    def close(self) -> None:
        super().close()
        if self._listening is not None:
            self._listening.close()
        for engine in self._engines.values():
            if not engine.over:
                engine.close()


class Context:
    """ZeroMQ's, of one process."""

    def __init__(self, life: Any) -> None:
        self.life = life
        self.monitored: dict[str, Opened] = {}
        self.access: Access | None = None

    def socket(self, kind: int) -> Any:
        if kind == zmq.PAIR:
            return Monitor(self)
        return SubSocket(self) if kind == zmq.SUB else PeerSocket(self, kind)

    def term(self) -> None:
        pass


class Access:
    """In place of `headrace_logjam.access.Access`: all may come until it stops."""

    def __init__(self, context: Context, networks: Any, clients: Any) -> None:
        self.stopping = False
        context.access = self

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class Descriptor:
    """In place of `headrace_logjam.peers.Descriptor`: the number may be another connection's by now."""

    def __init__(self, number: int) -> None:
        self._number = number
        owner: Any = OWNER.get()
        self._all: dict[int, Engine] = owner.descriptors
        self._first = self._all.get(number)
        self.address = "" if self._first is None else self._first.end.address

    def received(self) -> int:
        engine = self._all.get(self._number)
        return 0 if engine is None else engine.received

    def unread(self) -> int:
        engine = self._all.get(self._number)
        return 0 if engine is None else engine.unread

    def shut(self) -> None:
        engine = self._all.get(self._number)
        if engine is not None and engine is self._first:
            engine.shut()

    def forget(self) -> None:
        pass


def used() -> int:
    """In place of `headrace_logjam.peers.memory_used`."""
    owner: Any = OWNER.get()
    return sum(engine.held for engine in owner.descriptors.values())


@contextmanager
def in_place(world: Any) -> Iterator[None]:
    """What is replaced, and by what."""
    with replaced(
        (zmq, "Context", lambda: Context(OWNER.get())),
        (headrace_logjam.sockets, "bound_socket", world.network.bound),
        (headrace_logjam.sockets, "address_of", lambda _: "simulated"),
        (headrace_logjam.access, "Access", Access),
        (headrace_logjam.peers, "Descriptor", Descriptor),
        (headrace_logjam.peers, "memory_used", used),
    ):
        yield
