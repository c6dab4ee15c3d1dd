"""Says what every thread is doing when the event loop has not turned for some seconds. Runs in a thread of its own."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from headrace_common.operations.log import Log

LIMIT: Final = 5.0
"""Seconds without a turn of the loop that are reported: a slice takes milliseconds, and probes give up after some seconds."""

LOOK: Final = 1.0
"""Seconds between two looks."""

INTERVAL: Final = 60.0
"""Least seconds between two reports."""

FRAMES: Final = 30
"""Innermost frames of each stack that are logged."""


class Watchdog:
    """Watches one event loop, which calls `turned` at least each second. `clock`: monotonic seconds."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._turned = self._looked = clock()
        self._reported = self._said_at = float("-inf")  # the turn after which the last stall began; when it was said
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._turned = self._looked = self._clock()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()

    def turned(self) -> None:
        """Notes that the loop has turned."""
        self._turned = self._clock()

    def look(self) -> bool:
        """Logs a stall: each once, at most one in `INTERVAL`. Returns whether it did."""
        now, turned = self._clock(), self._turned
        slept, self._looked = now - self._looked, now
        if slept > LIMIT:  # this thread did not run either: the process was stopped
            self._turned = now
            return False
        if now - turned < LIMIT or turned == self._reported or now - self._said_at < INTERVAL:
            return False
        self._reported, self._said_at = turned, now
        self._log.error("event loop stalled", seconds=round(now - turned, 1), stacks=stacks())
        return True

    def _run(self) -> None:
        while not self._stop.wait(LOOK):
            self.look()


def stacks() -> dict[str, list[str]]:
    """Returns the innermost frames of every thread, the innermost last: ``function (file:line)``."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        f"{names.get(ident, 'thread')} {ident}": [
            f"{entry.name} ({entry.filename}:{entry.lineno})" for entry in traceback.extract_stack(frame)[-FRAMES:]
        ]
        for ident, frame in sys._current_frames().items()
    }
