"""An event loop in which time passes only where a test says that work takes some: what waits how long is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SlowLoop(asyncio.SelectorEventLoop):
    """`now`: seconds since it was made."""

    now = 0.0
    _ready: Collection[asyncio.Handle]
    _scheduled: Collection[asyncio.TimerHandle]

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        """Where all wait for a time, it is that time."""
        if not self._ready:
            due = min((timer.when() for timer in self._scheduled if not timer.cancelled()), default=self.now)
            self.now = max(self.now, due)
        super()._run_once()  # type: ignore[misc] # asyncio's own

    def work(self, seconds: float) -> None:
        """Something holds the loop for so long."""
        self.now += seconds


def slow_loop() -> SlowLoop:
    """Returns the running loop, where it is one of these."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SlowLoop)
    return loop


def slowly(main: Callable[[SlowLoop], Coroutine[Any, Any, T]]) -> T:
    """Runs `main` in such a loop."""
    loop = SlowLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))
