"""The connections of the sockets that clients connect to: which come, which go, which make way.

libzmq reports on a socket's monitor which descriptor it has accepted and which has ended, in this order, so a descriptor in the
table is that connection until its end was read.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import zmq
from headrace_common.connection.places import Place
from headrace_common.connection.receiver_state import CONNECTIONS, ReceiverState
from zmq.utils.monitor import parse_monitor_message

from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers.access import AccessRefusal, Context, monitor
from headrace_logjam.peers.descriptor import Descriptor
from headrace_logjam.peers.holding import READ_AT_ONCE, HeldConnection, HoldingLimits, ReceivedMessage
from headrace_logjam.peers.memory import used

LOOK: Final = 0.1
"""Seconds between two looks at the held bytes."""

SHARE: Final = 20
"""The processor time of looks is at most one in SHARE seconds: with thousands of peers they are further apart."""

TOGETHER: Final = 100
"""Peers that are looked at in one turn of the event loop."""

SUBSCRIBED: Final = 1024
"""Bytes that a peer has taken from us when it has subscribed: its handshake takes fewer, and one that has not subscribed is
sent nothing more."""

HANDSHAKE_TIME: Final = "LIMITS__HANDSHAKE_TIME"
FRAME_BYTES: Final = "LIMITS__FRAME_BYTES"
PROCESS_BUDGET: Final = "LIMITS__PROCESS_BUDGET"

_WATCHED: Final = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
_PROTOCOL: Final = int(zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED)
"""The first of libzmq's numbers for what a peer's handshake did wrong; below are those of errno."""

_PROBLEMS: Final = {
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): AccessRefusal.MECHANISM,
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): AccessRefusal.KEY,
}
"""libzmq's reasons for refusing a handshake about which it did not ask."""


