"""Mutations of captures and of sound messages: a little of several in a row is spoiled, so that it comes deep into a decoder."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.fuzz.chance import Sent

NUMBERS: Final = (0, 1, 2, 15, 16, 255, 256, 65_535, 2**24, 2**31, 2**32 - 1)
Change = Callable[[bytes, random.Random], bytes]


def mutated(corpus: Sent, chance: random.Random, changes: Sequence[Change] = (), most: int = 4) -> Sent:
    """One to `most` of `corpus` in a row, often with a few changes: the general ones, or `changes`, which a protocol adds."""
    taken = [list(chance.choice(corpus)) for _ in range(chance.randint(1, most))]
    if changes and chance.random() < 0.5:
        parts = chance.choice(taken)
        at = chance.randrange(len(parts))
        parts[at] = chance.choice(changes)(parts[at], chance)
    return spoiled(taken, corpus, chance)


def spoiled(sent: Sent, corpus: Sent, chance: random.Random) -> Sent:
    """`sent` with a few changes, or none."""
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5)) if sent else 0):
        message = chance.choice(sent)
        if not message:
            continue
        at = chance.randrange(len(message))
        data = bytearray(message[at])
        change(data, chance.choice(chance.choice(corpus)), chance)
        message[at] = bytes(data)
    if sent and chance.random() < 0.1:
        last = sent[-1]
        last[-1:] = [part[: chance.randrange(len(part) + 1)] for part in last[-1:]]
    return sent


def change(data: bytearray, other: bytes, chance: random.Random) -> None:
    """Changes a little of `data`; `other` is something that may stand there."""
    at = chance.randrange(len(data) + 1)
    size = chance.choice((1, 1, 2, 4, 40))
    match chance.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.randrange(256)
        case 2:
            del data[at : at + size]
        case 3:  # what such a message consists of, in the wrong place
            start = chance.randrange(len(other) + 1)
            data[at:at] = other[start : start + size]
        case 4:
            data[at:] = other[chance.randrange(len(other) + 1) :]
        case 5:
            width = chance.choice((1, 2, 4))
            number = chance.choice((*NUMBERS, len(data), len(data) - at)) & (256**width - 1)
            data[at : at + width] = number.to_bytes(width, chance.choice(("big", "little")))
        case 6:
            data[at:at] = data[at : at + size] * chance.randint(1, 30)
        case 7:
            data[at:at] = chance.randbytes(size)


def cuts(size: int, chance: random.Random) -> list[int]:
    """Where to cut so many bytes or messages: few cuts or many, anywhere."""
    return sorted(chance.randrange(size + 1) for _ in range(chance.choice((1, 1, 2, 2, 3, 8, 40))))


def pieces(data: bytes, at: Sequence[int]) -> Iterator[bytes]:
    return (data[start:end] for start, end in zip((0, *at), (*at, len(data)), strict=True))
