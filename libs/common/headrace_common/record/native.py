"""The native core: in Rust, for plain events, what Python does for all events. Both make the same bytes.

HEADRACE_NATIVE chooses: ``auto`` uses it where it is installed, ``off`` does not, ``require`` refuses to start without it.
The core leaves to Python all that is not plain. So `core` is asked first wherever it may help, and no caller needs to know
which of the two is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar, cast

from headrace_common.record import encoding

if TYPE_CHECKING:  # it encodes by a module that asks this one
    from headrace_common.record.event import Part

T = TypeVar("T")

VARIABLE: Final = "HEADRACE_NATIVE"
AUTO, OFF, REQUIRE = "auto", "off", "require"
MODULE: Final = "headrace_native"
VERSION: Final = "0.10.0"
"""The only version that is used: another, such as one that was built before the sources changed, has other calls."""

BYTES_AT_ONCE: Final = 64 << 10
"""Bytes of entries that the native core is given in one call: a fraction of a millisecond, whatever they are."""

Pieces = tuple[bytes, bytes, bytes, bytes, bytes]
"""`Envelope.pieces`."""

Known = tuple[bytes, Pieces, bytes, bytes]
"""A tag's element, the pieces of its envelope, the hash that every id begins with, and the field of the client's name, if any."""

Origin = tuple[Pieces, bytes | None]
"""The pieces of an event's envelope, and the hash that its id begins with; None: its id is unique."""

Find = Callable[[bytes, bytes], Origin | None]
"""Returns the origin of the events with a key, which holds all that it depends on, as written; None: these are not plain. Its
second argument is the first event with that key.
"""


MOST_ODD: Final = 64
"""Most successive events that Python makes although the core may find the next plain."""


class Core:
    """Encodes plain events, and lays out a batch. To this one, of a process without the native core, no event is plain."""

    bytes_at_once: int = 0
    """Most bytes that a call is given; 0: it encodes nothing."""

    def entries(
        self,
        pieces: Pieces,
        attributes: bytes,
        ids: bytes,
        content_ids: bytes,
        limits: tuple[int, int],
        data: bytes,
        index: int,
        most: int,
        /,
    ) -> tuple[list[Part], int]:
        """Returns the events of at most `most` of Forward's entries from the start of `data`, and how many bytes these are.

        It ends before the first that is not plain, or not whole. `attributes`: the message's, as JSON, or empty; `ids`,
        `content_ids`: prefixes, as of `MessageIds`; `limits`: most bytes of value and attributes, and deepest nesting;
        `index`: of the first entry in its message.
        """
        return [], 0

    def lay(self, events: list[bytes], stamp: bytes, offset: int, /) -> bytes:
        """Returns records of a batch, one after the other: `encoding.lay`."""
        return encoding.lay(events, stamp, offset)

    def documents(
        self, find: Find, ids: bytes, limits: tuple[int, int], data: bytes, index: int, most: int, /
    ) -> tuple[list[Part], int]:
        """Returns the events of at most `most` J frames from the start of `data`, and how many bytes these are.

        It ends before the first that is not plain, or not whole. `ids`: prefix of unique ids; `limits`: most bytes of an event,
        and deepest nesting; `index`: of the first frame among those with these ids.
        """
        return [], 0

    def payload(
        self,
        find: Find,
        begun: bytes,
        attributes: bytes,
        limits: tuple[int, int],
        entries: list[bytes],
        index: int,
        left: int,
        most: int,
        /,
    ) -> list[Part]:
        """Returns the events of a payload's `entries` from `index` on, up to the first that is not plain, at most `most` bytes.

        `begun`: what every id of the payload begins to hash; `attributes`: of each event; `limits` as of `documents`; `left`: how
        many events the payload has from `index` on.
        """
        return []

    def frames(self, data: bytes, start: int, largest: int, most: int, /) -> tuple[list[int], bool]:
        """Returns the ends of the whole J frames from `start` on, and whether their numbers follow each other without wrapping.

        They are at most `most`, each with at most `largest` bytes of JSON. It ends before the first that is not one of these.
        """
        return [], True

    def cut(self, data: bytes, largest: int, most: int, /) -> tuple[list[bytes], int]:
        """Returns the whole entries of a payload at the start of `data`, and how many bytes these are.

        They are at most `most`, each of at most `largest` bytes. It ends before the first that is not one of these.
        """
        return [], 0

    def whole(
        self, data: bytes, known: Known, limits: tuple[int, int, int, int, int], /
    ) -> tuple[list[Part], int, bytes] | None:
        """Makes all events of a message of Forward: these, their bytes, and the element of its chunk.

        None if it is not exactly one plain message with the tag `known` and a chunk that names something; or if that may be the
        content, and the time of an event is a whole millisecond. `limits`: most bytes of its chunk, its option and an event,
        deepest nesting, and most entries.
        """
        return None


PYTHON: Final = Core()


def _installed() -> Core | None:
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        return None
    if module.VERSION != VERSION:
        return None
    module.__dict__["bytes_at_once"] = BYTES_AT_ONCE
    return cast("Core", module)


NATIVE: Final = _installed()
"""The native core; None where it is not installed in this version."""

core: Core = PYTHON
"""The core in use."""


def choose(wanted: str) -> str:
    """Sets `core`. Returns the problem if `wanted` is no choice, or the core is required and not installed; else nothing."""
    global core
    if wanted not in (AUTO, OFF, REQUIRE):
        return f"{VARIABLE}: {wanted!r} is none of {AUTO}, {OFF}, {REQUIRE}"
    if wanted == REQUIRE and NATIVE is None:
        return f"{VARIABLE}: the native core is required, and {MODULE} {VERSION} is not installed"
    core = PYTHON if wanted == OFF or NATIVE is None else NATIVE
    return ""


def label() -> str:
    """Returns ``on`` or ``off``: whether the native core is in use, for logs and metrics."""
    return "off" if core is PYTHON else "on"


def by_turns(
    count: int, made: Callable[[int], list[Part]], singly: Callable[[int, int], Iterator[T]]
) -> Iterator[list[Part] | T]:
    """Yields what the core makes of `count` events, and what Python makes of those that are not plain.

    `made`: the core's events from an index on; `singly`: Python's, from one index up to another. After an event that is not
    plain Python makes 1, 2, 4 … `MOST_ODD` before the core is asked again.
    """
    index, odd = 0, 1 if core.bytes_at_once else count
    while index < count:
        events = made(index)
        if events:
            yield events
            index, odd = index + len(events), 1
            continue
        end = min(index + odd, count)
        yield from singly(index, end)
        index, odd = end, min(2 * odd, MOST_ODD)
