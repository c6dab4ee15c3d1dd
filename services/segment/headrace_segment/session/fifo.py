"""A queue that takes no memory while it is empty. Most connections rest, and an empty deque takes 760 bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Fifo(Generic[T]):
    """The item that was appended first leaves first."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[T] | None = None

    def __len__(self) -> int:
        return 0 if self._items is None else len(self._items)

    @property
    def oldest(self) -> T | None:
        """The item that leaves next, or None."""
        return None if self._items is None else self._items[0]

    @property
    def newest(self) -> T | None:
        """The item that was appended last, or None."""
        return None if self._items is None else self._items[-1]

    def append(self, item: T) -> None:
        """Adds the newest item."""
        if self._items is None:
            self._items = deque()
        self._items.append(item)

    def popleft(self) -> T:
        """Removes and returns the oldest item. The queue must not be empty."""
        assert self._items is not None
        item = self._items.popleft()
        if not self._items:
            self._items = None
        return item

    def pop(self) -> T:
        """Removes and returns the newest item. The queue must not be empty."""
        assert self._items is not None
        item = self._items.pop()
        if not self._items:
            self._items = None
        return item

    def drain(self) -> Iterator[T]:
        """Removes and yields all items, oldest first, with those that are appended meanwhile."""
        while self._items is not None:
            yield self.popleft()
