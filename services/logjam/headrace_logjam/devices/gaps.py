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


class Gap(NamedTuple):
    """Numbers of a device that were not heard: from `start` to before `end`."""

    device: int
    start: int
    end: int


class DeviceStart(NamedTuple):
    """A start of a device, as a consumer has heard it: `since` when (Unix time, ms), after how many others (`restarts`)."""

    since: int
    restarts: int


class Heard(NamedTuple):
    """A number that was heard: the start that it is of, the gap in front of it, and whether a higher one came before."""

    start: DeviceStart
    gap: Gap | None = None
    behind: bool = False


class Numbers:
    """The numbers of all devices of one endpoint."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._starts: dict[int, DeviceStart] = {}
        self._sure = True  # all comes by one connection
        self._may_restart: set[int] = set()
        """Devices of which nothing was heard since it is sure that all comes by the newest connection."""

    def read(self, *, ended: bool, empty: bool) -> None:
        """Notes how much was read: see `headrace_logjam.devices.consumer.ConsumerSession.read`."""
        if ended:
            self._sure = False
        elif empty and not self._sure:
            self._sure = True
            self._may_restart = set(self._last)

    def received(self, device: int, sequence: int, now_ms: int) -> Heard:
        """Takes a number that came at `now_ms` (Unix time)."""
        last = self._last.get(device)
        if last is None:
            self._last[device] = sequence
            start = self._starts[device] = DeviceStart(now_ms, 0)
            return Heard(start)
        start = self._starts[device]
        behind = sequence <= last
        restarted = behind and (not self._sure or device in self._may_restart or sequence == 1 < last)
        self._may_restart.discard(device)
        if restarted:
            start = self._starts[device] = DeviceStart(max(now_ms, start.since + 1), start.restarts + 1)
            last = 0
        elif behind:
            return Heard(start, behind=True)
        self._last[device] = sequence
        return Heard(start, Gap(device, last + 1, sequence) if sequence > last + 1 else None)
