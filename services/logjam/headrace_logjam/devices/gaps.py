"""Finds the messages that a consumer of a device's stream did not get, by the numbers of those it got. Pure.

A device numbers all its messages, heartbeats too: one after the other, from 1 at each start, and 1 again after 2⁶⁴ − 1. One
connection keeps their order. A message's own time is not used: it is of a producer's clock.

===============================  ====================================================  =======================================
the number                       and                                                   it is
===============================  ====================================================  =======================================
is the first of its device       is not 1                                              from before us: named, and no loss
is the last one's next           and else as well                                      nothing
is higher                        and else as well                                      a gap
is low, the last near the end    and else as well                                      the end of the numbering, and its gaps
is not higher                    its message came with this number before              a duplicate: a bridge sends it twice
is not higher                    was found missing since this connection began        late: the gap was reported, this fills it
is any other that is not higher  and else as well                                      a restart: a gap from 1 on, if it is not 1
===============================  ====================================================  =======================================

A device that restarts ends its connections, so only its connection tells that a number is late: a gap from before the
connection is never filled, nor is any while a message's connection is uncertain. Where the rule takes a late or doubled
message for a restart, it reports received numbers as missing: at most all below it, and those up to the next.

Two devices that use one number, one at a time, are known by their heartbeats, which say where a device publishes: that cannot
change without a restart, nor change back. When one is heard again all its numbers since its own last heartbeat are reported,
because they cannot be told from the other's: among them are those that came until it had gone. Two at once are known by runs of
numbers that go on, again and again, where others have ended.

What no rule can see: what a device published last before it stopped, and a restart after which the first number that comes is
above the last one before.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from headrace_logjam.wire import LAST_NUMBER

NEAR: Final = 2**32
"""A wrap leads from less than this before the end of the numbering to less than this after its beginning."""

REMEMBERED: Final = 4096
"""Numbers, and gaps, of a device that are remembered, to tell duplicates and late ones."""

RUNS: Final = 8
"""Runs of numbers that have ended, and may go on, that are remembered."""

COINCIDENCES: Final = 4
FAR: Final = 1000
"""Two devices are assumed if COINCIDENCES breaks in a row, over FAR numbers, go on where another run ended. Else it is chance."""


class Notice(StrEnum):
    """Remarks on the numbers, besides gaps."""

    JOINED = "joined"  # the first number of a device that this consumer sees is above 1
    RESTARTED = "restarted"  # a device counts from 1 again
    WRAPPED = "wrapped"  # the numbering came to its end
    DUPLICATE = "duplicate"  # a message came twice
    WENT_BACK = "went_back"  # a message came after later ones
    DOUBLED = "doubled"  # two devices use one number


BEHIND: Final = (Notice.DUPLICATE, Notice.WENT_BACK)
"""The notices of a message that is not the last one of its device."""

BEGINS: Final = (Notice.RESTARTED, Notice.WRAPPED)
"""The notices of a device whose numbers begin again."""


class Gap(NamedTuple):
    """Numbers of a device that were not received: from `start` to before `end`. `after`, `before`: `GapField`."""

    device: int
    start: int
    end: int
    after: int | None
    before: int | None

    @property
    def before_us(self) -> bool:
        """They were published before this consumer heard the device for the first time: no loss of ours."""
        return self.after is None


class MessageFacts(NamedTuple):
    """The facts of a message. `received`: Unix time, ms, of our clock. `content`: differs where messages differ. `address`: where
    the device publishes, of a heartbeat; else empty.
    """

    sequence: int
    received: int
    content: int
    address: bytes = b""


@dataclass(slots=True)
class Findings:
    """The findings of one message."""

    gaps: list[Gap] = field(default_factory=list)
    notice: Notice | None = None


NOTHING: Final = Findings()

Ranges = Sequence[tuple[int, int]]
"""First numbers, and those past the last, rising."""


class NumbersBehind(NamedTuple):
    """Numbers of a device that are stored after a consumer's position. `received`: of the newest of them (Unix time, ms)."""

    numbers: Ranges
    received: int