class Door:
    """One socket and the peers connected to it."""

    def __init__(
        self,
        events: zmq.Socket[bytes],
        family: int,
        proven: Callable[[Place], None],
        empty: Callable[[], bool] | None,
    ) -> None:
        """`events`: the socket's monitor. `proven` is called with a peer that has sent a message. `empty` reads the socket, and
        returns whether all that is whole was read; None: its peers are subscribers, which send nothing.
        """
        self.events = events
        self.family = family
        self.guests: dict[int, HeldConnection] = {}
        self.failed: int | None = None
        """libzmq's number of the fault in the handshake of the connection that ends next."""
        self.come_and_gone: Callable[[], None] = lambda: None
        """Reads the events."""
        self.spoken_ended: Callable[[], None] = lambda: None
        """Is called when a connection has ended that had sent a message."""
        self._proven = proven
        self._empty = empty

    @property
    def subscribers(self) -> bool:
        """Whether its peers only subscribe."""
        return self._empty is None

    def empty(self) -> bool:
        """See `__init__`."""
        return self._empty is not None and self._empty()

    def half_close(self) -> set[HeldConnection]:
        """Makes the clients leave. Sends FIN to each without unread bytes in the kernel: libzmq drops these when both
        sides have sent FIN. Returns all that are connected.

        ZeroMQ has no message for it, but a client that receives FIN ends its connection, and connects again to the process that
        is there then. What it has sent is read up to its own FIN; closing the connection would lose that.
        """
        self.come_and_gone()
        for guest in self.guests.values():
            if not guest.descriptor.unread():
                guest.descriptor.shut(socket.SHUT_WR)
        return set(self.guests.values())

    def heard(self, messages: Sequence[ReceivedMessage]) -> None:
        """Notes messages that were read. libzmq had reported their connections before."""
        if cast("int", self.events.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self.come_and_gone()
        for number, size in messages:
            guest = self.guests.get(number)
            if guest is not None:
                guest.delivered += size
                self._proven(guest.place)


class Doors:
    """All sockets that clients connect to. Start `watch` when they are open, `close` it after them."""

    def __init__(self, context: Context, receiver: ReceiverState, metrics: LogjamMetrics, peer_messages: int) -> None:
        self._context = context
        self._receiver = receiver
        self._metrics = metrics
        self._may_hold = HoldingLimits.of(receiver.limits, peer_messages)
        self._loop = asyncio.get_running_loop()
        self._doors: list[Door] = []
        self._taken = 0

    def guard(self, opened: zmq.Socket[bytes], name: str, family: int, empty: Callable[[], bool] | None) -> Door:
        """Returns the socket's door. Call it before the socket is bound. `empty`: see `Door`."""
        events = monitor(self._context, opened, name, _WATCHED)
        door = Door(events, family, self._receiver.places.give_back, empty)
        door.come_and_gone = partial(self._read, door)
        self._doors.append(door)
        self._loop.add_reader(events.fileno(), door.come_and_gone)
        self._loop.call_soon(door.come_and_gone)
        return door

    def close(self) -> None:
        """Ends reading events. The sockets are closed."""
        for door in self._doors:
            self._loop.remove_reader(door.events.fileno())
            door.events.close()
            for guest in door.guests.values():
                self._free(guest, "drain")
                guest.descriptor.forget()
            door.guests.clear()

    # Peers that come and go

    def _read(self, door: Door) -> None:
        while not door.events.closed:
            try:
                event = parse_monitor_message(door.events.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            kind, value = event["event"], event["value"]
            if kind == zmq.EVENT_ACCEPTED:
                self._accepted(door, value)
            elif kind == zmq.EVENT_DISCONNECTED:
                self._ended(door, value)
            else:  # libzmq reports the end of the same connection next
                door.failed = value
        self._metrics.clients.set(self._taken)

    def _accepted(self, door: Door, number: int) -> None:
        receiver, places = self._receiver, self._receiver.places
        descriptor = Descriptor(number, door.family)
        place = Place(lambda: None, descriptor.address)
        door.guests[number] = guest = HeldConnection(place=place, descriptor=descriptor, since=self._loop.time())
        place.leave = partial(self._leave, guest, "silent")
        if self._taken >= places.most and (silent := places.make_way()) is not None:
            self._make_way(silent, CONNECTIONS)
        if self._taken >= places.most:
            self._refuse(guest, CONNECTIONS)
            return
        self._taken += 1
        places.take(place)
        receiver.metrics.connections_opened.inc()

    def _refuse(self, guest: HeldConnection, limit: str) -> None:
        guest.left = True
        guest.descriptor.shut()
        self._receiver.metrics.limit_hits.labels(limit).inc()
        self._metrics.refused.labels(AccessRefusal.CONNECTIONS.value).inc()
        self._receiver.limited.warning("too many connections", limit=limit, peer=guest.place.peer)

    def _make_way(self, who: Place, limit: str) -> None:
        self._receiver.metrics.limit_hits.labels(limit).inc()
        self._receiver.limited.warning("idle connection made way", limit=limit, peer=who.peer)
        who.leave()

    def _leave(self, guest: HeldConnection, why: str) -> None:
        """Ends a connection. Its whole messages are still read. `why`: as the metric names it."""
        self._free(guest, why)
        guest.descriptor.shut()

    def _free(self, guest: HeldConnection, why: str) -> None:
        if not guest.left:
            guest.left = True
            self._receiver.metrics.connections_closed.labels(why).inc()
            self._taken -= 1
            self._receiver.places.give_back(guest.place)

    def _ended(self, door: Door, number: int) -> None:
        failed, door.failed = door.failed, None
        guest = door.guests.pop(number, None)
        if guest is None:
            return
        guest.descriptor.forget()
        if guest.delivered:
            door.spoken_ended()
        if failed is not None and not guest.left:
            self._failed(guest, failed)
        self._free(guest, "peer")

    def _failed(self, guest: HeldConnection, problem: int) -> None:
        receiver, peer = self._receiver, guest.place.peer
        if problem >= _PROTOCOL:
            why = _PROBLEMS.get(problem, AccessRefusal.HANDSHAKE)
            self._metrics.refused.labels(why.value).inc()
            receiver.limited.warning("client refused", peer=peer, why=why.value, problem=f"{problem:#x}")
        elif problem == errno.EAGAIN or self._loop.time() - guest.since >= receiver.limits.handshake_time:
            # its time is over: errno is still that of the last read; we may have heard late that it came
            receiver.metrics.limit_hits.labels(HANDSHAKE_TIME).inc()
            receiver.limited.warning("handshake took too long", peer=peer, limit=HANDSHAKE_TIME)
        else:
            receiver.log.debug("client left before its handshake", peer=peer)

    # What is held

    async def watch(self) -> None:
        """Looks at all peers, again and again."""
        if sys.platform != "linux":  # no TCP_INFO
            self._receiver.log.warning("memory of zeromq not bounded", platform=sys.platform)
            await asyncio.Event().wait()
        while True:
            began = time.thread_time()
            for door in self._doors:
                await self._look(door)
            self._together()
            await asyncio.sleep(max(LOOK, SHARE * (time.thread_time() - began)))

    async def _look(self, door: Door) -> None:
        guests = iter(list(door.guests.values()))
        while some := list(itertools.islice(guests, TOGETHER)):
            empty = door.empty()
            for guest in some:
                self._look_at(guest, empty=empty, subscriber=door.subscribers)
            await asyncio.sleep(0)

    def _look_at(self, guest: HeldConnection, *, empty: bool, subscriber: bool) -> None:
        traffic = None if guest.left else guest.descriptor.traffic()
        if traffic is None:
            return
        if traffic.over and guest.delivered:  # libzmq notices once it has room for the peer's next message
            self._free(guest, "peer")
            return
        places = self._receiver.places
        if traffic.received > guest.received:
            places.heard(guest.place)
        if subscriber and traffic.taken > SUBSCRIBED:
            places.give_back(guest.place)
        ahead = traffic.received - guest.delivered
        guest.seen(traffic.received, guest.descriptor.unread() if ahead > READ_AT_ONCE else 0)
        if self._may_hold.excessive(guest, empty=empty):
            self._end(guest, FRAME_BYTES)

    def _together(self) -> None:
        there = [guest for door in self._doors for guest in door.guests.values() if not guest.left]
        for guest in self._may_hold.leaving(there, used):
            self._end(guest, PROCESS_BUDGET)

    def _end(self, guest: HeldConnection, limit: str) -> None:
        self._receiver.metrics.limit_hits.labels(limit).inc()
        self._receiver.limited.warning("peer sent too much", limit=limit, peer=guest.place.peer, held=guest.held)
        self._leave(guest, "protocol_error")
