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
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native
from headrace_common.record.json_text import Bytes
from headrace_common.session.inflate import INPUT_WORK, LAST_WINDOW, SLICE, InflateLimits, inflate_zlib
from headrace_common.session.parser import WORK, AtLeast, Cost, Parser, Steps
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

MOST_WINDOWS: Final = 1024
"""Maximum windows that one C frame may open, more than any client does: each takes a hundred times the bytes that announce it."""

_number = struct.Struct(">I").unpack_from


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits of one frame: sizes in bytes, a frame with its header. `window`: maximum events that a W may announce."""

    frame: int
    window: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Window:
    """A window begins: a W frame, or the next window of a v1 client that does not announce each."""

    version: int
    count: int


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Consecutive complete data frames of one window and one type; frame i ends at ``ends[i]`` in `data`. `steady`: each sequence
    number is one above the previous one, without wrapping.
    """

    version: int
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

    def has_zero(self) -> bool:
        """Returns whether one of its frames has the number 0, which a keep-alive also uses."""
        if self.steady:
            return self.sequence(0) == 0
        return any(self.sequence(index) == 0 for index in range(len(self)))


@dataclass(slots=True)
class OpenWindow:
    """The window that is being filled. `left`: its events that are still missing."""

    version: int = 0
    size: int = 0
    left: int = 0


