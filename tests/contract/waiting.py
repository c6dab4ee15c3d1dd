"""Waiting for what can be observed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

LOOK = 0.02
"""Seconds between two looks at a condition that nobody announces."""


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str, seconds: float = 20) -> Any:
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
