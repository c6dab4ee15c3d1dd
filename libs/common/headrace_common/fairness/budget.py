"""Bounds the bytes in flight of each connection and of the process: a socket over budget is not read.

Arrivals (unfinished frames, and complete frames that wait for Kafka) may take half of the process budget. The growth of
frames during inflating may take the other half. No deadlock is possible:

* Unfinished frames may fill half of the arrivals' share. Above that, the budget reads only the connection with the oldest
  unfinished frame and connections that hold little, so a few clients with huge frames cannot shut out the others. One frame
  always fits beside all others.
* Above seven eighths of the arrivals' share, a connection that holds little must also be established: Kafka has stored
  something of it. Thousands of connections that send only beginnings of frames do not shut out established clients.
* A limit that is passed stops all its connections at once. If each stopped only at its next bytes, thousands of connections
  that send a little at the same moment would exceed the budget a hundred times. They resume a few at a time.
* Bytes that a session has received but not parsed depend on no other connection: the first session with such bytes continues,
  whatever else is unfinished; and few bytes are parsed whatever waits for Kafka, as if they had been parsed on arrival.
* A connection that was read waits behind those that resumed and were not, so that each has its turn; first come those that hold
  few bytes, which do not wait for a turn of all that send much.
* Complete frames leave when Kafka stores them or their deadline passes; frames that are kept, when it stores them.
* A frame reserves its maximum size before it grows beyond a slice. A frame that waits for a reservation holds none; a frame
  that holds one waits only for the scheduler and Kafka.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from headrace_common.fairness.scheduler import Account
from headrace_common.session.inflate import SLICE
from headrace_common.session.interface import SMALL

LITTLE: Final = 64
"""A connection holds little while its unfinished frame is below one part in LITTLE of the unfinished frames' share (1 MiB by
default)."""

READ: Final = 512 << 10
"""Bytes that a connection may add before it can be stopped again: the event loop's read size (256 KiB), twice, because a
session may keep both the bytes and a parser's copy."""

FEW: Final = 2 * SMALL
"""Bytes that a connection may hold, unparsed ones counted twice, and still be parsed however much waits for Kafka: as bytes are
that arrive while this turn has time to parse them."""

ESTABLISHED_AT_ONCE: Final = 256
"""Established connections that resume reading in one iteration of the event loop."""

FIRST_SHARE: Final = 8
"""One part in FIRST_SHARE of the growth budget is reserved for frames that grow by at most one slice."""


class Reader(Protocol):
    """A connection, as the budget sees it."""

    partial_bytes: int
    """Bytes of its unfinished frame; 0 without one."""

    pending: int
    """Bytes of its complete frames that Kafka has not stored yet."""

    has_stored: bool
    """Kafka has stored at least one of its frames: the connection is established."""

    def pace(self) -> None:
        """Asks `may_read` again."""