class LumberjackDecoder(Parser[Window | FrameRun]):
    """Decodes a client's bytes, split anywhere; or the content of a C frame, which began while `inside` was open."""

    def __init__(self, limits: WireLimits, inflate: InflateLimits, inside: OpenWindow | None = None) -> None:
        self._limits = limits
        self._inflate = inflate
        self._inside = inside is not None
        self.window = OpenWindow() if inside is None else replace(inside)
        super().__init__()

    @override
    def messages(self) -> Steps:
        data, at, need = b"", 0, 1
        while True:
            if len(data) - at < need:
                self.unread(data[at:])
                data, at = b"", 0  # not kept while nothing comes
                self.begins()
                data = yield AtLeast(need)
            self.begins(data, at)
            version, need = data[at], KIND
            if version not in (V1, V2):
                raise ProtocolError("neither version 1 nor version 2 of Lumberjack")
            if len(data) - at < need:
                continue
            kind = data[at + 1]
            if kind in (D, J):
                if kind == D and version == V2:
                    raise ProtocolError("a D frame is not of version 2")
                data, at, need = yield from self._events(data, at)
                continue
            if kind not in (W, C) or (kind == C and self._inside):
                where = " inside a C frame" if self._inside else ""
                raise ProtocolError(f"no frame that a client sends{where}")
            need = HEADER
            if len(data) - at < need:
                continue
            number = number_at(data, at + KIND)
            if kind == W:
                yield self._open(version, number)
            elif HEADER + number > self._limits.frame:
                raise ProtocolError(f"a compressed frame of {number} bytes", limit="LIMITS__FRAME_BYTES")
            else:
                need = HEADER + number
                if len(data) - at < need:
                    continue
                yield from self._content(memoryview(data)[at + HEADER : at + need])
            at, need = at + need, 1

    # Windows

    def _open(self, version: int, count: int) -> Window:
        missing = self.window.left
        if missing and V2 in (self.window.version, version):
            raise ProtocolError(f"a W frame while {missing} events of the last window are missing")
        if count > self._limits.window:
            raise ProtocolError(f"a window of {count} events", limit="LUMBERJACK__WINDOW_EVENTS")
        self.window = OpenWindow(version, count, count)
        return Window(version, count)

    def _expect(self, version: int) -> Iterator[Window]:
        """Yields the window that data of a version opens, if it opens one. Raises `ProtocolError` if none may come now."""
        window = self.window
        if version != window.version:
            what = f"in a window of version {chr(window.version)}" if window.version else "before any window"
            raise ProtocolError(f"data of version {chr(version)} {what}")
        if not window.left:
            if version == V2 or not window.size:
                raise ProtocolError("data beyond the window")
            yield self._open(version, window.size)

    # Data

    def _events(self, data: bytes, at: int) -> Generator[Any, bytes, tuple[bytes, int, int]]:
        """Yields the data frames at `at`. Returns the bytes that are there, how far they are decoded, and how many it needs."""
        yield from self._expect(data[at])
        run, end = self._run(data, at)
        if run is None and data[at + 1] == J:
            return data, at, end - at
        if run is None:
            self.unread(data[at:])
            self.begins()
            data = yield from self._pairs()
            run, end = FrameRun(V1, data, [len(data)], steady=True), len(data)
        self.window.left -= len(run)
        yield Cost(FRAME_WORK * len(run))
        yield run
        return data, end, 1

    def _run(self, data: bytes, first: int) -> tuple[FrameRun | None, int]:
        """Returns the complete frames like that at `first`, as many as the window has left, and their end. If that one is not
        complete: None, and up to where more bytes are needed. A fault after the first frame waits for the next call.
        """
        kind, most, at = data[first : first + KIND], min(self.window.left, RUN), first
        ends, steady = native.core.frames(data, first, self._limits.frame - DATA_HEADER, most)
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
        return FrameRun(kind[0], data[first:at], ends, steady), at

    def _json_end(self, data: bytes, at: int) -> int:
        if len(data) < at + DATA_HEADER:
            return at + DATA_HEADER
        size = DATA_HEADER + number_at(data, at + HEADER)
        if size > self._limits.frame:
            raise ProtocolError(f"a J frame of {size - DATA_HEADER} bytes", limit="LIMITS__FRAME_BYTES")
        return at + size

    def _pairs_end(self, data: bytes, first: int) -> int:
        at = first + DATA_HEADER
        if len(data) < at:
            return at
        for _ in range(self._text_count(data, first)):
            if len(data) < at + 4:
                return at + 4
            at += 4 + self._text_bytes(number_at(data, at), at - first)
        return at

    def _pairs(self) -> Generator[Any, bytes, bytes]:
        """Returns a D frame that is taken as it comes: nothing says how long it is, and no pair is looked at twice."""
        frame = bytearray((yield DATA_HEADER))
        self.held = DATA_HEADER
        for _ in range(self._text_count(frame, 0)):
            frame += yield 4
            frame += yield self._text_bytes(number_at(frame, self.held), self.held)
            self.held = len(frame)
        return bytes(frame)

    def _text_count(self, data: Bytes, first: int) -> int:
        """Returns how many keys and values a D frame has."""
        count = number_at(data, first + HEADER)
        if count > self._limits.pairs:
            raise ProtocolError(f"an event of {count} pairs", limit="LUMBERJACK__PAIRS")
        return 2 * count

    def _text_bytes(self, size: int, before: int) -> int:
        """Returns the size of a key or a value if it is allowed. `before`: bytes of its frame before its length."""
        if before + 4 + size > self._limits.frame:
            raise ProtocolError("a D frame is too large", limit="LIMITS__FRAME_BYTES")
        return size

    # Compressed frames

    def _content(self, stream: memoryview) -> Steps:
        """Yields what a C frame contains once all of it is known to be sound: nothing of a faulty one may be stored."""
        inner = LumberjackDecoder(self._limits, self._inflate, self.window)
        slices, ended = inflate_zlib(stream, self._inflate), False
        found: list[Window | FrameRun] = []
        windows = 0
        while not ended:
            content = bytearray()
            while len(content) < SLICE and not ended:
                piece = next(slices, None)
                ended = piece is None
                content += piece or b""
                self.held += len(piece or b"")
                yield Cost(max(len(piece or b""), LAST_WINDOW * INPUT_WORK))
            busy = True
            while busy:
                items = [*inner.receive(bytes(content))]
                content, busy = bytearray(), inner.busy
                found += items
                windows += sum(isinstance(item, Window) for item in items)
                if windows > MOST_WINDOWS:
                    raise ProtocolError(f"a C frame of more than {MOST_WINDOWS} windows")
                yield Cost(WORK * busy)
        if inner.partial_bytes():
            raise ProtocolError("a C frame ends inside a frame")
        self.window = inner.window
        for item in found:
            self.held -= item.ends[-1] if isinstance(item, FrameRun) else 0
            yield item


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
