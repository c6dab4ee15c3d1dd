"""Lumberjack on the wire: bytes to windows and events, and back. No sockets, no clock; limits are constructor arguments.

Every frame begins with its version, ASCII ``1`` or ``2``, and its type. Numbers are big-endian u32.

====  ===========================================================  ======================
type  layout after version and type                                sender
====  ===========================================================  ======================
W     events in the window that follows                            client
D     sequence, pairs, for each: length, key, length, value        client, v1
J     sequence, length, JSON                                       client, v2 and v1
C     length, a zlib stream (RFC 1950) of whole frames             client
A     sequence                                                     server
====  ===========================================================  ======================

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

Sources: go-lumber (client/v2, server/v2, lj), logstash-input-beats (BeatsParser.java), logstash-forwarder (publisher1.go);
ruby-lumberjack (lib/lumberjack/client.rb), whose option `json` writes J frames of version 1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native
from headrace_common.record.json_text import Bytes
from headrace_common.session.inflate import INPUT_WORK, WINDOW, inflate_zlib
from headrace_common.session.parser import AtLeast, Cost, Parser, Steps
from typing_extensions import override

V1: Final = 0x31
V2: Final = 0x32
W, D, J, C, A = b"WDJCA"

KIND: Final = 2
"""Bytes of a frame that say which it is."""

HEADER: Final = 6
"""Bytes of a W or A frame, and of a C frame before its stream."""

DATA_HEADER: Final = 10
"""Bytes of a J frame before its JSON, and of a D frame before its first pair."""

RUN: Final = 8_192
"""Maximum frames that are cut in one call."""

FRAME_WORK: Final = 64
"""The work of cutting a frame of a run, as inflated bytes that take as long."""

_number = struct.Struct(">I").unpack_from


@dataclass(slots=True)
class Window:
    """A window begins: a W frame, or the next window of a v1 client that does not announce each. `left`: its events that are
    still missing.
    """

    version: int = 0
    count: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Consecutive complete data frames of one window and one type; frame i ends at ``ends[i]`` in `data`. `steady`: each sequence
    number is one above the previous one, without wrapping.
    """

    data: bytes
    ends: list[int]
    steady: bool

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def is_json(self) -> bool:
        """Whether these are J frames."""
        return self.data[1] == J

    def begin(self, index: int) -> int:
        """Returns the start of frame `index` in `data`."""
        return self.ends[index - 1] if index else 0

    def sequence(self, index: int) -> int:
        """Returns the sequence number of frame `index`."""
        return number_at(self.data, self.begin(index) + KIND)


