"""What a consumer of a device's stream did not get, by the numbers of what it got. Pure.

A device gives one number after the other to all that it publishes, heartbeats too, from 1 on at each start, and 1 again after
2⁶⁴ − 1. One connection keeps their order. So a number that is not the next one means:

=========================================  ===========================================================================
the number                                 what it is
=========================================  ===========================================================================
is higher                                  a gap
is the first one, and not 1                a gap from 1 on: what was published before this consumer had joined
was seen, with the same time of creation   a duplicate: some bridge says it twice
fills a gap, and is not newer than all     it has gone back: the gap was reported, its event fills it
any other that is not higher               the device has restarted; a gap from 1 on, if it is not 1
continues what a restart seemed to end     two devices use one number: nothing more can be counted
is low, and the last one was near the end  the numbering began again, with or without a gap
=========================================  ===========================================================================

Device 0 is what a device says that was given no number: nothing can be counted. A restart after which the first number that
comes is above the last one before cannot be told from a gap, or from none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from headrace_logjam.wire import LAST_NUMBER

NEAR: Final = 2**32
"""How far from its end, and behind its beginning, the numbering may be for a wrap to be one."""

REMEMBERED: Final = 4096
"""Numbers, and gaps, of a device that are remembered to know duplicates and what has gone back."""


FAR: Final = 1000
COINCIDENCES: Final = 4
"""A number that continues what a restart seemed to end comes from another device if it is so far from the last one, or if this
happens so many restarts in a row. Else it may be chance: as many numbers were lost."""


class Notice(StrEnum):
    """What was noticed of the numbers, beside gaps."""

    JOINED = "joined"  # the first number of a device that this consumer sees is above 1
    RESTARTED = "restarted"  # a device counts from 1 again
    WRAPPED = "wrapped"  # the numbering came to its end
    DUPLICATE = "duplicate"  # a number came twice
    WENT_BACK = "went_back"  # a number came after higher ones
    DOUBLED = "doubled"  # two devices use one number; not counted from here on
    UNNUMBERED = "unnumbered"  # a message of device 0


class Gap(NamedTuple):
    """Numbers of a device that were not received: from `start` to before `end`. `after`, `before`: `GapField`."""

    device: int
    start: int
    end: int
    after: int | None
    before: int | None


@dataclass(slots=True)
class Found:
    """What one message told."""

    gaps: list[Gap] = field(default_factory=list)
    notice: Notice | None = None


NOTHING: Final = Found()


class _Device:
    """One device's numbers: those since its last start."""

    def __init__(self, number: int, last: int, created: int) -> None:
        self.number = number
        self.last = last
        self.created = created  # of the last
        self.newest = created
        self.ended: int | None = None  # the last number before the start that was seen last
        self.doubled = False
        self._coincidences = 0  # restarts in a row that seemed not to have ended the numbers before
        self._coincided = False  # this one
        self._seen = {last % REMEMBERED: (last, created)}
        self._gaps: OrderedDict[int, int] = OrderedDict()  # first missing number, and one past the last

    def advance(self, sequence: int, created: int) -> None:
        self.last, self.created = sequence, created
        if created > self.newest:
            self.newest = created
        self._seen[sequence % REMEMBERED] = sequence, created

    def _remember(self, sequence: int, created: int) -> None:
        self._seen[sequence % REMEMBERED] = sequence, created

    def gap(self, start: int, end: int, after: int | None, before: int) -> Gap:
        self._gaps[start] = end
        if len(self._gaps) > REMEMBERED:
            self._gaps.popitem(last=False)
        return Gap(self.number, start, end, after, before)

    def goes_on_elsewhere(self, sequence: int) -> bool:
        """It continues what a restart seemed to end, and that is no coincidence."""
        if self.ended is None or sequence != self.ended + 1:
            return False
        if not self._coincided:
            self._coincided = True
            self._coincidences += 1
        self.doubled = abs(sequence - self.last) > FAR or self._coincidences >= COINCIDENCES
        return self.doubled

    def is_duplicate(self, sequence: int, created: int) -> bool:
        return self._seen.get(sequence % REMEMBERED) == (sequence, created)

    def fills(self, sequence: int, created: int) -> bool:
        """It was missing, and is remembered from now on."""
        if created > self.newest or self._seen.get(sequence % REMEMBERED, (0, 0))[0] == sequence:
            return False
        if not any(start <= sequence < end for start, end in self._gaps.items()):
            return False
        self._remember(sequence, created)
        return True

    def start(self, sequence: int, created: int) -> None:
        """The device has restarted."""
        self.ended = self.last
        if not self._coincided:
            self._coincidences = 0
        self._coincided = False
        self._seen.clear()
        self._gaps.clear()
        self.last, self.created, self.newest = sequence, created, created
        self._remember(sequence, created)


class Numbers:
    """The numbers of all devices of one endpoint."""

    def __init__(self, known: Mapping[int, tuple[int, int]] | None = None) -> None:
        """`known`: the last number of each device that is known from before, and its time of creation."""
        self._devices = {device: _Device(device, *last) for device, last in (known or {}).items()}

    def received(self, device: int, sequence: int, created: int) -> Found:
        """A message with this number, made at `created` (Unix time, ms)."""
        if device == 0:
            return Found(notice=Notice.UNNUMBERED)
        known = self._devices.get(device)
        if known is None:
            known = self._devices[device] = _Device(device, sequence, created)
            return self._from_one(known, None, Notice.JOINED) if sequence != 1 else NOTHING
        if known.doubled:
            return NOTHING
        if sequence == known.last + 1:
            known.advance(sequence, created)
            return NOTHING
        if known.goes_on_elsewhere(sequence):
            return Found(notice=Notice.DOUBLED)
        if sequence > known.last:
            found = Found([known.gap(known.last + 1, sequence, known.created, created)])
            known.advance(sequence, created)
            return found
        return self._not_higher(known, sequence, created)

    def _not_higher(self, known: _Device, sequence: int, created: int) -> Found:
        if known.is_duplicate(sequence, created):
            return Found(notice=Notice.DUPLICATE)
        if known.fills(sequence, created):
            return Found(notice=Notice.WENT_BACK)
        after, last = known.created, known.last
        if 0 < sequence < NEAR and last > LAST_NUMBER - NEAR:
            gaps = [Gap(known.number, last + 1, LAST_NUMBER + 1, after, created)] if last < LAST_NUMBER else []
            known.start(sequence, created)
            known.ended = None
            begun = self._from_one(known, after, Notice.WRAPPED)
            return Found(gaps + begun.gaps, Notice.WRAPPED)
        known.start(sequence, created)
        return self._from_one(known, after, Notice.RESTARTED)

    @staticmethod
    def _from_one(known: _Device, after: int | None, notice: Notice) -> Found:
        """The first number that came of a device since it started."""
        first = known.last
        return Found([known.gap(1, first, after, known.created)] if first > 1 else [], notice)
