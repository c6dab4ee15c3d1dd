"""What a hostile or broken client does: which faults there are, what each needs, and what came of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MOST_BOMBS: Final = 10
"""Bombs in a run."""
MOST: Final = 1000
"""Plays of any other fault on connections of its own, in a run."""


class Kind(StrEnum):
    """The faults; a cut's name has its number of frames behind it."""

    SLOW_READER = "slow-reader"
    HALF_FRAME = "half-frame"
    BOMB = "bomb"
    BAD_JSON = "bad-json"
    CUT = "cut-after"
    RESEND = "resend"
    NO_ACK = "no-ack"
    MALFORMED = "malformed"


BESIDE: Final = (Kind.BOMB, Kind.BAD_JSON, Kind.MALFORMED)
"""Those that have connections of their own, beside the sound ones."""


@dataclass(frozen=True)
class Fault:
    """`every`: one of so many frames of a connection brings it. `pause`: seconds; `inflated`: bytes."""

    kind: Kind
    every: int = 1
    pause: float = 1.0
    inflated: int = 1 << 20

    @property
    def name(self) -> str:
        """As the user writes it."""
        return f"{self.kind.value}-{self.every}" if self.kind is Kind.CUT else self.kind.value

    @property
    def most(self) -> int:
        """Plays of a run, of a fault with connections of its own."""
        return MOST_BOMBS if self.kind is Kind.BOMB else MOST


@dataclass
class Played:
    """What came of a fault. `closed`: connections that the server ended; `again`: frames that were sent again.

    `answers`: what the server did about each play on a connection of its own, in a few words.
    """

    fault: Fault
    times: int = 0
    closed: int = 0
    again: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    unasked: list[range] = field(default_factory=list)
    """Frames that asked for no acknowledgement, by their events' numbers."""
