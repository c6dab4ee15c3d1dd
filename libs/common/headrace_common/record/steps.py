"""Work in steps: a generator that yields where others may run, and returns what it has made."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finish(steps: Generator[object, None, T]) -> T:
    """Takes all steps at once. Returns what they made."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: T = done.value
            return made
