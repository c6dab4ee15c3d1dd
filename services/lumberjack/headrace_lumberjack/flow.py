"""Which frame may follow which, and which window it belongs to: the protocol's state as a table.

===================  ===============================  =============================================================
frame                a window is not complete         no window, or the last one is complete
===================  ===============================  =============================================================
W                    v2: protocol error;              opens a window; W(0) is complete at once
                     v1: ends the open window early
data of its version  belongs to it                    v2: protocol error;
                                                      v1: opens another of the last one's size (the original's
                                                      sliding reading), if that was not 0
data of the other    protocol error                   protocol error
version
===================  ===============================  =============================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace_common.operations.errors import ProtocolError

from headrace_lumberjack.wire import SAMPLE, V2, FrameRun, Window


@dataclass(slots=True)
class OpenWindow:
    """The window being filled: its version, its size, how many of its events are still missing, and where it began."""

    version: int = 0
    size: int = 0
    left: int = 0
    began: int = 0

    def accept(self, item: Window | FrameRun) -> Iterator[Window | FrameRun]:
        """Yields `item`, split at the ends of windows, and adds the windows that v1 opens without a W frame.

        Raises `ProtocolError` where the table says so; items yielded before it count.
        """
        if isinstance(item, Window):
            if self.left and V2 in (self.version, item.version):
                raise ProtocolError(
                    f"a W frame while {self.left} events of the last window are missing", offset=item.offset
                )
            self._open(item)
            yield item
            return
        rest = item
        while True:
            if rest.version != self.version:
                what = f"in a window of version {chr(self.version)}" if self.version else "before any window"
                raise self._fault(rest, f"data of version {chr(rest.version)} {what}")
            if not self.left:
                if rest.version == V2 or not self.size:
                    raise self._fault(rest, "data beyond the window")
                window = Window(self.version, self.size, rest.offset)
                self._open(window)
                yield window
            if len(rest) <= self.left:
                self.left -= len(rest)
                yield rest
                return
            part, rest = rest.split(self.left)
            self.left = 0
            yield part

    def _open(self, window: Window) -> None:
        self.version, self.size, self.left, self.began = window.version, window.count, window.count, window.offset

    def _fault(self, run: FrameRun, problem: str) -> ProtocolError:
        return ProtocolError(problem, offset=run.offset, sample=run.frame(0)[:SAMPLE])
