"""How much memory a process holds, sampled."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import psutil

INTERVAL = 0.1


class Memory:
    """Resident bytes of process `pid`, ten times a second while in the context. `before` is the first sample."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.before = self._process.memory_info().rss
        self.samples = [self.before]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    @property
    def most(self) -> int:
        return max(self.samples)

    @property
    def grown(self) -> int:
        """Bytes by which the largest sample is above the first."""
        return self.most - self.before

    def _sample(self) -> None:
        while not self._done.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # killed
            self.samples.append(self._process.memory_info().rss)