def without(start: int, end: int, held: Ranges) -> Iterator[tuple[int, int]]:
    """Yields the parts of a range that are in none of `held`."""
    for first, past in held:
        if start < min(first, end):
            yield start, min(first, end)
        start = max(start, past)
    if start < end:
        yield start, end


class _Device:
    """One device's numbers: those since its last start."""

    def __init__(self, number: int, last: int, received: int, held: Ranges = ()) -> None:
        """`held`: numbers after `last` that are stored as well."""
        self.number = number
        self.last = held[-1][1] - 1 if held else last
        self.received = received  # the last
        self._seen: dict[int, tuple[int, int]] = {}
        self._missing: OrderedDict[int, int] = OrderedDict()  # of this connection: first number, and one past the last
        self._ends: deque[int] = deque(maxlen=RUNS)  # of runs that may go on
        self._coincidences = self._distance = self._exactly = 0
        self._address = b""  # in the last heartbeat
        self._started = False  # since then
        self._beats: dict[
            bytes, tuple[int, int]
        ] = {}  # by address: the last heartbeat's number, and gaps counted until then
        self._gaps = 0
        self._reported: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)  # gaps, with how many there were

    def advance(self, told: MessageFacts) -> None:
        self.last, self.received = told.sequence, told.received
        self._seen[told.sequence % REMEMBERED] = told.sequence, told.content

    def gap(self, start: int, end: int, told: MessageFacts, *, fillable: bool = False) -> Gap:
        """Returns a gap in front of a message."""
        if fillable:
            self._missing[start] = end
            if len(self._missing) > REMEMBERED:
                self._missing.popitem(last=False)
        self._gaps += 1
        self._reported.append((start, end, self._gaps))
        return Gap(self.number, start, end, self.received, told.received)

    def is_duplicate(self, told: MessageFacts) -> bool:
        return self._seen.get(told.sequence % REMEMBERED) == (told.sequence, told.content)

    def fills(self, told: MessageFacts) -> bool:
        """Returns whether a number was missing in this connection. Remembers it from now on."""
        sequence = told.sequence
        if self._seen.get(sequence % REMEMBERED, (0, 0))[0] == sequence:
            return False
        if not any(start <= sequence < end for start, end in self._missing.items()):
            return False
        self._seen[sequence % REMEMBERED] = sequence, told.content
        return True

    def forget_missing(self) -> None:
        """Forgets the missing numbers: another connection began."""
        self._missing.clear()

    def start(self, told: MessageFacts, *, fillable: bool) -> None:
        """Begins again: the device has restarted."""
        self._seen.clear()
        self._missing.clear()
        if fillable:
            self._missing[1] = told.sequence
        self._started = True
        self.advance(told)

    # Two devices

    def turns(self, sequence: int) -> bool:
        """Returns whether it goes on where another run has ended; called where the numbers break."""
        others = [end for end in self._ends if 0 < 2 * (sequence - end) < abs(sequence - self.last)]
        if others:
            nearest = max(others)
            self._ends.remove(nearest)
            self._coincidences += 1
            self._distance += abs(sequence - self.last)
            self._exactly = self._exactly + 1 if sequence == nearest + 1 else 0
        elif sequence <= self.last:
            self._coincidences = self._distance = self._exactly = 0
        if others or sequence <= self.last:
            self._ends.append(self.last)
        return bool(others)

    @property
    def doubled(self) -> bool:
        """Whether that has happened too often for chance."""
        return self._coincidences >= COINCIDENCES and self._distance > FAR

    @property
    def interleaved(self) -> bool:
        """Whether the runs go on exactly where they ended: nothing is missing between them."""
        return self._exactly >= COINCIDENCES and self._distance > FAR

    def beats(self, told: MessageFacts) -> Findings:
        """Notes a heartbeat. If another device sent the last one, all numbers since this one's own last came, or are in gaps."""
        address, before = told.address, self._address
        number, counted = self._beats.pop(address, (LAST_NUMBER, 0))
        goes_on = not self._started or number < told.sequence
        self._address, self._started = address, False
        found = Findings()
        if before and address != before and goes_on:
            found.notice = Notice.DOUBLED
            reported = sorted((start, end) for start, end, count in self._reported if count > counted)
            found.gaps = [self.gap(*each, told) for each in without(number + 1, told.sequence + 1, reported)]
        self._beats[address] = told.sequence, self._gaps
        if len(self._beats) > RUNS:
            del self._beats[next(iter(self._beats))]
        return found


