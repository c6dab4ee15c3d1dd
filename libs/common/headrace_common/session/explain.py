"""The frames and fields that `explain` shows of a protocol's bytes, and how a protocol tells them. Pure.

A receiver's package says it in ``explain.py``, by the decoders of its own ``wire``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace_common.operations.errors import ProtocolError
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


REPLY_BYTES: Final = 64 << 10
"""Longest reply that is waited for."""


class ReplyWalker:
    """Cuts a server's bytes into replies; `read` takes one byte at a time, so that it is known where each ends."""

    def __init__(self, name: str, read: Callable[[bytes], list[Any]], meaning: Callable[[Any], str]) -> None:
        self._name = name
        self._read = read
        self._meaning = meaning
        self._begin = self._at = 0
        self._sample = b""
        self.broken: str = ""
        """Why no more is read; empty while nothing is wrong."""

    @property
    def begin(self) -> int:
        """Where the reply begins that is not complete."""
        return self._begin

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        for at in range(len(data)):
            if self.broken:
                return
            byte = data[at : at + 1]
            self._at += 1
            if len(self._sample) < SAMPLE:
                self._sample += byte
            try:
                found = self._read(byte)
            except ProtocolError as error:
                self.broken = str(error)
                return
            if self._at - self._begin > REPLY_BYTES:
                self.broken = f"a reply of more than {REPLY_BYTES} bytes"
            for reply in found:
                size = self._at - self._begin
                meaning = self._meaning(reply)
                yield Unit(self._name, self._begin, size, meaning, [Part(self._begin, size, self._sample, meaning)])
                self._begin, self._sample = self._at, b""


@dataclass(frozen=True)
class Explanation:
    """How a protocol explains its bytes. Settings are those of its receiver, or None for the defaults.

    `begins`: whether a client or a server begins so; `server_begins`: whether only a server does. `note`: said at the end.
    """

    begins: Callable[[bytes], bool]
    server_begins: Callable[[bytes], bool] = lambda beginning: False
    stream: Callable[[int, Any], tuple[Walker, ByteSession]] | None = None
    """Makes what cuts a client's stream, and the session that hears it, from the number of parts to show."""
    replies: Callable[[bytes], Walker] | None = None
    """Makes what cuts a server's stream, from its first byte."""
    message: Callable[[bytes, Any, int], tuple[Unit, MessageSession] | None] | None = None
    """Of a protocol of messages instead: one message, as quarantine keeps it, and a session that has received it."""
    answer: Callable[[object], object] | None = None
    """Answers what the session asks."""
    note: str = ""
