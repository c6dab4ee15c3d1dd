"""The clients connected to the sockets, and what libzmq may hold of them.

libzmq bounds a frame, and the number of whole messages that it keeps for a client. It bounds neither the frames of one message
nor what all clients send together, and gives nothing of a message before it is whole. So what the TCP connection of a client has
received is compared with what was delivered to us: libzmq holds the difference. All clients may hold LIMITS__PROCESS_BUDGET, and
`CLIENT` each; the process may have twice as much memory, once they hold a part of the budget that can be so much (`AMPLIFIED`).
Above that those who hold most are disconnected, until half is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import resource
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, cast

import zmq
from headrace_common.connection.receiver_state import CONNECTIONS, ReceiverState
from headrace_common.operations.networks import normal
from zmq.utils.monitor import parse_monitor_message

from headrace_logjam.access import Context
from headrace_logjam.metrics import LogjamMetrics

FRAMING: Final = 64
"""Bytes that a frame takes on the wire beyond its content at most, encrypted or not."""

CLIENT: Final = 144 << 10
"""Bytes that libzmq reads ahead for a client: blocks of 8 KiB, each kept as long as a message is in it."""

AMPLIFIED: Final = 32
"""Bytes of memory that a byte on the wire can become: an empty frame is two bytes, and 64 in libzmq."""

LOOK: Final = 0.1
"""Seconds between two looks at what is held."""

SHARE: Final = 20
"""The processor time of looks is at most one in SHARE seconds: with thousands of clients they are further apart."""

TOGETHER: Final = 100
"""Clients that are looked at in one turn of the event loop."""

PROCESS_BUDGET: Final = "LIMITS__PROCESS_BUDGET"

_RECEIVED: Final = struct.Struct("=128xQ")
"""tcpi_bytes_received of linux/tcp.h's struct tcp_info."""

_INT: Final = struct.Struct("=i")


ReceivedMessage = tuple[int, int]
"""Of a whole message the number of its connection's descriptor, and its bytes on the wire at most."""


class Peer:
    """A client's connection, which libzmq has accepted and will close: it is asked and shut down here, never closed.

    Bytes: `delivered` to us since it began, and `held` by libzmq at the last look. `address`: empty if it had gone already.
    `left`: it was ended by us.
    """

    def __init__(self, number: int) -> None:
        """`number`: its descriptor's."""
        self.address = ""
        self.delivered = self.held = 0
        self.left = False
        self._socket: socket.socket | None = None
        self._name: object = None
        with contextlib.suppress(OSError):
            self._socket = socket.socket(fileno=number)
            self._name = name = self._socket.getpeername()
            self.address = normal(name[0])

    def look(self) -> None:
        """Notes what is held: of what has come, neither delivered nor unread in the kernel. Nothing if it has ended."""
        received = unread = 0
        with contextlib.suppress(OSError):
            if self._socket is not None:
                info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
                (received,) = _RECEIVED.unpack(info)
                (unread,) = _INT.unpack(fcntl.ioctl(self._socket, termios.FIONREAD, bytes(_INT.size)))
        self.delivered = min(self.delivered, received)  # FRAMING is an upper bound: no credit grows
        self.held = max(0, received - self.delivered - unread)

    def shut(self) -> None:
        """Ends the connection, if the number is still its own: libzmq may have closed it and not have said so yet."""
        self.left = True
        with contextlib.suppress(OSError):
            if self._socket is not None and self._socket.getpeername() == self._name:
                self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Forgets it: Python would close it."""
        if self._socket is not None:
            self._socket.detach()


def excess(peers: Collection[Peer], budget: int, memory: int) -> list[Peer]:
    """Returns those that leave. `memory`: what the process uses."""
    held = left = sum(peer.held for peer in peers)
    most, leaving = budget + len(peers) * CLIENT, list[Peer]()
    if held > most or (held * AMPLIFIED > budget and memory > 2 * most):
        for peer in sorted(peers, key=lambda peer: peer.held, reverse=True):
            if left > held // 2:
                leaving.append(peer)
                left -= peer.held
    return leaving


def memory_used() -> int:
    """Returns the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


