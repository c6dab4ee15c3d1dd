"""A container that is being written as JSON: its pointer, and the members of a map, to find repeated keys.

Members take some bytes of memory each, in arrays: objects would take a hundred.
"""

from __future__ import annotations

from array import array


class Members:
    """The members of a map so far. `starts`: where each begins in the text; `places`: where its key begins in the input.
    `after` links the members of one key in a circle, `turns` numbers them from 0.
    """

    __slots__ = ("after", "places", "repeats", "starts", "table", "turns")

    def __init__(self, most: int) -> None:
        """`most`: how many keys it may have."""
        self.table = array("I", [0]) * (1 << (4 * most // 3).bit_length())  # by hash: 1 + the last member with a key
        self.starts, self.places, self.after, self.turns = (array("I") for _ in range(4))
        self.repeats = False

    def add(self, key: bytes, place: int, text: bytearray) -> int:
        """Adds a member, which begins at the end of `text` with `key` unless it repeats one. Returns its turn."""
        table, starts, after = self.table, self.starts, self.after
        slot = hash(key) & len(table) - 1
        index = len(starts)
        while last := table[slot]:
            first = after[last - 1]
            if text.startswith(key, starts[first]):
                after[last - 1] = index
                after.append(first)
                self.turns.append(self.turns[last - 1] + 1)
                self.repeats = True
                break
            slot = slot + 1 & len(table) - 1
        else:
            after.append(index)
            self.turns.append(0)
        table[slot] = index + 1
        starts.append(len(text))
        self.places.append(place)
        return self.turns[index]

    def first(self) -> int:
        """Where the key of the last member began first in the input."""
        return self.places[self.after[-1]]


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
        """Its own pointer, as the inside of a JSON text."""
        if self._path is None:
            assert self.parent is not None
            self._path = self.parent.key_path() if self.is_key else self.parent.current()
        return self._path

    def current(self) -> bytes:
        """The pointer of its current element."""
        if not self.is_map:
            return b"%b/%d" % (self.path(), self.count - 1)
        member = self.member()
        return member if self.turn is None else b"%b/%d" % (member, self.turn)

    def member(self) -> bytes:
        """The pointer of its current key."""
        return self.path() + b"/" + self.name[1:-1].replace(b"~", b"~0").replace(b"/", b"~1")

    def key_path(self) -> bytes:
        """The pointer into its current key."""
        return b"%b~key%d" % (self.path(), self.count - 1)
