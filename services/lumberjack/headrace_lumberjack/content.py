"""The content of a C frame, bounded: inflated and cut step by step, and handed out only if all of it is valid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import INPUT_WORK, LAST_WINDOW, InflateLimits, inflate_zlib

from headrace_lumberjack.flow import OpenWindow
from headrace_lumberjack.wire import SAMPLE, CompressedFrame, Cutter, FrameRun, Window, WireLimits

FRAME_COST: Final = 64
"""The cost of cutting one frame, as inflated bytes that take as long."""

FEW: Final = 4 << 20
"""Up to this many bytes of output are kept as they come: more than Beats put into a frame by default."""

LEAST_COST: Final = LAST_WINDOW * INPUT_WORK
"""The cost of inflating one window, as inflated bytes that take as long: at least this, whatever comes out."""


MOST_WINDOWS: Final = 1024
"""Maximum windows that one C frame may open, more than any client does: each takes a hundred times the bytes that announce it."""


class Content:
    """One C frame's content. Call `step` until `done`; then `items` holds all its frames."""

    def __init__(
        self, frame: CompressedFrame, limits: WireLimits, inflate: InflateLimits, flow: OpenWindow | None = None
    ) -> None:
        """With `flow`, the state before it, its frames are judged and split as `OpenWindow.accept` does; `flow` is then the state
        after them.
        """
        self._frame = frame
        self._slices: Iterator[bytes] | None = inflate_zlib(frame.stream, inflate)
        self._pieces: list[bytes] = []  # as long as they are few
        self._pieces_bytes = 0
        self._cutter = Cutter(limits, nested=True, offset=frame.offset)
        self._windows = 0
        self.flow = None if flow is None else replace(flow)
        self.items: list[Window | FrameRun] = []
        self.done = False

    def partial_bytes(self) -> int:
        """Returns the bytes that it holds: the stream while it inflates, and the output."""
        stream = len(self._frame.stream) * (self._slices is not None)
        return stream + self._pieces_bytes + len(self._cutter.buffer)

    def step(self) -> int:
        """Inflates a window of input, or cuts some thousand frames. Returns the cost in bytes; sets `done` at the end.

        Raises `ProtocolError` if the content does not inflate, exceeds a limit, or is not a sequence of whole frames, or if one
        may not follow another.
        """
        if self._slices is not None:
            return self._inflate(self._slices)
        item = self._cutter.cut()
        if item is None:
            if self._cutter.left:
                raise self._cutter.fault("a C frame ends inside a frame")
            self.done = True
            return 0
        assert not isinstance(item, CompressedFrame)
        for part in (item,) if self.flow is None else self.flow.accept(item):
            self.items.append(part)
            self._windows += isinstance(part, Window)
            if self._windows > MOST_WINDOWS:
                raise self._cutter.fault(f"a C frame of more than {MOST_WINDOWS} windows")
        return FRAME_COST * (len(item) if isinstance(item, FrameRun) else 1)

    def _inflate(self, slices: Iterator[bytes]) -> int:
        try:
            piece = next(slices, None)
        except ProtocolError as error:
            sample = self._frame.stream[:SAMPLE]
            raise ProtocolError(str(error), limit=error.limit, offset=self._frame.offset, sample=sample) from error
        if piece is None:
            self._slices = None
            self._gather()
            return 0
        if piece:
            self._pieces.append(piece)
            self._pieces_bytes += len(piece)
            if self._pieces_bytes > FEW:
                self._gather()
        return max(len(piece), LEAST_COST)

    def _gather(self) -> None:
        """Passes the pieces to the cutter. Few become `bytes`, from which frames are cut without another copy. Many become a
        growing buffer, because a second copy of all would take too much memory.
        """
        cutter = self._cutter
        if cutter.buffer or self._pieces_bytes > FEW:
            cutter.buffer = bytearray(cutter.buffer) if isinstance(cutter.buffer, bytes) else cutter.buffer
            for piece in self._pieces:
                cutter.buffer += piece
        else:
            cutter.buffer = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._pieces_bytes = 0
