"""What a hostile or broken client does: which faults there are, what each needs, and what came of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headrace_cli.errors import CommandError

EVERY: Final = 10
"""Frames of a connection of which one brings the fault, unless the user says otherwise."""
PAUSE: Final = 5.0
"""Seconds for which a slow reader does not read."""
INFLATED: Final = 100
"""MiB that a bomb inflates to."""
MOST_BOMBS: Final = 10
"""Bombs in a run."""
MOST: Final = 1000
"""Plays of any other fault on connections of its own, in a run."""
LONGEST_CUT: Final = 1_000_000


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


NAMES: Final = ", ".join(f"{kind}-N" if kind is Kind.CUT else kind.value for kind in Kind)
BESIDE: Final = (Kind.BOMB, Kind.BAD_JSON, Kind.MALFORMED)
"""Those that have connections of their own, beside the sound ones."""
_SENSELESS: Final[Mapping[tuple[str, Kind], str]] = {
    ("segment", Kind.BOMB): "segments compress nothing",
    ("segment", Kind.BAD_JSON): "an event of a segment is any bytes",
    ("logjam", Kind.SLOW_READER): "ZeroMQ reads by itself",
    ("logjam", Kind.HALF_FRAME): "ZeroMQ passes on whole messages only",
    ("logjam", Kind.MALFORMED): "ZeroMQ passes on sound messages only",
    ("logjam", Kind.BOMB): "a message is one event, and a limit holds for each",
    ("logjam", Kind.BAD_JSON): "a message is one event, so no sound one stands beside it",
}


@dataclass(frozen=True)
class Fault:
    """`every`: one of so many frames of a connection brings it. `pause`: seconds; `inflated`: bytes."""

    kind: Kind
    every: int = EVERY
    pause: float = PAUSE
    inflated: int = INFLATED << 20

    @property
    def name(self) -> str:
        """As the user writes it."""
        return f"{self.kind.value}-{self.every}" if self.kind is Kind.CUT else self.kind.value

    @property
    def most(self) -> int:
        """Plays of a run, of a fault with connections of its own."""
        return MOST_BOMBS if self.kind is Kind.BOMB else MOST


def fault_of(
    name: str, protocol: str, *, every: int | None = None, pause: float | None = None, inflated: int | None = None
) -> Fault | None:
    """The fault that the options ask for; None without a name. `inflated` in MiB. Raises `CommandError` with status 2."""
    cut = re.fullmatch(r"cut-after-(\d{1,7})", name)
    kind = Kind.CUT if cut else next((each for each in Kind if each == name and each is not Kind.CUT), None)
    if name and kind is None:
        raise CommandError(f"--fault {name}: it is one of {NAMES}.", status=2)
    if kind is not None and (why := _SENSELESS.get((protocol, kind))):
        raise CommandError(f"--fault {name} makes no sense for {protocol}: {why}.", status=2)
    for option, given, needed in (
        ("--every", every, kind is not None and kind is not Kind.CUT),
        ("--pause", pause, kind is Kind.SLOW_READER),
        ("--inflated", inflated, kind is Kind.BOMB),
    ):
        if given is not None and not needed:
            why = f"--fault {name} does not need it" if name else "no fault needs it"
            raise CommandError(f"{option}: {why}.", status=2)
    if kind is None:
        return None
    if cut:
        every = int(cut[1])
        if not 0 < every <= LONGEST_CUT:
            raise CommandError(f"--fault {name}: the number of frames is 1 to {LONGEST_CUT:,}.", status=2)
    return Fault(
        kind,
        every or (1 if kind is Kind.RESEND else EVERY),
        PAUSE if pause is None else pause,
        (INFLATED if inflated is None else inflated) << 20,
    )


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

    def described(self) -> Mapping[str, Any]:
        """For JSON."""
        return {
            "name": self.fault.name,
            "played": self.times,
            "closed_by_server": self.closed,
            "frames_sent_again": self.again,
            "answers": dict(self.answers),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Rows of the table at the end."""
        return [
            (f"fault: {self.fault.name}", f"played {self.times:,} {'time' if self.times == 1 else 'times'}"),
            *([("sent again", f"{self.again:,} {'frame' if self.again == 1 else 'frames'}")] if self.again else []),
            *((f"the server {answer}", f"{times:,}") for answer, times in self.answers.most_common()),
            ("connections closed by the server", f"{self.closed:,}"),
        ]