class LumberjackDecoder(Parser[Window | FrameRun]):
    """Decodes a client's bytes, split anywhere.

    `frame_bytes`: maximum size of a frame with its header; `window_events`: maximum events that a W may announce; `pairs`:
    maximum pairs of a D frame.
    """

    def __init__(self, frame_bytes: int, window_events: int, pairs: int, inflated_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._window_events = window_events
        self._most_pairs = pairs
        self._inflated_bytes = inflated_bytes
        self.window = Window()
        """The window that is being filled."""
        super().__init__()

    @override
    def messages(self) -> Steps:
        need = KIND
        while True:
            self.begins()
            data = yield AtLeast(need)
            at, need = yield from self._frames(data)
            self.unread(data[at:])
            del data  # not kept while nothing comes

    def _frames(self, data: bytes, *, inside: bool = False) -> Generator[Any, bytes, tuple[int, int]]:
        """Yields the frames that are whole. Returns where they end, and how many bytes the next one has at least. `inside`: these
        are not the bytes of the connection.
        """
        at = 0
        while len(data) - at >= KIND:
            if not inside:
                self.begins(data, at)
            version, kind = data[at], data[at + 1]
            if version not in (V1, V2):
                raise ProtocolError("neither version 1 nor version 2 of Lumberjack")
            if kind in (D, J):
                if kind == D and version == V2:
                    raise ProtocolError("a D frame is not of version 2")
                yield from self._expect(version)
                run, end = self._run(data, at)
                if run is None:
                    return at, end - at
                self.window.left -= len(run)
                yield Cost(FRAME_WORK * len(run))
                yield run
                at = end
                continue
            if kind not in (W, C) or (kind == C and inside):
                where = " inside a C frame" if inside else ""
                raise ProtocolError(f"no frame that a client sends{where}")
            if len(data) - at < HEADER:
                return at, HEADER
            number, end = number_at(data, at + KIND), at + HEADER
            if kind == W:
                yield self._open(version, number)
            elif HEADER + number > self._frame_bytes:
                raise ProtocolError(f"a compressed frame of {number} bytes", limit="LIMITS__FRAME_BYTES")
            else:
                end += number
                if len(data) < end:
                    return at, end - at
                yield from self._content(memoryview(data)[at + HEADER : end])
            at = end
        return at, KIND

    def _content(self, stream: memoryview) -> Steps:
        """Yields what a C frame contains once all of it has inflated to its checksum: nothing of a damaged one may be stored."""
        pieces: list[bytes] = []
        for piece in inflate_zlib(stream, self._inflated_bytes):
            pieces.append(piece)
            self.held += len(piece)
            yield Cost(max(len(piece), WINDOW * INPUT_WORK))
        content = b"".join(pieces)
        del pieces
        end, _ = yield from self._frames(content, inside=True)
        if end < len(content):
            raise ProtocolError("a C frame ends inside a frame")
        self.held -= len(content)

    # Windows

    def _open(self, version: int, count: int) -> Window:
        missing = self.window.left
        if missing and V2 in (self.window.version, version):
            raise ProtocolError(f"a W frame while {missing} events of the last window are missing")
        if count > self._window_events:
            raise ProtocolError(f"a window of {count} events", limit="LUMBERJACK__WINDOW_EVENTS")
        self.window = Window(version, count, count)
        return self.window

    def _expect(self, version: int) -> Iterator[Window]:
        """Yields the window that data of a version opens, if it opens one. Raises `ProtocolError` if none may come now."""
        window = self.window
        if version != window.version:
            what = f"in a window of version {chr(window.version)}" if window.version else "before any window"
            raise ProtocolError(f"data of version {chr(version)} {what}")
        if not window.left:
            if version == V2 or not window.count:
                raise ProtocolError("data beyond the window")
            yield self._open(version, window.count)

    # Data

    def _run(self, data: bytes, first: int) -> tuple[FrameRun | None, int]:
        """Returns the complete frames like that at `first`, as many as the window has left, and their end. If that one is not
        complete: None, and up to where more bytes are needed. A fault after the first frame waits for the next call.
        """
        kind, most, at = data[first : first + KIND], min(self.window.left, RUN), first
        ends, steady = native.core.frames(data, first, self._frame_bytes - DATA_HEADER, most)
        if ends:
            at = ends[-1]
        else:
            end_of, expected = (self._json_end if kind[1] == J else self._pairs_end), 0
            while len(ends) < most and data.startswith(kind, at):
                try:
                    end = end_of(data, at)
                except ProtocolError:
                    if not ends:
                        raise
                    break
                if end > len(data):
                    if not ends:
                        return None, end
                    break
                sequence = number_at(data, at + KIND)
                steady = steady and (not ends or sequence == expected)
                expected, at = sequence + 1, end
                ends.append(end)
        if first:
            ends = [end - first for end in ends]
        return FrameRun(data[first:at], ends, steady), at

    def _json_end(self, data: bytes, at: int) -> int:
        if len(data) < at + DATA_HEADER:
            return at + DATA_HEADER
        size = DATA_HEADER + number_at(data, at + HEADER)
        if size > self._frame_bytes:
            raise ProtocolError(f"a J frame of {size - DATA_HEADER} bytes", limit="LIMITS__FRAME_BYTES")
        return at + size

    def _pairs_end(self, data: bytes, first: int) -> int:
        """Returns where a D frame ends, or must end at the earliest: nothing but its pairs says how long it is."""
        at = first + DATA_HEADER
        if len(data) < at:
            return at
        pairs = number_at(data, first + HEADER)
        if pairs > self._most_pairs:
            raise ProtocolError(f"an event of {pairs} pairs", limit="LUMBERJACK__PAIRS")
        for left in range(2 * pairs, 0, -1):
            if len(data) < at + 4:
                return at + 4 * left
            at += 4 + number_at(data, at)
            if at - first > self._frame_bytes:
                raise ProtocolError("a D frame is too large", limit="LIMITS__FRAME_BYTES")
        return at


def number_at(frame: Bytes, at: int) -> int:
    """Returns the number at offset `at`."""
    found: int = _number(frame, at)[0]
    return found


def acknowledgement(version: int, sequence: int) -> bytes:
    """Makes an A frame."""
    return struct.pack(">BBI", version, A, sequence)


# The client's side, for the command line, the tests and the load generators


def window(count: int, version: int = V2) -> bytes:
    """Makes a W frame."""
    return struct.pack(">BBI", version, W, count)


def json_frame(sequence: int, document: bytes) -> bytes:
    """Makes a J frame with any `document`."""
    return struct.pack(">BBII", V2, J, sequence, len(document)) + document


def pairs_frame(sequence: int, items: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Makes a D frame."""
    body = b"".join(struct.pack(">I", len(part)) + part for item in items for part in item)
    return struct.pack(">BBII", V1, D, sequence, len(items)) + body


def compressed(frames: bytes, level: int = 3, version: int = V2) -> bytes:
    """Makes a C frame around whole frames. Beats use level 3."""
    stream = zlib.compress(frames, level)
    return struct.pack(">BBI", version, C, len(stream)) + stream
