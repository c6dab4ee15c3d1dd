"""A protocol's client, with which tools and tests talk to a receiver. Pure, as sessions are.

Each receiver's package has its own in ``client.py``, on the same ``wire`` as its session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from typing_extensions import override

from headrace_common.operations.errors import ProtocolError

Events = Sequence[Mapping[str, Any]]

STREAM: Final = "demo.shop"
"""The stream that events of our clients name, as far as their protocol has streams."""
KEPT: Final = 100_000
"""Frames that a client remembers, the latest: older ones cannot be sent again."""
FILLER: Final = 64 << 10
"""Bytes of one event in what inflates: below what any server refuses of an event."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An acknowledgement: the server has taken the first `count` of the `size` events of a frame (numbered from 0)."""

    frame: int
    count: int
    size: int

    @property
    def whole(self) -> bool:
        """Whether it covers the frame."""
        return self.count == self.size


@dataclass(frozen=True, slots=True)
class Remark:
    """A reply that acknowledges nothing, as the answer to a ping."""

    text: str


class Client(ABC):
    """The client's side of a conversation. Frames are numbered from 0 in the order in which they are made.

    It may go on over several connections, each begun by `again`. Each frame asks for an acknowledgement.
    """

    compression: str = ""
    """The method by which the next frames are compressed, where the protocol leaves that to the client; empty: they are not."""
    batch: ClassVar[int] = 10_000
    """Most events that a tool puts into a frame."""
    named: ClassVar[bool] = False
    """Whether each event names itself (by an offset, an id): two of the same bytes are one event that was sent twice."""
    elsewhere: ClassVar[bool] = False
    """Whether tools may talk to servers of this protocol that are not ours."""
    malformed: ClassVar[bytes] = b""
    """Bytes that no frame begins with; empty if a transport of messages lies between."""

    def __init__(self, compression: str | None = None) -> None:
        """`compression`: None means the protocol's usual one."""
        if compression is not None:
            self.compression = compression
        self._sizes: dict[int, int] = {}
        self.made = 0
        """Frames that were made: the number of the next."""

    # Its bytes

    @abstractmethod
    def document(self, event: Mapping[str, Any]) -> bytes:
        """Encodes one event, with the fields that a real client adds, unless the event has them itself."""

    @abstractmethod
    def payload(self, documents: Sequence[bytes]) -> bytes:
        """Makes the next frame, of events that are encoded already."""

    def frame(self, events: Events) -> bytes:
        """Makes the next frame."""
        return self.payload([self.document(event) for event in events])

    def broken(self, event: Mapping[str, Any]) -> bytes:
        """Encodes an event so that it cannot be understood; empty if any bytes are an event."""
        return self.document(event)[:-1]

    def faulty(self, events: Events) -> bytes:
        """Makes the next frame, soundly framed, with a broken copy of the first event in its middle."""
        documents = [self.document(event) for event in events]
        documents.insert(len(documents) // 2, self.broken(events[0]))
        return self.payload(documents)

    def bomb(self, size: int) -> bytes:
        """Makes the next frame: sound, compressed, and at least `size` bytes when it is inflated."""
        self.compression = self.compression or "gzip"
        return self.frame([{"filler": "0" * FILLER}] * max(1, -(-size // FILLER)))

    @abstractmethod
    def again(self) -> bytes:
        """Begins a connection, the first or another. Returns its greeting; empty if it begins with a frame."""

    @abstractmethod
    def repeat(self, frame: int) -> None:
        """Notes that a frame that was made before is sent on this connection, after all others."""

    # The server's

    @abstractmethod
    def receive(self, data: bytes) -> list[Answer | Remark]:
        """Returns the meaning of the server's next bytes. Raises `ProtocolError` for what no server may send."""

    def _next(self, size: int) -> int:
        """Returns the number of the next frame, of `size` events."""
        frame, self.made = self.made, self.made + 1
        self._sizes[frame] = size
        self._sizes.pop(frame - KEPT, None)
        return frame

    def _answer(self, frame: int, count: int) -> Answer:
        """Makes an answer. Raises `ProtocolError` if the frame has fewer events."""
        size = self._sizes[frame]
        if count > size:
            raise ProtocolError(f"an acknowledgement of {count} events in a frame of {size}")
        return Answer(frame, count, size)


class KeyedClient(Client):
    """A client whose acknowledgements name their frame by a key that the client has chosen."""

    def __init__(self, compression: str | None = None) -> None:
        super().__init__(compression)
        self._keys: dict[str | bytes, int] = {}

    def _keyed(self, key: str | bytes, size: int) -> None:
        """Notes that the next frame has this key."""
        self._keys[key] = self._next(size)
        if len(self._keys) > KEPT:
            del self._keys[next(iter(self._keys))]

    @override
    def repeat(self, frame: int) -> None:
        """Does nothing: the key says which frame is meant."""

    def _frame_of(self, key: str | bytes) -> int:
        if key not in self._keys:
            raise ProtocolError(f"an acknowledgement of {key!r}, which was not sent")
        return self._keys[key]


class OrderedClient(Client):
    """A client whose acknowledgements mean the oldest frame that is under way on the connection."""

    def __init__(self, compression: str | None = None) -> None:
        super().__init__(compression)
        self._under_way: deque[int] = deque()

    @override
    def again(self) -> bytes:
        self._under_way.clear()
        return b""

    @override
    def repeat(self, frame: int) -> None:
        self._under_way.append(frame)

    @override
    def _next(self, size: int) -> int:
        frame = super()._next(size)
        self._under_way.append(frame)
        return frame
