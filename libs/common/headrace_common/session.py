"""The seam between a protocol and everything else: a session is a pure machine, a frame is what it hands out.

Bytes, the publisher's word and time go in; frames to publish, bytes to write and `ProtocolError` come out. No sockets, no
clock, no Kafka: a test drives a session without an event loop, whole input or one byte at a time, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from headrace_common.event import Part, Reject

Ticket = int
"""Names a frame within its session; rises by one with each frame handed out."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end. `identity` is what `ce_source` names: TLS subject, else the address without its port."""

    address: str
    port: int
    identity: str


class Frame(Protocol):
    """One complete unit to publish: what is acknowledged together."""

    @property
    def ticket(self) -> Ticket:
        """Given back to the session with the publisher's word."""

    @property
    def size(self) -> int:
        """Bytes it holds now; charged to the budgets until it is stored or abandoned."""

    @property
    def acknowledged(self) -> bool:
        """Whether the peer asked for an acknowledgement: without, loss would go unnoticed, and is counted."""

    @property
    def received_ms(self) -> int:
        """Unix time of its last byte in milliseconds: the record's timestamp."""

    def parts(self) -> Iterator[Part | int]:
        """Its events and rejects in order, made one by one while the publisher asks. Each call begins anew; what an earlier
        one gave was thrown away then.

        An int is a pause: so many bytes more are held from now on (0: none); whoever iterates may let others run. All
        growth comes before the first part. Between two parts or pauses lie some milliseconds of work at most. Never
        raises for any bytes: what cannot be understood is a reject.
        """

    def spoiled(self, detail: str) -> Reject:
        """The whole frame as received, as a reject of reason `internal`: for when `parts` breaks its promise."""


class Session(Protocol):
    """One client's conversation. The peer and every limit are constructor arguments."""

    def receive(self, data: bytes, now_ms: int) -> None:
        """Bytes from the peer, split anywhere, at the Unix time `now_ms`.

        Raises `ProtocolError`: nothing more can be read from this peer. Frames that were complete before the fault are
        still handed out, and may still be settled and acknowledged.

        It does a bounded part of long work (inflating) and may leave the rest: see `busy`.
        """

    def busy(self) -> bool:
        """Bytes wait that it has not looked at: `receive` nothing (``b""``) when the loop has turned and the budgets allow."""

    def frames(self) -> Iterator[Frame]:
        """Complete units to publish, each handed out once, in order."""

    def settle(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """The publisher's word, any order: `stored` parts are durable from the frame's start, on either topic.

        `whole`: that is all of the frame. Never called again for the same ticket after `whole`.
        """

    def abandon(self, ticket: Ticket) -> None:
        """The frame will not be stored: neither it nor anything behind it may be acknowledged; the conversation ends."""

    def eof(self) -> None:
        """The peer has finished sending; what is pending is still acknowledged. Raises `ProtocolError` inside a frame."""

    def deadline(self) -> float | None:
        """The monotonic time (s) when `tick` must be called next; None: never."""

    def tick(self, now: float) -> None:
        """Time passes: keep-alives fall due, handshakes expire (`ProtocolError`)."""

    def outgoing(self) -> bytes:
        """What to write now, in one write: one acknowledgement, reply or keep-alive. Empty when there is nothing.

        Call it until it returns nothing.
        """

    def farewell(self) -> bytes:
        """What to write last: no more is read, and all that was handed out is durable. Of a frame that did not arrive as a
        whole it is now or never that its beginning can be acknowledged.
        """

    def idle(self) -> bool:
        """Nothing pending, nothing half read: the connection may be closed for its age."""

    def held(self) -> int:
        """Bytes it holds of frames that are not handed out yet."""

    def unacknowledgeable(self) -> bool:
        """The peer has sent something for which it asked no acknowledgement: closing could lose what is on its way."""
