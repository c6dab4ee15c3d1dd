"""Hears the numbers of the devices of one endpoint: where they jump, and where a device begins again. Pure.

A device numbers all its messages, heartbeats too: one after the other, from 1 at each start, and 1 again after 2⁶⁴ − 1. One
connection keeps their order, and a device that restarts ends it. A message's own time is not used: it is of a producer's clock.

==================================================  ================================================================
the number                                          it is
==================================================  ================================================================
is the first of its device                          where this consumer begins
is above the last one                               a jump, if it is not the next
is 1, or not above the last one of a connection     another start of the device, and a jump if it is not 1
that has ended
is any other that is not above the last one         late, doubled, or another device's of the same number: nothing
==================================================  ================================================================

A jump is what this process has not heard. What was lost is said by a query over the stored numbers
(`headrace_reader.logjam`), which has those of its earlier processes and of other consumers, too.
"""

from __future__ import annotations

from typing import NamedTuple


class DeviceStart(NamedTuple):
    """A start of a device, as a consumer has heard it: `since` when (Unix time, ms), after how many others (`restarts`)."""

    since: int
    restarts: int


class Heard(NamedTuple):
    """A number that was heard: the start that it is of, how many were not heard before it, whether a higher one came before."""

    start: DeviceStart
    missing: int = 0
    behind: bool = False


class Numbers:
    """The numbers of all devices of one endpoint."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._starts: dict[int, DeviceStart] = {}
        self._ended = 0  # connections, behind each of which every device may have begun again

    def ended(self) -> None:
        """Notes that a connection has ended: what it brought is heard before what the next one does."""
        self._ended += 1

    def received(self, device: int, sequence: int, now_ms: int) -> Heard:
        """Takes a number that came at `now_ms` (Unix time)."""
        start, last = self._starts.get(device), self._last.get(device, 0)
        if start is None:
            start, last = DeviceStart(now_ms, 0), sequence - 1
        elif sequence <= last:
            if self._ended <= start.restarts and not sequence == 1 < last:
                return Heard(start, behind=True)
            start, last = DeviceStart(max(now_ms, start.since + 1), start.restarts + 1), 0
        self._starts[device], self._last[device] = start, sequence
        return Heard(start, sequence - last - 1)
