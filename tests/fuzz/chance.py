"""Chance of a seed: values, mutations and places to cut at."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

Sent = list[list[bytes]]
"""Messages of parts: one each, Logjam's their frames. To protocols of bytes they are one stream."""

NUMBERS: Final = (0, 1, 2, 15, 16, 255, 256, 65_535, 2**24, 2**31, 2**32 - 1)
ONE_BY_ONE: Final = 300
"""Up to this many bytes or messages are cut everywhere now and then."""


class Chance(random.Random):
    """The same choices for the same seed. If it `spoils`, what is compressed is often another thing than it should be."""

    spoils = False

    def perhaps(self, probability: float) -> bool:
        return self.random() < probability

    def inside(self, data: bytes) -> bytes:
        """What is to be compressed."""
        return flat(self.spoiled([[data]], [[data]])) if self.spoils else data

    def spoiled(self, sent: Sent, corpus: Sent) -> Sent:
        """`sent` with a few changes, or none: a little is spoiled, so that it comes deep into a decoder."""
        for _ in range(self.choice((0, 0, 1, 1, 2, 5))):
            if sent and (message := self.choice(sent)):
                at = self.randrange(len(message))
                message[at] = self._changed(bytearray(message[at]), self.choice(self.choice(corpus)))
        if sent and self.perhaps(0.1):
            last = sent[-1]
            last[-1:] = [part[: self.randrange(len(part) + 1)] for part in last[-1:]]
        return sent

    def _changed(self, data: bytearray, other: bytes) -> bytes:
        """Changes a little of `data`; `other` is something that may stand there."""
        at = self.randrange(len(data) + 1)
        size = self.choice((1, 1, 2, 4, 40))
        match self.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << self.randrange(8)
            case 1 if at < len(data):
                data[at] = self.randrange(256)
            case 2:
                del data[at : at + size]
            case 3:  # what such a message consists of, in the wrong place
                start = self.randrange(len(other) + 1)
                data[at:at] = other[start : start + size]
            case 4:
                data[at:] = other[self.randrange(len(other) + 1) :]
            case 5:
                width = self.choice((1, 2, 4))
                number = self.choice((*NUMBERS, len(data), len(data) - at)) & (256**width - 1)
                data[at : at + width] = number.to_bytes(width, self.choice(("big", "little")))
            case 6:
                data[at:at] = data[at : at + size] * self.randint(1, 30)
            case 7:
                data[at:at] = self.randbytes(size)
        return bytes(data)

    def cuts(self, size: int) -> list[int]:
        """Where to cut so many bytes or messages: few cuts or many, anywhere or everywhere."""
        if size <= ONE_BY_ONE and self.perhaps(1 / 16):
            return list(range(1, size))
        return sorted(self.randrange(size + 1) for _ in range(self.choice((1, 1, 2, 2, 3, 8, 40))))


def pieces(data: bytes, at: Sequence[int]) -> Iterator[bytes]:
    return (data[start:end] for start, end in zip((0, *at), (*at, len(data)), strict=True))


def flat(sent: Sent) -> bytes:
    """As one stream."""
    return b"".join(part for message in sent for part in message)
