"""Waiting for what can be observed, and observing it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

LOOK: Final = 0.02
"""Seconds between two looks at a condition that nobody announces."""

PATIENCE: Final = 120.0
"""Seconds after which a wait fails. No bound on speed: a wait ends at once when the thing is there, and whatever takes this
long on a busy machine hangs.
"""

BROKER_TIME: Final = 3 * PATIENCE
"""Seconds for a broker's start: two JVMs, which take ten CPU-seconds on a fast machine."""


async def until(condition: Callable[..., Any | Awaitable[Any]], what: str, seconds: float = PATIENCE) -> Any:
    """The first true value of `condition`, which may be a coroutine function; fails after `seconds`, saying `what`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(LOOK)


def wait_for(condition: Callable[..., Any], what: str = "it", seconds: float = PATIENCE) -> Any:
    """The same where no event loop runs."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(LOOK)
    return value


def there(value: T | None) -> T:
    """What must be there by now."""
    assert value is not None
    return value
