"""Mutations of real captures and sound messages, for every codec: any bytes give the same whole and in pieces.

Hypothesis makes messages from their parts. This begins with what real clients send, several in a row, and spoils a little of
it, so that it comes deep into a decoder. A failure prints the bytes and the cuts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tests.tiers import sized

Change = Callable[[bytes, random.Random], bytes]

NUMBERS: Final = (0, 1, 2, 15, 16, 255, 256, 65_535, 2**24, 2**31, 2**32 - 1)
ONE_BY_ONE: Final = 300
"""Up to this many bytes are also fed one by one."""


def mutated(corpus: Sequence[bytes], chance: random.Random, changes: Sequence[Change] = (), most: int = 4) -> bytes:
    """One to `most` of `corpus` in a row, often with a few changes: the general ones, or `changes`, which a codec adds."""
    taken = [chance.choice(corpus) for _ in range(chance.randint(1, most))]
    if changes and chance.random() < 0.5:
        at = chance.randrange(len(taken))
        taken[at] = chance.choice(changes)(taken[at], chance)
    data = bytearray(b"".join(taken))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        _change(data, corpus, chance)
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data)


def _change(data: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
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
            other = chance.choice(corpus)
            start = chance.randrange(len(other) + 1)
            data[at:at] = other[start : start + size]
        case 4:
            other = chance.choice(corpus)
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
    """Where to cut so many bytes: few cuts or many, anywhere."""
    return sorted(chance.randrange(size + 1) for _ in range(chance.choice((1, 1, 2, 2, 3, 8, 40))))


def pieces(data: bytes, at: Sequence[int]) -> Iterator[bytes]:
    return (data[start:end] for start, end in zip((0, *at), (*at, len(data)), strict=True))


def the_same_in_pieces(
    outcome: Callable[[Iterable[bytes]], Any],
    corpus: Sequence[bytes],
    changes: Sequence[Change] = (),
    *,
    seed: int,
    share: float = 1.0,
) -> None:
    """Tries mutations of `corpus`: `outcome` of the whole is that of the pieces. `share`: of the usual number of examples."""
    for number in range(int(sized(60, 3_000, 30_000) * share)):
        chance = random.Random(f"{seed}-{number}")
        data = mutated(corpus, chance, changes)
        whole = outcome([data])
        ways = [cuts(len(data), chance) for _ in range(3)]
        if len(data) <= ONE_BY_ONE:
            ways.append(list(range(1, len(data))))
        for at in ways:
            assert outcome(pieces(data, at)) == whole, f"seed {seed}-{number}, cut at {at}: {data!r}"