class Numbers:
    """The numbers of all devices of one endpoint."""

    def __init__(
        self, known: Mapping[int, tuple[int, int]] | None = None, held: Mapping[int, Ranges] | None = None
    ) -> None:
        """`known`: the last number of each device that is known from before, and when it was received. `held`: the numbers stored
        after it.
        """
        self._devices: dict[int, _Device] = {}
        self._one_connection = True
        self.holes: list[Gap] = []
        """The numbers that are missing between stored ones."""
        for device, (last, received) in (known or {}).items():
            stored = (held or {}).get(device, ())
            one = self._devices[device] = _Device(device, last, received, stored)
            self.holes += [Gap(device, *each, received, None) for each in without(last + 1, one.last + 1, stored)]

    def connection(self, *, sure: bool) -> None:
        """Notes that from here on all messages come by a new connection; or, if that is not `sure`, by the old or a new one."""
        self._one_connection = sure
        for device in self._devices.values():
            device.forget_missing()

    def received(self, device: int, told: MessageFacts) -> Findings:
        """Takes a message with a number of this device."""
        known = self._devices.get(device)
        if known is None:
            known = self._devices[device] = _Device(device, 0, told.received)
            known.advance(told)
            if told.sequence <= 1:
                return self._beaten(known, told, NOTHING)
            gap = Gap(device, 1, told.sequence, None, told.received)
            return self._beaten(known, told, Findings([gap], Notice.JOINED))
        if told.sequence == known.last + 1:
            known.advance(told)
            found = NOTHING
        else:
            found = self._broken(known, told)
        if told.address and found.notice not in BEHIND:
            return self._beaten(known, told, found)
        return found

    @staticmethod
    def _beaten(known: _Device, told: MessageFacts, found: Findings) -> Findings:
        beaten = known.beats(told) if told.address else NOTHING
        return Findings(found.gaps + beaten.gaps, beaten.notice) if beaten.notice else found

    def _broken(self, known: _Device, told: MessageFacts) -> Findings:
        sequence, last = told.sequence, known.last
        if sequence <= last:
            if known.is_duplicate(told):
                return Findings(notice=Notice.DUPLICATE)
            if self._one_connection and known.fills(told):
                return Findings(notice=Notice.WENT_BACK)
        turned = known.turns(sequence)
        doubled = turned and known.doubled
        if doubled and known.interleaved:
            known.advance(told)
            return Findings(notice=Notice.DOUBLED)
        if sequence > last:
            gap = known.gap(last + 1, sequence, told, fillable=self._one_connection and not turned)
            known.advance(told)
            return Findings([gap], Notice.DOUBLED if doubled else None)
        wrapped = sequence < NEAR and last > LAST_NUMBER - NEAR
        gaps = [known.gap(last + 1, LAST_NUMBER + 1, told)] if wrapped and last < LAST_NUMBER else []
        if sequence > 1:
            gaps.append(known.gap(1, sequence, told))
        known.start(told, fillable=self._one_connection)
        notice = Notice.WRAPPED if wrapped else Notice.RESTARTED
        return Findings(gaps, Notice.DOUBLED if doubled else notice)