class Budget:
    """Counts the bytes that all connections of a process hold, and decides which connections may read."""

    def __init__(self, process: int, connection: int, inflated: int = SLICE) -> None:
        """`inflated`: the maximum growth of one frame in bytes."""
        self._arrivals = process // 2
        self._unfinished_share = self._arrivals // 2
        self._little_bytes = self._unfinished_share // LITTLE
        self._unknown_share = self._arrivals * 7 // 8
        self._connection = connection
        self._unfinished: dict[Reader, None] = {}  # connections with an unfinished frame, oldest first
        self._digesting: dict[Reader, None] = {}  # connections with bytes to parse, first come first
        # Keyed by `has_stored`: connections that must wait, in order, and connections that may read.
        self._waiting: dict[bool, dict[Reader, None]] = {True: {}, False: {}}
        self._reading: dict[bool, dict[Reader, None]] = {True: {}, False: {}}
        self._read: set[Reader] = set()  # of these, those that were read since they resumed
        self._to_ask = {True: 0, False: 0}  # waiting connections still to check since the last release
        self._waking = False
        self._level = 0  # how many limits are passed
        self.partial_bytes = 0
        self.pending = 0
        self.released = 0
        """Complete frames that have left so far."""
        self.growth = Growth(process - self._arrivals, inflated)

    @property
    def used(self) -> int:
        """Returns all bytes in flight."""
        return self.partial_bytes + self.pending + self.growth.used

    @property
    def crowded(self) -> bool:
        """Whether unfinished frames have used up their share, so that a silent connection blocks others."""
        return self.partial_bytes >= self._unfinished_share

    @property
    def paused(self) -> int:
        """Returns how many connections wait."""
        return sum(map(len, self._waiting.values()))

    def hold(self, reader: Reader, partial_bytes: int) -> None:
        """Counts `partial_bytes` bytes of an unfinished frame that `reader` holds now."""
        released = partial_bytes < reader.partial_bytes
        if not released:
            self._was_read(reader)
        self.partial_bytes += partial_bytes - reader.partial_bytes
        reader.partial_bytes = partial_bytes
        if partial_bytes:
            self._unfinished.setdefault(reader)
        else:
            self._unfinished.pop(reader, None)
        self._measure()
        if released:
            self._wake()

    def restart(self, reader: Reader) -> None:
        """Makes the frame that `reader` has just begun the youngest unfinished one."""
        if self._unfinished.pop(reader, self) is None:
            self._unfinished[reader] = None

    def charge(self, reader: Reader, size: int) -> bool:
        """Counts `size` bytes of a complete frame of `reader`, which waits for Kafka. Returns whether `reader` surely may read
        on, so that `may_read` need not be asked.
        """
        queue = self._reading[reader.has_stored]
        if reads := queue.pop(reader, self) is None:  # as `_was_read`
            queue[reader] = None
            self._read.add(reader)
        reader.pending += size
        self.pending += size
        used = self.partial_bytes + self.pending
        if self._level or used >= self._unknown_share:
            self._measure()
        free = used < self._unfinished_share and reader not in self._digesting
        return reads and free and reader.partial_bytes + reader.pending < self._connection

    def release(self, reader: Reader, size: int) -> None:
        """Gives back `size` bytes of a complete frame of `reader`, which is stored or abandoned."""
        reader.pending -= size
        self.pending -= size
        self.released += 1
        if self._level:
            self._measure()
        if self._waiting[True] or self._waiting[False]:
            self._wake()

    def forget(self, reader: Reader) -> None:
        """Forgets `reader`, whose connection is gone; its pending frames are still released one by one."""
        self._place(reader, None)
        self._digested(reader)
        self.hold(reader, 0)

    def may_read(self, reader: Reader) -> bool:
        """Returns whether `reader` may read now. If not, the budget calls its `pace` when that may have changed."""
        # The short way, for each small frame: it reads already, nothing is used up, and it has nothing to parse.
        free = self.partial_bytes + self.pending < self._unfinished_share and reader not in self._digesting
        little = reader.partial_bytes + reader.pending < self._connection
        if free and little and reader in self._reading[reader.has_stored]:
            return True
        self._digested(reader)
        return self._answer(reader, self.has_room(reader))

    def may_digest(self, reader: Reader) -> bool:
        """Returns whether `reader` may parse more of its received bytes; parsing makes them grow. Otherwise like `may_read`."""
        self._digesting.setdefault(reader)
        if self._much(reader) or (self._full() and reader.partial_bytes > FEW):
            allowed = False
        elif self.crowded:
            allowed = next(iter(self._digesting)) is reader or (reader.has_stored and self._little(reader))
        else:
            allowed = True
        return self._answer(reader, allowed)

    def rest(self, reader: Reader) -> None:
        """Notes that `reader` parses nothing for now, even if it may: others need not wait for it."""
        self._digested(reader)

    def welcomes(self) -> bool:
        """Returns whether a new connection could be read now."""
        return self._level == 0

    def _digested(self, reader: Reader) -> None:
        if self._digesting and self._digesting.pop(reader, self) is None:
            self._wake()

    def _was_read(self, reader: Reader) -> None:
        """Puts `reader` at the end of the order in which a limit that stops all lets them resume."""
        queue = self._reading[reader.has_stored]
        if queue.pop(reader, self) is None:
            queue[reader] = None
            self._read.add(reader)

    def _answer(self, reader: Reader, allowed: bool) -> bool:
        self._place(reader, self._reading if allowed else self._waiting)
        return allowed

    def _place(self, reader: Reader, place: dict[bool, dict[Reader, None]] | None) -> None:
        """Moves `reader` to `place`; a reader that is already there keeps its position."""
        if place is not self._reading:
            self._read.discard(reader)
        for queues in (self._waiting, self._reading):
            for has_stored, queue in queues.items():
                if (queues is not place or has_stored != reader.has_stored) and queue:
                    queue.pop(reader, None)
        if place is not None:
            place[reader.has_stored].setdefault(reader)

    def has_room(self, reader: Reader) -> bool:
        """Returns whether `reader` may receive more, also while its earlier bytes wait to be parsed."""
        if self._full() or self._much(reader):
            return False
        if self.crowded:
            return next(iter(self._unfinished)) is reader or self._little(reader)
        return True

    def _others(self) -> int:
        """Returns the bytes of all unfinished frames but the oldest, which always continues: its growth stops no connection."""
        for oldest in self._unfinished:
            return self.partial_bytes - oldest.partial_bytes
        return self.partial_bytes

    def _little(self, reader: Reader) -> bool:
        share = self._arrivals if reader.has_stored else self._unknown_share
        return reader.partial_bytes < self._little_bytes and self._others() < share

    def _much(self, reader: Reader) -> bool:
        return reader.pending > 0 and reader.partial_bytes + reader.pending >= self._connection

    def _full(self) -> bool:
        return self.pending > 0 and self._others() + self.pending >= self._arrivals

    def _measure(self) -> None:
        """Stops reading connections when a limit is passed."""
        if not self._level and self.partial_bytes + self.pending < self._unknown_share:
            return  # no limit was passed, and none is, whatever the oldest frame holds
        before, others = self._level, self._others()
        self._level = 2 if others + self.pending >= self._arrivals else 1 if others >= self._unknown_share else 0
        if self._level > before:
            self._stop(has_stored=False)
            if self._level == 2:
                self._stop(has_stored=True)

    def _stop(self, *, has_stored: bool) -> None:
        """Stops the connections that may not read any more. First in line are those that hold few bytes, then those that had
        resumed and were not read.
        """
        waiting, reading = self._waiting[has_stored], [*self._reading[has_stored]]
        first = [reader for reader in reading if reader not in self._read]
        few = [reader for reader in (*first, *waiting) if reader.partial_bytes + reader.pending <= FEW]
        for reader in reading:
            reader.pace()
        self._waiting[has_stored] = {reader: None for reader in (*few, *first) if reader in waiting} | waiting

    def _wake(self) -> None:
        if not (self._waiting[True] or self._waiting[False]):
            return
        self._to_ask = {has_stored: len(queue) for has_stored, queue in self._waiting.items()}
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
        # A few unknown ones first: the bytes of established ones that resume with them may use up the room.
        for has_stored, most in ((False, max(1, room // READ) if room > 0 else 0), (True, ESTABLISHED_AT_ONCE)):
            asked = list(islice(self._waiting[has_stored], min(most, self._to_ask[has_stored])))
            self._to_ask[has_stored] = self._to_ask[has_stored] - len(asked) if asked else 0
            for reader in asked:
                self._waiting[has_stored].pop(reader, None)  # if it must still wait, it joins the end of the queue
                reader.pace()
        self._ask_soon()


class Growing(Protocol):
    """A frame, as the growth budget sees it."""

    account: Account
    abandoned: bool
    grown: int
    """Bytes by which it has grown."""

    reserved: int
    """Bytes that the budget keeps for it."""


class Growth:
    """The growth budget: a frame reserves one slice, then its maximum size at once. A frame that must wait gives up what it has
    and starts over, so none waits for one that waits. First is the one whose connection has used the least CPU time.
    """

    def __init__(self, size: int, most: int) -> None:
        """`most`: the maximum size of one frame; `size`: the budget of all frames. Both in bytes."""
        first = size // FIRST_SHARE
        self._steps = min(SLICE, first), min(most, size - first)
        self._free = [first, size - first]
        self._waiting: tuple[_Waiting, _Waiting] = [], []
        self._order = itertools.count()
        self.used = 0
        """Bytes that are reserved."""

    def reserve(self, frame: Growing, go_on: Callable[[], None]) -> bool:
        """Returns whether `frame` may hold the bytes to which it has grown. If not, `go_on` is called once it may start over."""
        step = int(frame.grown > SLICE)
        if frame.reserved >= self._steps[step]:
            return True
        self.shrink(frame, 0)
        if not self._waiting[step] and self._take(frame, step):
            return True
        heapq.heappush(self._waiting[step], (frame.account.used, next(self._order), frame, go_on))
        return False

    def shrink(self, frame: Growing, to: int) -> None:
        """Gives back what is reserved for `frame` beyond `to` bytes."""
        if (freed := frame.reserved - to) <= 0:
            return
        step = int(frame.reserved > self._steps[0])
        frame.reserved = to
        self.used -= freed
        self._free[step] += freed
        waiting = self._waiting[step]
        while waiting and (waiting[0][2].abandoned or self._take(waiting[0][2], step)):
            _, _, first, go_on = heapq.heappop(waiting)
            if not first.abandoned:
                go_on()

    def _take(self, frame: Growing, step: int) -> bool:
        wanted = self._steps[step]
        if self._free[step] < wanted:
            return False
        self._free[step] -= wanted
        self.used += wanted
        frame.reserved = wanted
        return True


_Waiting = list[tuple[float, int, Growing, Callable[[], None]]]
"""A heap: what a frame's connection has used, a number, the frame, what to call when it has its bytes."""
