"""Decides which peers leave because ZeroMQ holds too much of them. Pure.

libzmq bounds a frame, and the number of whole messages that it keeps for a peer. It bounds neither the frames of one message nor
what all peers send together, and gives us nothing of a message before it is whole. So we compare what a peer's TCP connection has
received with the bytes delivered to us: libzmq holds the difference.

===================================================  ==========================================================
bytes held                                           at most
===================================================  ==========================================================
of a peer, right after its socket was read empty:    `HoldingLimits.message`, one message
it is one message that is not whole
of a peer whose socket is not read                   `HoldingLimits.ahead`, what libzmq may keep of whole messages
of all peers                                         `HoldingLimits.total`, and `HoldingLimits.each` of every peer
===================================================  ==========================================================

An empty frame is two bytes on the wire and 64 in libzmq's memory. So while more is held than is harmless for frames of any
kind, the memory that the process uses counts, too: it may be twice the total, `HoldingLimits.each` and `CONNECTION` of
every peer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace_common.connection.places import Place
from headrace_common.operations.settings import LimitSettings

if TYPE_CHECKING:
    from headrace_logjam.peers.descriptor import Descriptor

OTHER: Final = 1 << 20
"""Bytes of a message beyond its largest frame, and of what arrives during a look."""

FRAMING: Final = 64
"""Bytes that a frame takes on the wire beyond its content at most, encrypted or not."""

READ_AT_ONCE: Final = 8 << 10
"""Bytes that libzmq reads at a time, and keeps as long as a message is in them."""

CONNECTION: Final = 64 << 10
"""Bytes of memory that libzmq takes for a connection without messages."""

AMPLIFIED: Final = 32
"""Bytes of memory that a byte on the wire can become: an empty frame is two bytes, and 64 in libzmq."""


class ReceivedMessage(NamedTuple):
    """A whole message: the number of its connection's descriptor, and its bytes on the wire at most."""

    descriptor: int
    size: int


@dataclass(eq=False, slots=True, kw_only=True)
class HeldConnection:
    """A connection. Bytes since it began: `received` by TCP, `delivered` to us, and `held` at the last look.

    `since`: when it came (event loop time).
    """

    place: Place
    descriptor: Descriptor
    since: float
    received: int = 0
    delivered: int = 0
    held: int = 0
    left: bool = False
    """It was ended by us, or refused: it takes no place."""

    def seen(self, received: int, unread: int) -> None:
        """Notes that `received` bytes have come by now; the kernel still has `unread` of them."""
        self.received = received
        self.delivered = min(self.delivered, received)  # FRAMING is an upper bound: no credit grows
        self.held = max(0, received - self.delivered - unread)


class HoldingLimits(NamedTuple):
    """Bytes that may be held at most; see the table above."""

    message: int
    ahead: int
    total: int
    each: int

    @classmethod
    def of(cls, limits: LimitSettings, peer_messages: int) -> HoldingLimits:
        """Returns the limits by the settings. `peer_messages`: see `LogjamSection`; two more may be on their way."""
        message = limits.frame_bytes + OTHER
        ahead = (peer_messages + 2) * message
        return cls(message, ahead, limits.process_budget, (peer_messages + 2) * READ_AT_ONCE)

    def excessive(self, peer: HeldConnection, *, empty: bool) -> bool:
        """Returns whether a peer holds more than it may. `empty`: all that is whole was read."""
        return peer.held > (self.message if empty else self.ahead)

    def leaving(self, peers: Collection[HeldConnection], memory: Callable[[], int]) -> list[HeldConnection]:
        """Returns those that leave because all together hold too much, largest first, until half of it is left.

        `memory`: what the process uses.
        """
        total = sum(peer.held for peer in peers)
        if total * AMPLIFIED <= self.total:
            return []
        most = self.total + len(peers) * self.each
        if total <= most and memory() <= self.total + most + len(peers) * CONNECTION:
            return []
        leaving = []
        left = total
        for peer in sorted(peers, key=lambda peer: peer.held, reverse=True):
            if left <= total // 2:
                break
            leaving.append(peer)
            left -= peer.held
        return leaving