def monitor(context: Context, opened: zmq.Socket[bytes], name: str, events: int) -> zmq.Socket[bytes]:
    """Returns the socket on which libzmq reports the connections of `opened`. Call it before that is bound or connected."""
    address = f"inproc://monitor.{name}"
    opened.monitor(address, events)
    made = context.socket(zmq.PAIR)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RCVHWM, 0)  # libzmq would stop
    made.connect(address)
    return made


@dataclass(eq=False)
class Door:
    """One socket's clients, by descriptor. libzmq reports which it has accepted and which has ended, in this order."""

    events: zmq.Socket[bytes]
    """The socket's monitor."""
    peers: dict[int, Peer] = field(default_factory=dict)
    refused: bool = False
    """The connection was refused whose end libzmq reports next."""


class Doors:
    """All sockets that clients connect to. Start `watch` when they are open, `close` it after them."""

    def __init__(self, context: Context, receiver: ReceiverState, metrics: LogjamMetrics) -> None:
        self._context = context
        self._receiver = receiver
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.doors: list[Door] = []

    def guard(self, opened: zmq.Socket[bytes], name: str) -> Callable[[Sequence[ReceivedMessage]], None]:
        """Returns what must be told of each message that is read of the socket. Call it before that is bound."""
        kinds = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        events = monitor(self._context, opened, name, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | kinds)
        door = Door(events)
        self.doors.append(door)
        self._loop.add_reader(events.fileno(), self._read, door)
        self._loop.call_soon(self._read, door)
        return partial(self._heard, door)

    def close(self) -> None:
        """Ends reading events. The sockets are closed."""
        for door in self.doors:
            self._loop.remove_reader(door.events.fileno())
            door.events.close()
            for number in list(door.peers):
                self._ended(door, number, "drain")

    def _heard(self, door: Door, messages: Sequence[ReceivedMessage]) -> None:
        if cast("int", door.events.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._read(door)  # it had reported their connections before
        for number, size in messages:
            if (peer := door.peers.get(number)) is not None:
                peer.delivered += size

    def _read(self, door: Door) -> None:
        while not door.events.closed:
            try:
                event = parse_monitor_message(door.events.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            kind, number = event["event"], event["value"]
            if kind == zmq.EVENT_ACCEPTED:
                door.peers[number] = Peer(number)
                self._receiver.metrics.connections_opened.inc()
            elif kind != zmq.EVENT_DISCONNECTED:
                door.refused = True
            elif number in door.peers:
                self._ended(door, number, "handshake" if door.refused else "peer")
                door.refused = False
        self._make_room(door)

    def _ended(self, door: Door, number: int, why: str) -> None:
        peer = door.peers.pop(number)
        peer.forget()
        if peer.left:
            return
        self._receiver.metrics.connections_closed.labels(why).inc()
        if why == "handshake":
            self._receiver.log.warning("client refused", peer=peer.address)

    def _there(self) -> list[Peer]:
        return [peer for door in self.doors for peer in door.peers.values() if not peer.left]

    def _make_room(self, door: Door) -> None:
        """Disconnects the newest clients while there are too many."""
        newest = [peer for peer in reversed(door.peers.values()) if not peer.left]
        for peer in newest[: max(len(self._there()) - self._receiver.places.most, 0)]:
            self._leave(peer, CONNECTIONS)
        self._metrics.clients.set(len(self._there()))

    def _leave(self, peer: Peer, limit: str) -> None:
        """Ends a connection. Its whole messages are still read."""
        peer.shut()
        self._receiver.metrics.limit_hits.labels(limit).inc()
        self._receiver.metrics.connections_closed.labels("protocol_error").inc()
        self._receiver.log.warning("client disconnected", limit=limit, peer=peer.address, held=peer.held)

    async def watch(self) -> None:
        """Looks at all clients, again and again."""
        if sys.platform != "linux":  # no TCP_INFO
            self._receiver.log.warning("memory of zeromq not bounded", platform=sys.platform)
            return
        while True:
            began = time.thread_time()
            for at, peer in enumerate(self._there()):
                if at % TOGETHER == 0:
                    await asyncio.sleep(0)
                peer.look()
            for peer in excess(self._there(), self._receiver.limits.process_budget, memory_used()):
                self._leave(peer, PROCESS_BUDGET)
            await asyncio.sleep(max(LOOK, SHARE * (time.thread_time() - began)))
