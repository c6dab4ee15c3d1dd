"""Bytes in flight, bounded for each connection and for the process: over budget a socket is not read.

What arrives (unfinished frames and complete frames that wait for Kafka) may take half of the process budget, what frames
grow by when they are inflated the other half. Nothing can dead-lock:

* Unfinished frames stop at half of the arrivals' share; above that only the connection with the oldest unfinished frame
  goes on being read, and those that hold little: a few clients with huge frames must not shut out all others. One frame
  always fits, beside all others.
* Above seven eighths those that hold little must also be known: something of theirs was stored. Thousands of connections
  that only ever bring beginnings do not shut out who was there before.
* When a limit is passed all that it stops are stopped at once, not each when it has brought more: thousands of connections
  that bring a little at the same moment would be a hundred times the budget. They begin again a few at a time.
* What a session has received and not yet looked at needs nobody: the first that has such goes on whatever is unfinished.
* Complete frames need nothing but Kafka, or their deadline, to go away.
* A frame reserves all it may grow to before it grows beyond a slice. Who waits for a reservation holds none, and who holds
  one waits for nothing but its turn and Kafka.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import Final, Protocol

from headrace_common.inflate import SLICE

LITTLE: Final = 64
"""A connection whose unfinished frame has less than this part of what all unfinished frames may have (1 MiB by default) goes
on being read while it is crowded."""

READ: Final = 512 << 10
"""Bytes that a connection may bring before it can be stopped again: what the event loop reads at once (256 KiB), twice, as a
session may keep it and a parser's copy of it."""

KNOWN_AT_ONCE: Final = 256
"""Connections that were heard before, and begin to be read again in one turn of the event loop."""

FIRST_SHARE: Final = 8
"""The part of what frames may grow by that is kept for those that grow by no more than a slice."""


class Reader(Protocol):
    """A connection, as the budget sees it."""

    held: int
    """Bytes of its unfinished frame; 0 when there is none."""

    pending: int
    """Bytes of its complete frames that are not stored yet."""

    known: bool
    """Something of it was stored."""

    def pace(self) -> None:
        """Look again whether you may read."""


