"""What a tool can say over a connection of any protocol, and what it hears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

Events = Sequence[Mapping[str, Any]]

STREAM: Final = "headrace.conform"
"""The stream that events of these tools name."""
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
    """A reply that acknowledges nothing, as Courier's PONG."""

    text: str


class Talk(Protocol):
    """One connection's client. Frames are numbered from 0 in the order in which they were made."""

    forms: Sequence[str]
    """The forms that a frame may have; the first is the usual one."""
    plain: str
    """The form whose bytes are nearest to those of the events."""
    malformed: bytes
    """What may not stand where a frame begins."""
    unknown: bytes
    """A message of a kind or version that nobody knows; see `unknown_is`."""
    unknown_is: str

    def greeting(self) -> bytes:
        """What a client says first; empty if it begins with a frame."""

    def frame(self, events: Events, form: str = "") -> bytes:
        """The next frame. It asks for an acknowledgement."""

    def bad_event(self, events: Events) -> bytes:
        """The next frame, soundly framed, with one event more, in the middle, that cannot be understood."""

    def bomb(self, size: int) -> bytes:
        """The next frame: sound, compressed, and at least `size` bytes when it is inflated."""

    def again(self) -> Talk:
        """The client of a new connection on which all these frames are sent again, in their order."""

    def receive(self, data: bytes) -> list[Answer | Remark]:
        """What the server's next bytes say. Raises `ProtocolError` for what no server may say."""


def filler(size: int) -> list[Mapping[str, Any]]:
    """Events of at least `size` bytes in all, which compress a thousandfold."""
    return [{"filler": "0" * FILLER} for _ in range(max(1, -(-size // FILLER)))]


def middle(events: Events) -> int:
    """Where the event that is not understood stands."""
    return len(events) // 2
