"""Bounds the bytes in flight of each connection and of the process: a socket over budget is not read.

Arrivals (unfinished frames, and complete frames that wait for Kafka) may take half of the process budget. The growth of
frames during inflating may take the other half. No deadlock is possible:

* Unfinished frames may fill half of the arrivals' share. Above that, the budget reads only the connection with the oldest
  unfinished frame and connections that hold little, so a few clients with huge frames cannot shut out the others. One frame
  always fits beside all others.
* Above seven eighths of the arrivals' share, a connection that holds little must also be established: Kafka has stored
  something of it. Thousands of connections that send only beginnings of frames do not shut out established clients.
* A limit that is passed stops all its connections at once. If each stopped only at its next bytes, thousands of connections
  that send a little at the same moment would exceed the budget a hundred times. They resume a few at a time, unknown ones beside
  established ones, and first the one that was not read for longest.
* The same holds for received bytes that are parsed: parsing makes them grow. But few bytes are parsed whatever waits for Kafka,
  as if they had been parsed on arrival.
* Complete frames leave when Kafka stores them or their deadline passes; frames without a deadline, when it stores them.
* A frame that waits for room to grow holds none; a frame that holds some waits only for the scheduler and Kafka. One may always
  grow to any size.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final, Protocol

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


class Reader(Protocol):
    """A connection, as the budget sees it."""

    partial_bytes: int
    """Bytes of its unfinished frame; 0 without one."""

    pending: int
    """Bytes of its complete frames that Kafka has not stored yet."""

    has_stored: bool
    """Kafka has stored at least one of its frames: the connection is established."""

    last_read: int
    """`Budget.reads` at its last read, or when it came."""

    def pace(self) -> None:
        """Asks `may_read` again."""


class Budget:
    """Counts the bytes that all connections of a process hold, and decides which connections may read."""

    def __init__(self, process: int, connection: int) -> None:
        self._arrivals = process // 2
        self._unfinished_share = self._arrivals // 2
        self._little_bytes = self._unfinished_share // LITTLE
        self._unknown_share = self._arrivals * 7 // 8
        self._connection = connection
        self._unfinished: dict[Reader, None] = {}  # connections with an unfinished frame, oldest first
        self._reading: dict[Reader, None] = {}  # connections that may read
        self._waiting: dict[bool, dict[Reader, None]] = {False: {}, True: {}}  # by `has_stored`: those that must wait
        self._to_ask = {False: 0, True: 0}  # waiting connections still to check since the last release
        self._waking = False
        self._level = 0  # how many limits are passed
        self.reads = 0
        """Reads so far."""
        self.partial_bytes = 0
        self.pending = 0
        self.released = 0
        """Complete frames that have left so far."""

    @property
    def used(self) -> int:
        """Returns all bytes that have arrived and are in flight."""
        return self.partial_bytes + self.pending

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
            reader.last_read = self.reads = self.reads + 1
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
        if reader in self._unfinished:
            del self._unfinished[reader]
            self._unfinished[reader] = None

    def charge(self, reader: Reader, size: int) -> bool:
        """Counts `size` bytes of a complete frame of `reader`, which waits for Kafka. Returns whether `reader` surely may read
        on, so that `may_read` need not be asked.
        """
        reader.last_read = self.reads = self.reads + 1
        reader.pending += size
        self.pending += size
        used = self.partial_bytes + self.pending
        if self._level or used >= self._unknown_share:
            self._measure()
        # As `_is_free`, without a call for each small frame.
        free = used < self._unfinished_share and reader in self._reading
        return free and reader.partial_bytes + reader.pending < self._connection

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
        for queue in (self._reading, *self._waiting.values()):
            queue.pop(reader, None)
        self.hold(reader, 0)

    def may_read(self, reader: Reader) -> bool:
        """Returns whether `reader` may read now. If not, the budget calls its `pace` when that may have changed."""
        return self._is_free(reader) or self._answer(reader, self.has_room(reader))

    def may_digest(self, reader: Reader) -> bool:
        """Returns whether `reader` may parse more of its received bytes; parsing makes them grow. Otherwise like `may_read`."""
        may_grow = reader.partial_bytes <= FEW or not self._full()
        return self._answer(reader, may_grow and not self._much(reader) and self._is_its_turn(reader))

    def welcomes(self) -> bool:
        """Returns whether a new connection could be read now."""
        return self._level == 0

    def has_room(self, reader: Reader) -> bool:
        """Returns whether `reader` may receive more, also while its earlier bytes wait to be parsed."""
        return not self._full() and not self._much(reader) and self._is_its_turn(reader)

    def _is_free(self, reader: Reader) -> bool:
        """Returns whether `reader` reads already, and nothing is used up: the usual case."""
        return (
            self.partial_bytes + self.pending < self._unfinished_share
            and reader in self._reading
            and reader.partial_bytes + reader.pending < self._connection
        )

    def _others(self) -> int:
        """Returns the bytes of all unfinished frames but the oldest, which always continues: its growth stops no connection."""
        for oldest in self._unfinished:
            return self.partial_bytes - oldest.partial_bytes
        return self.partial_bytes

    def _is_its_turn(self, reader: Reader) -> bool:
        """Returns whether `reader` may hold more of an unfinished frame beside those of others."""
        if not self.crowded or next(iter(self._unfinished)) is reader:
            return True
        share = self._arrivals if reader.has_stored else self._unknown_share
        return reader.partial_bytes < self._little_bytes and self._others() < share

    def _much(self, reader: Reader) -> bool:
        return reader.pending > 0 and reader.partial_bytes + reader.pending >= self._connection

    def _full(self) -> bool:
        return self.pending > 0 and self._others() + self.pending >= self._arrivals

    def _answer(self, reader: Reader, allowed: bool) -> bool:
        """Notes that `reader` may read, or must wait; where it was already, it keeps its place."""
        self._waiting[not reader.has_stored].pop(reader, None)
        if allowed:
            self._waiting[reader.has_stored].pop(reader, None)
            self._reading[reader] = None
        else:
            self._reading.pop(reader, None)
            self._waiting[reader.has_stored].setdefault(reader)
        return allowed

    def _measure(self) -> None:
        """Stops reading connections when a limit is passed."""
        if not self._level and self.partial_bytes + self.pending < self._unknown_share:
            return  # no limit was passed, and none is, whatever the oldest frame holds
        before, others = self._level, self._others()
        self._level = 2 if others + self.pending >= self._arrivals else 1 if others >= self._unknown_share else 0
        if self._level > before:
            for reader in [each for each in self._reading if self._level == 2 or not each.has_stored]:
                reader.pace()
            for has_stored, waiting in self._waiting.items():
                self._waiting[has_stored] = dict.fromkeys(sorted(waiting, key=lambda each: each.last_read))

    def _wake(self) -> None:
        self._to_ask = {has_stored: len(queue) for has_stored, queue in self._waiting.items()}
        self._ask_soon()

    def _ask_soon(self) -> None:
        if any(self._to_ask.values()) and not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._pace_some)

    def _pace_some(self) -> None:
        """Lets waiting connections resume, as many as there is room for what they may bring before they can be stopped."""
        self._waking = False
        if self._full():
            return
        if self.crowded:
            next(iter(self._unfinished)).pace()
        most = max(1, (self._arrivals - self._others() - self.pending) // READ)
        for has_stored, waiting in self._waiting.items():  # unknown ones first: established ones may use up the room
            asked = [*islice(waiting, min(most, self._to_ask[has_stored]))]
            self._to_ask[has_stored] = self._to_ask[has_stored] - len(asked) if asked else 0
            for reader in asked:
                waiting.pop(reader, None)  # if it must still wait, it joins the end of the queue
                reader.pace()
        self._ask_soon()