class Budget:
    """Counts what all connections of a process hold, and decides who may read."""

    def __init__(self, process: int, connection: int, inflated: int = SLICE) -> None:
        """`inflated`: bytes that one frame may grow by."""
        self._arrivals = process // 2
        self._unfinished_share = self._arrivals // 2
        self._little_bytes = self._unfinished_share // LITTLE
        self._unknown_share = self._arrivals * 7 // 8
        self._connection = connection
        self._unfinished: dict[Reader, None] = {}  # those with an unfinished frame, oldest first
        self._digesting: dict[Reader, None] = {}  # those that have bytes to look at, first come first
        # By whether they are known: those that were told to wait, in order, and those that may read.
        self._waiting: dict[bool, dict[Reader, None]] = {True: {}, False: {}}
        self._reading: dict[bool, dict[Reader, None]] = {True: {}, False: {}}
        self._to_ask = {True: 0, False: 0}  # of those that wait, since something was released
        self._waking = False
        self._level = 0  # how many limits are passed
        self.held = 0
        self.pending = 0
        self.growth = Growth(process - self._arrivals, inflated)

    @property
    def used(self) -> int:
        """Bytes in flight, everything counted."""
        return self.held + self.pending + self.growth.used

    @property
    def crowded(self) -> bool:
        """Unfinished frames have used up their share: a silent one stands in others' way."""
        return self.held >= self._unfinished_share

    @property
    def paused(self) -> int:
        """Connections that wait."""
        return sum(map(len, self._waiting.values()))

    def hold(self, reader: Reader, held: int) -> None:
        """`reader` now holds `held` bytes of an unfinished frame."""
        released = held < reader.held
        self.held += held - reader.held
        reader.held = held
        if held:
            self._unfinished.setdefault(reader)
        else:
            self._unfinished.pop(reader, None)
        self._measure()
        if released:
            self._wake()

    def restart(self, reader: Reader) -> None:
        """`reader`'s unfinished frame is a new one: it goes to the end of the line."""
        if self._unfinished.pop(reader, self) is None:
            self._unfinished[reader] = None

    def charge(self, reader: Reader, size: int) -> None:
        """A complete frame of `reader` waits for Kafka."""
        reader.pending += size
        self.pending += size
        self._measure()

    def release(self, reader: Reader, size: int) -> None:
        """A complete frame of `reader` is stored, or given up."""
        reader.pending -= size
        self.pending -= size
        self._measure()
        self._wake()

    def forget(self, reader: Reader) -> None:
        """`reader`'s connection is gone; what it has pending is still released frame by frame."""
        self._place(reader, None)
        self._digested(reader)
        self.hold(reader, 0)

    def may_read(self, reader: Reader) -> bool:
        """Whether `reader` may read now. If not, its `pace` is called when that may have changed."""
        self._digested(reader)
        return self._answer(reader, self.has_room(reader))

    def may_digest(self, reader: Reader) -> bool:
        """Whether `reader` may look at more of what it has received, which grows by that. Otherwise as `may_read`."""
        self._digesting.setdefault(reader)
        if self._full() or self._much(reader):
            allowed = False
        elif self.crowded:
            allowed = next(iter(self._digesting)) is reader or (reader.known and self._little(reader))
        else:
            allowed = True
        return self._answer(reader, allowed)

    def welcomes(self) -> bool:
        """Whether a connection that came now could be read."""
        return self._level == 0

    def _digested(self, reader: Reader) -> None:
        if self._digesting and self._digesting.pop(reader, self) is None:
            self._wake()

    def _answer(self, reader: Reader, allowed: bool) -> bool:
        self._place(reader, self._reading if allowed else self._waiting)
        return allowed

    def _place(self, reader: Reader, place: dict[bool, dict[Reader, None]] | None) -> None:
        """Who waits already keeps its place in the line."""
        for lines in (self._waiting, self._reading):
            for known, line in lines.items():
                if (lines is not place or known != reader.known) and line:
                    line.pop(reader, None)
        if place is not None:
            place[reader.known].setdefault(reader)

    def has_room(self, reader: Reader) -> bool:
        """Whether `reader` may bring more, also while it looks at what it has brought."""
        if self._full() or self._much(reader):
            return False
        if self.crowded:
            return next(iter(self._unfinished)) is reader or self._little(reader)
        return True

    def _others(self) -> int:
        """Bytes of all unfinished frames but the oldest, which goes on whatever there is: what it grows by stops nobody."""
        return self.held - next((reader.held for reader in self._unfinished), 0)

    def _little(self, reader: Reader) -> bool:
        share = self._arrivals if reader.known else self._unknown_share
        return reader.held < self._little_bytes and self._others() < share

    def _much(self, reader: Reader) -> bool:
        return reader.pending > 0 and reader.held + reader.pending >= self._connection

    def _full(self) -> bool:
        return self.pending > 0 and self._others() + self.pending >= self._arrivals

    def _measure(self) -> None:
        """Stops those who read when a limit is passed."""
        before, others = self._level, self._others()
        self._level = 2 if others + self.pending >= self._arrivals else 1 if others >= self._unknown_share else 0
        if self._level > before:
            for reader in [*self._reading[False], *(self._reading[True] if self._level == 2 else ())]:
                reader.pace()

    def _wake(self) -> None:
        self._to_ask = {known: len(line) for known, line in self._waiting.items()}
        self._ask_soon()

    def _ask_soon(self) -> None:
        if any(self._to_ask.values()) and not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._pace_some)

    def _pace_some(self) -> None:
        self._waking = False
        if self._full():
            return
        if self.crowded:
            for reader in [*islice(self._unfinished, 1), *islice(self._digesting, 1)]:
                reader.pace()
        room = self._unknown_share - self._others()
        for known, most in ((True, KNOWN_AT_ONCE), (False, max(1, room // READ) if room > 0 else 0)):
            asked = list(islice(self._waiting[known], min(most, self._to_ask[known])))
            self._to_ask[known] = self._to_ask[known] - len(asked) if asked else 0
            for reader in asked:
                self._waiting[known].pop(reader, None)  # if it must still wait, others are asked before it
                reader.pace()
        self._ask_soon()


class GrowthPool:
    """Room for what frames grow by. First come, first served."""

    def __init__(self, size: int) -> None:
        self._free = size
        self.size = size
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes reserved."""
        return self.size - self._free

    def take(self, size: int) -> int:
        """Reserves `size` bytes (never more than the pool has) at once: how many; 0 when they are not free."""
        size = min(size, self.size)
        if self._line or self._free < size:
            return 0
        self._free -= size
        return size

    async def reserve(self, size: int) -> int:
        """As `take`, but waits."""
        taken = self.take(size)
        if taken:
            return taken
        size = min(size, self.size)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            raise
        return size

    def give_back(self, size: int) -> None:
        """So many bytes are free again."""
        self._free += size
        while self._line:
            wanted, turn = self._line[0]
            if turn.cancelled():
                self._line.popleft()
            elif wanted <= self._free:
                self._line.popleft()
                self._free -= wanted
                turn.set_result(None)
            else:
                break


class Growth:
    """What frames may grow by: a slice each without much ado, and beyond it a reservation of all that one may become.

    So small compressed frames never wait for large ones. A frame that must wait holds nothing meanwhile: it begins again.
    """

    def __init__(self, size: int, most: int) -> None:
        """`most`: bytes that a frame may become; `size`: what all together may."""
        share = size // FIRST_SHARE
        self._first = GrowthPool(share)
        self._rest = GrowthPool(size - share)
        self._most = most

    @property
    def used(self) -> int:
        """Bytes reserved."""
        return self._first.used + self._rest.used

    def pool(self, grown: int, reserved: int) -> tuple[GrowthPool, int] | None:
        """Where a frame that grows to `grown` bytes reserves, and how much; None: what it has `reserved` is enough."""
        if grown <= SLICE:
            return None if reserved >= min(SLICE, self._first.size) else (self._first, SLICE)
        return None if reserved >= min(self._most, self._rest.size) else (self._rest, self._most)
