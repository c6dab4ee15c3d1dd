"""The digest of the rows that a line of `batches` covers: two sums, modulo 2^64, of two different hashes of each row.

A sum does not depend on an order: merging and copying leave it as it is, and erased rows are subtracted. It detects
damage to rows since they landed, but no adversary: xxHash is no cryptographic hash, and its seeds are known.

One hash covers all columns that landing fills, except `UNCOVERED` and those that follow from the body; the other covers
place, id and content. Partitions of one batch share sums beyond `SLOTS` of them. The command line reads all this without PySpark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Sums = tuple[int, int]

NOTHING: Final[Sums] = (0, 0)
"""The sums of no row."""

SEEDS: Final = (0, 1)
"""The first value that each of the two hashes takes in."""

SLOTS: Final = 8
"""Most sums of a topic in a batch: each costs every row a comparison."""

Covered = tuple[tuple[str, ...], tuple[str, ...]]
"""The columns that each of the two hashes takes in, in this order; the first has them all."""

KEY: Final = ("topic_id", "partition", "offset")
OF_EVENTS: Final[Covered] = (
    (
        *KEY, "topic", "event_id", "protocol", "source", "stream", "event_time", "event_time_text", "received_time",
        "content_type", "body", "payload", "attributes",
    ),
    (*KEY, "event_id", "body", "payload"),
)  # fmt: skip
OF_QUARANTINE: Final[Covered] = (
    (
        *KEY, "topic", "raw", "reason", "detail", "protocol", "source", "stream", "id", "part", "parts", "sha256", "attributes",
        "received_time",
    ),
    (*KEY, "id", "raw"),
)  # fmt: skip
OF_TABLE: Final = {"events": OF_EVENTS, "quarantine": OF_QUARANTINE}
"""Fixed for ever: a digest has no version, so one column more, or another order, contradicts all rows that have landed before."""
UNCOVERED: Final = {
    "landed_at": "a replay gives what it restores its own time",
    "day": "it is that of landed_at",
}
"""The other columns of these tables, and why they need no digest. A column that a later version adds can only stand here."""

_WORD: Final = (1 << 64) - 1


def taken_in(columns: Sequence[str], seed: int) -> list[str | int]:
    """Returns the names of columns, and numbers, in the order in which a hash takes them in.

    A column that may be null is followed by its number: xxhash64 passes over null, so that a value might change places unseen.
    """
    parts: list[str | int] = [seed]
    for place, name in enumerate(columns):
        parts += [name] if name in KEY else [name, place]
    return parts


def hashes_sql(covered: Covered) -> list[str]:
    """Returns the two hashes of a row in Spark's SQL."""
    return [hash_sql(columns, seed) for columns, seed in zip(covered, SEEDS, strict=True)]


def hash_sql(columns: Sequence[str], seed: int) -> str:
    """Returns a hash of a row in Spark's SQL."""
    parts = (f"`{part}`" if isinstance(part, str) else str(part) for part in taken_in(columns, seed))
    return f"xxhash64({', '.join(parts)})"


def slots_of(partitions: Iterable[int]) -> int:
    """Returns how many sums of each topic a batch keeps that has records of these `partitions`: a power of two."""
    return int(min(SLOTS, 1 << max(partitions, default=0).bit_length()))


def added(one: Sums | None, other: Sums | None) -> Sums | None:
    """Returns both sums together; None if one of them is not known."""
    if one is None or other is None:
        return None
    return (one[0] + other[0]) & _WORD, (one[1] + other[1]) & _WORD


def hexadecimal(sums: Sums) -> str:
    """Returns both sums in 32 digits."""
    return f"{sums[0] & _WORD:016x}{sums[1] & _WORD:016x}"


@dataclass(frozen=True)
class LineDigest:
    """The column `digest` of a line of `batches`. Lines of one batch with the same `slot` have the same sums, together."""

    slots: int
    slot: int
    sums: Mapping[str, Sums | None]
    """Table -> sums of its rows; None if they are not known. A table that is missing got no row."""

    def __str__(self) -> str:
        known = {table: None if sums is None else hexadecimal(sums) for table, sums in self.sums.items()}
        sums = {table: text for table, text in known.items() if text != _ZERO}
        return json.dumps({"slots": self.slots, "slot": self.slot, "sums": sums})


_ZERO: Final = hexadecimal(NOTHING)


def forgotten(text: str | None) -> str | None:
    """Returns the digest of a line whose rows have changed: the slot of its sums, without the sums."""
    if text is None:
        return None
    return json.dumps({**json.loads(text), "sums": None})
