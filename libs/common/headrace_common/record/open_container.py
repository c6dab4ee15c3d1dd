"""A container that is being written as JSON: its pointer, and the keys of a map, to find those that are repeated.

Each key takes some bytes of memory, in arrays: objects would take a hundred.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Generator, Iterator
from typing import Final

from headrace_common.record.encoding import read_varint, varint

STEPS: Final = 512
"""Keys that are entered again between two pauses: about half a millisecond."""

FEW: Final = 1024
"""Size of a map's first table, unless the map is smaller."""

_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
"""A text of JSON."""


_MARK: Final = b"\0"
"""Precedes a member whose key is repeated, and the member after it, with a number: `PLAIN`, `FIRST`, or from `AGAIN` on that of a
key of which only a value follows. JSON has no NUL.
"""
PLAIN, FIRST, AGAIN = range(3)


class Members:
    """The different keys of a map so far, numbered from 0. `starts`: where each begins in the text; `places`: where it begins in
    the input. `counts`: how many values each has had, where the caller counts them.
    """

    __slots__ = ("_most", "_room", "_slot", "counts", "crowded", "places", "starts", "table")

    def __init__(self, most: int) -> None:
        """`most`: how many keys it may have."""
        self._room = [4 * most // 3 + 1]  # sizes of the table, the next one last
        while self._room[-1] > FEW:
            self._room.append(self._room[-1] // 2 + 1)
        self._begin(array("I", [0]) * self._room.pop())
        self.starts, self.places, self.counts = (array("I") for _ in range(3))
        self._slot = 0
        self.crowded: bool
        """Whether it must `grow` before another key is added."""
        self.table: array[int]  # by hash: 1 + the number of a key

    def find(self, key: bytes, text: bytearray) -> int:
        """Returns the number of a key of `text`; -1 if it is a new one, which may be added then."""
        table, starts = self.table, self.starts
        slot = hash(key) % len(table)
        while entry := table[slot]:
            if text.startswith(key, starts[entry - 1]):
                return entry - 1
            slot = slot + 1 if slot + 1 < len(table) else 0
        self._slot = slot
        return -1

    def add(self, start: int, place: int) -> None:
        """Adds the key that `find` did not find."""
        self.starts.append(start)
        self.places.append(place)
        self.table[self._slot] = count = len(self.starts)
        self.crowded = count >= self._most

    def grow(self, text: bytearray) -> Generator[None, None, None]:
        """Makes room for twice as many keys; yields between steps. Costs each key a constant time in all."""
        table = array("I", [0]) * self._room.pop()
        for number, start in enumerate(self.starts, 1):
            if number % STEPS == 0:
                yield
            key = _TEXT.match(text, start)
            assert key is not None
            slot = hash(key[0]) % len(table)
            while table[slot]:
                slot = slot + 1 if slot + 1 < len(table) else 0
            table[slot] = number
        self._begin(table)

    def _begin(self, table: array[int]) -> None:
        self.table = table
        self._most = 3 * len(table) // 4 if self._room else len(table)
        self.crowded = False


class OpenContainer:
    """A container that is being written."""

    __slots__ = (
        "_path",
        "count",
        "in_key",
        "is_key",
        "is_map",
        "left",
        "members",
        "name",
        "parent",
        "place",
        "start",
        "turn",
    )

    def __init__(
        self, parent: OpenContainer | None, left: int, start: int, path: bytes, *, is_map: bool, is_key: bool
    ) -> None:
        self.parent = parent
        self.left = left
        self.start = start
        self.is_map = is_map
        self.is_key = is_key
        self.in_key: bool = is_key or (parent is not None and parent.in_key)
        self.members: Members | None = None
        self.count = 0  # elements or pairs begun
        self.place = 0  # where the current key begins in the input
        self.name = b""  # the current key as JSON
        self.turn: int | None = None  # which of the values of a repeated key is the current one
        self._path = path if parent is None else None

    def path(self) -> bytes:
        """Returns its own pointer, as the inside of a JSON text."""
        if self._path is None:
            assert self.parent is not None
            self._path = self.parent.key_path() if self.is_key else self.parent.current()
        return self._path

    def current(self) -> bytes:
        """Returns the pointer of its current element."""
        if not self.is_map:
            return b"%b/%d" % (self.path(), self.count - 1)
        member = self.member()
        return member if self.turn is None else b"%b/%d" % (member, self.turn)

    def member(self) -> bytes:
        """Returns the pointer of its current key."""
        return self.path() + b"/" + self.name[1:-1].replace(b"~", b"~0").replace(b"/", b"~1")

    def key_path(self) -> bytes:
        """Returns the pointer into its current key."""
        return b"%b~key%d" % (self.path(), self.count - 1)


def mark_of(number: int) -> bytes:
    """Returns a mark."""
    return _MARK + varint(number)


def gather(out: bytearray, start: int, keys: int) -> Generator[None, None, None]:
    """Moves the values of each repeated key together, into an array; yields between steps. The map begins at `start` of the text
    `out`, and `keys` of its keys are repeated.
    """
    sizes = array("I", [0]) * keys  # of each key's values with their commas; later, where the next of them goes
    total = steps = 0
    for number, at, value, end in _members(out, start + 1):
        if (steps := steps + 1) % STEPS == 0:
            yield
        total += end - at + 1 + 2 * (at < value)
        if number >= 0:
            sizes[number] += end - value + (at == value)
    gathered = bytearray(total - 1)
    place = 0
    with memoryview(out) as text:
        for number, at, value, end in _members(out, start + 1):
            if (steps := steps + 1) % STEPS == 0:
                yield
            if number >= 0 and at == value:
                begin = sizes[number]
                gathered[begin : begin + 1] = b","
                sizes[number] = begin + 1 + end - at
                gathered[begin + 1 : sizes[number]] = text[at:end]
                continue
            if place:
                gathered[place : place + 1] = b","
                place += 1
            size = value - at
            gathered[place : place + size] = text[at:value]
            place += size
            if number < 0:
                gathered[place : place + end - value] = text[value:end]
                place += end - value
                continue
            gathered[place : place + 1] = b"["
            begin, place = place + 1, place + 1 + sizes[number]
            sizes[number] = begin + end - value
            gathered[begin : sizes[number]] = text[value:end]
            gathered[place : place + 1] = b"]"
            place += 1
    out[start + 1 :] = gathered


def _members(text: bytearray, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the members of a map from `at` to the end of `text`: the number of a repeated key, where the member begins, where
    its value does, and where it ends. Later values of a key have no key. Other members are yielded together, with the number -1.
    """
    keys = 0
    while at < len(text):
        mark = PLAIN
        if text[at] == _MARK[0]:
            mark, at = read_varint(text, at + 1)
        end = text.find(_MARK, at)
        end = end if end >= 0 else len(text)
        if mark == FIRST:
            key = _TEXT.match(text, at)
            assert key is not None
            yield keys, at, key.end() + 1, end
            keys += 1
        elif mark == PLAIN:
            yield -1, at, at, end
        else:
            yield mark - AGAIN, at, at, end
        at = end
