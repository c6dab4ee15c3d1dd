"""A frame as it is shown: where it stands, and what each of its fields means. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

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
        """For JSON."""
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
        """For JSON."""
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
        """Yield the frames that `data`, split anywhere, completes. Where the stream breaks it yields no more, and never raises:
        it is the receiver's session that says why.
        """


def fields(data: bytes, offset: int, *sizes: tuple[int, str], inflated: bool = False) -> list[Part]:
    """Consecutive fields of `data`, which begins at `offset`: their sizes and meanings."""
    found = []
    at = 0
    for size, meaning in sizes:
        found.append(Part(offset + at, size, data[at : at + min(size, SAMPLE)], meaning, inflated))
        at += size
    return found


def count(number: int, what: str) -> str:
    """``1 event``, ``2 events``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def cut_text(text: str) -> str:
    """At most `TEXT` characters of it."""
    return text if len(text) <= TEXT else f"{text[:TEXT]} …"
