"""The frames and fields that `explain` shows of a protocol's bytes. Pure.

A receiver's package finds them in ``explain.py``, by the decoders of its own ``wire``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace_common.session.interface import ByteSession, MessageSession, Peer

PEER: Final = Peer("client", 0, "client")
"""The client whose bytes are explained."""
SAMPLE: Final = 16
"""Most bytes of a field that are shown."""
TEXT: Final = 200
"""Most characters of a text that are shown."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a frame, or something within one. `sample`: its first bytes; `inflated`: its offset counts what was inflated."""

    offset: int
    size: int
    sample: bytes
    meaning: str
    inflated: bool = False

    def described(self) -> dict[str, Any]:
        """Returns it as an object for JSON."""
        found = {"offset": self.offset, "size": self.size, "hex": self.sample.hex(), "meaning": self.meaning}
        return {**found, "inflated": True} if self.inflated else found


@dataclass(frozen=True, slots=True)
class Unit:
    """One frame: `kind` is its name in the protocol. `more`: parts that are left out."""

    kind: str
    offset: int
    size: int
    meaning: str
    parts: Sequence[Part] = ()
    more: int = 0

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.offset + self.size

    def described(self) -> dict[str, Any]:
        """Returns it as an object for JSON."""
        return {
            "offset": self.offset,
            "size": self.size,
            "kind": self.kind,
            "meaning": self.meaning,
            "fields": [part.described() for part in self.parts],
            "fields_left_out": self.more,
        }


class Walker(Protocol):
    """Cuts a stream into frames."""

    def feed(self, data: bytes) -> Iterator[Unit]:
        """Yields the frames that `data`, split anywhere, completes. Where the stream breaks it yields no more, and never raises:
        it is the receiver's session that says why.
        """


def fields(data: bytes, offset: int, *sizes: tuple[int, str]) -> list[Part]:
    """Returns consecutive fields of `data`, which begins at `offset`: their sizes and meanings."""
    found = []
    at = 0
    for size, meaning in sizes:
        found.append(Part(offset + at, size, data[at : at + min(size, SAMPLE)], meaning))
        at += size
    return found


def count(number: int, what: str) -> str:
    """Returns ``1 event``, ``2 events``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def cut_text(text: str) -> str:
    """Returns at most `TEXT` characters of it."""
    return text if len(text) <= TEXT else f"{text[:TEXT]} …"


@dataclass(frozen=True)
class Explanation:
    """How a protocol explains its bytes. Settings are those of its receiver, or None for the defaults.

    `begins`: whether a connection may begin with these bytes. `note`: printed at the end.
    """

    begins: Callable[[bytes], bool]
    stream: Callable[[int, Any], tuple[Walker, ByteSession]] | None = None
    """Makes the walker of a client's stream, and its session, from the number of parts to show."""
    replies: Callable[[], Callable[[bytes], list[str]]] | None = None
    """Makes a function that describes the replies in the session's bytes, or raises `ProtocolError`."""
    message: Callable[[bytes, Any, int], tuple[Unit, MessageSession] | None] | None = None
    """Of a protocol of messages instead: one message, as quarantine keeps it, and a session that has received it."""
    answer: Callable[[object], object] | None = None
    """Answers a question of the session."""
    note: str = ""
