"""Lumberjack on the wire: bytes to frames and back. No sockets, no clock; limits are constructor arguments.

Every frame begins with its version, ASCII ``1`` or ``2``, and its type. Numbers are big-endian u32.

====  ===========================================================  ======================
type  layout after version and type                                sender
====  ===========================================================  ======================
W     events in the window that follows                            client
D     sequence, pairs, for each: length, key, length, value        client, v1
J     sequence, length, JSON                                       client, v2
C     length, a zlib stream (RFC 1950) of whole frames             client
A     sequence                                                     server
====  ===========================================================  ======================

Sources: go-lumber (client/v2, server/v2, lj), logstash-input-beats (BeatsParser.java), logstash-forwarder (publisher1.go).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record import native
from headrace_common.record.json_text import Bytes

SAMPLE: Final = 32
"""Bytes of a faulty frame that are logged."""

V1: Final = 0x31
V2: Final = 0x32
W, D, J, C, A = b"WDJCA"

HEADER: Final = 6
"""Bytes of a W or A frame, and of a C frame before its stream."""

DATA_HEADER: Final = 10
"""Bytes of a J frame before its JSON, and of a D frame before its first pair."""

RUN: Final = 8_192
"""Maximum frames that are cut in one call."""

_number = struct.Struct(">I").unpack_from
_data_header = struct.Struct(">HII").unpack_from
_J2: Final = V2 << 8 | J
_D1: Final = V1 << 8 | D


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits of one frame: sizes in bytes, a frame with its header. `window`: maximum events that a W may announce."""

    frame: int
    window: int
    pairs: int
    key: int
    value: int


@dataclass(frozen=True, slots=True)
class Window:
    """A W frame. `offset`: its position in the connection, or that of the C frame that contained it."""

    version: int
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Consecutive complete data frames of one version.

    The first begins at `start` in `data`; frame i ends at ``ends[i]``. `steady`: each sequence number is one above the
    previous one, without wrapping. `offset`: the first frame's position in the connection; if `nested`, that of their C.
    """

    version: int
    data: bytes | bytearray
    start: int
    ends: list[int]
    steady: bool
    offset: int
    nested: bool = False

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def size(self) -> int:
        """Bytes of its frames."""
        return self.ends[-1] - self.start

    def begin(self, index: int) -> int:
        """Returns the start of frame `index` in `data`."""
        return self.ends[index - 1] if index else self.start

    def frame(self, index: int) -> bytes:
        """Returns frame `index`, with its header."""
        return bytes(self.data[self.begin(index) : self.ends[index]])

    def sequence(self, index: int) -> int:
        """Returns the sequence number of frame `index`."""
        number: int = _number(self.data, self.begin(index) + 2)[0]
        return number

    def has_zero(self) -> bool:
        """Returns whether one of its frames has the number 0, which a keep-alive also uses."""
        if self.steady:
            return self.sequence(0) == 0
        return any(self.sequence(index) == 0 for index in range(len(self)))

    def split(self, count: int) -> tuple[FrameRun, FrameRun]:
        """Splits it into the first `count` frames and the rest."""
        middle = self.ends[count - 1]
        offset = self.offset if self.nested else self.offset + middle - self.start
        return (
            replace(self, ends=self.ends[:count]),
            replace(self, start=middle, ends=self.ends[count:], offset=offset),
        )


@dataclass(frozen=True, slots=True)
class CompressedFrame:
    """A C frame: its zlib stream as received."""

    version: int
    stream: bytes
    offset: int


class Cutter:
    """Cuts a buffer into frames: a connection's bytes, or, if `nested`, the content of the C frame at `offset`."""

    def __init__(self, limits: WireLimits, *, nested: bool = False, offset: int = 0) -> None:
        self._limits = limits
        self._nested = nested
        self._base = offset
        self._at = 0
        self._pair_at = 0  # in an incomplete v1 frame: end of its last complete pair, from the frame's start
        self._pairs_left = 0
        self.buffer: bytes | bytearray = bytearray()

    def feed(self, data: bytes) -> None:
        """Adds bytes."""
        assert isinstance(self.buffer, bytearray)
        self.buffer += data

    @property
    def left(self) -> int:
        """Bytes that are not cut yet."""
        return len(self.buffer) - self._at

    @property
    def offset(self) -> int:
        """The position of the next frame in the connection; if nested, that of its C frame."""
        return self._base if self._nested else self._base + self._at

    def trim(self) -> None:
        """Drops the bytes that were cut."""
        if self._at and isinstance(self.buffer, bytearray):
            del self.buffer[: self._at]
            self._base += self._at
            self._at = 0

    def cut(self) -> Window | FrameRun | CompressedFrame | None:
        """Returns the next frame or run of data frames; None if it is not complete yet. Raises `ProtocolError`."""
        buffer, at = self.buffer, self._at
        left = len(buffer) - at
        if not left:
            return None
        version = buffer[at]
        if version not in (V1, V2):
            raise self.fault("neither version 1 nor version 2 of Lumberjack")
        if left == 1:
            return None
        kind = buffer[at + 1]
        if kind == J and version == V2:
            return self._json_run()
        if kind == D and version == V1:
            return self._pairs_run()
        if kind in (J, D):
            raise self.fault(f"a {chr(kind)} frame is not of version {chr(version)}")
        if kind not in (W, C) or (kind == C and self._nested):
            where = " inside a C frame" if self._nested else ""
            raise self.fault(f"no frame that a client sends{where}")
        if left < HEADER:
            return None
        number = _number(buffer, at + 2)[0]
        if kind == W:
            if number > self._limits.window:
                raise self.fault(f"a window of {number} events", "LUMBERJACK__WINDOW_EVENTS")
            window = Window(version, number, self.offset)
            self._at = at + HEADER
            return window
        if HEADER + number > self._limits.frame:
            raise self.fault(f"a compressed frame of {number} bytes", "LIMITS__FRAME_BYTES")
        end = at + HEADER + number
        if end > len(buffer):
            return None
        with memoryview(buffer) as view:
            compressed = CompressedFrame(version, bytes(view[at + HEADER : end]), self.offset)
        self._at = end
        return compressed

    def _json_run(self) -> FrameRun | None:
        """Returns the complete J frames, at most `RUN`. A fault after the first frame waits for the next call."""
        buffer, first, size, most = self.buffer, self._at, len(self.buffer), self._limits.frame - DATA_HEADER
        if type(buffer) is bytes:  # of a C frame
            ends, steady = native.core.frames(buffer, first, most, RUN)
            if ends:
                return self._end_run(V2, first, ends[-1], ends, steady)
        shift = 0 if self._nested else first
        ends = []
        steady, expected, at = True, -1, first
        while at + DATA_HEADER <= size and len(ends) < RUN:
            kind, sequence, length = _data_header(buffer, at)
            if kind != _J2:
                break
            if length > most:
                if ends:
                    break
                raise self.fault(f"a J frame of {length} bytes", "LIMITS__FRAME_BYTES")
            end = at + DATA_HEADER + length
            if end > size:
                break
            if sequence != expected:
                steady = steady and not ends
            expected = sequence + 1
            ends.append(end - shift)
            at = end
        return self._end_run(V2, first, at, ends, steady)

    def _pairs_run(self) -> FrameRun | None:
        """Returns the complete D frames, like `_json_run`."""
        first, size = self._at, len(self.buffer)
        shift = 0 if self._nested else first
        ends: list[int] = []
        steady, expected, at = True, -1, first
        while at + DATA_HEADER <= size and len(ends) < RUN:
            kind, sequence, number = _data_header(self.buffer, at)
            if kind != _D1:
                break
            self._at = at
            try:
                end = self._pairs_end(at, number)
            except ProtocolError:
                if not ends:
                    raise
                break
            if end > size:
                break
            if sequence != expected:
                steady = steady and not ends
            expected = sequence + 1
            ends.append(end - shift)
            at = end
        return self._end_run(V1, first, at, ends, steady)

    def _end_run(self, version: int, first: int, at: int, ends: list[int], steady: bool) -> FrameRun | None:
        """Returns the run from `first` to `at`. Copies it out of a connection's bytes, but shares a C frame's content."""
        self._at = at
        if not ends:
            return None
        if self._nested:
            return FrameRun(version, self.buffer, first, ends, steady, self._base, nested=True)
        with memoryview(self.buffer) as view:
            data = bytes(view[first:at])
        return FrameRun(version, data, 0, ends, steady, self._base + first)

    def _pairs_end(self, at: int, pairs: int) -> int:
        """Returns the end of the D frame at `at`; beyond the buffer if it is incomplete. Goes on where the last call stopped."""
        limits, buffer, size = self._limits, self.buffer, len(self.buffer)
        if not self._pair_at:
            if pairs > limits.pairs:
                raise self.fault(f"an event of {pairs} pairs", "LUMBERJACK__PAIRS")
            self._pair_at, self._pairs_left = DATA_HEADER, pairs
        position = at + self._pair_at
        while self._pairs_left:
            self._pair_at = position - at
            for longest, name in ((limits.key, "KEY"), (limits.value, "VALUE")):
                if position + 4 > size:
                    return size + 1
                length = _number(buffer, position)[0]
                position += 4 + length
                if length > longest:
                    raise self.fault(f"a {name.lower()} of {length} bytes", f"LUMBERJACK__{name}_BYTES")
                if position - at > limits.frame:
                    raise self.fault("a D frame is too large", "LIMITS__FRAME_BYTES")
            if position > size:
                return position
            self._pairs_left -= 1
        self._pair_at = 0
        return position

    def fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        """Makes a `ProtocolError` about the next frame."""
        sample = bytes(self.buffer[self._at : self._at + SAMPLE])
        return ProtocolError(problem, limit=limit, offset=self.offset, sample=sample)


def number_at(frame: Bytes, at: int) -> int:
    """Returns the number at offset `at`."""
    found: int = _number(frame, at)[0]
    return found


def pair_count(frame: Bytes) -> int:
    """Returns the number of pairs in a D frame."""
    return number_at(frame, 6)


def pairs(frame: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the pairs of a complete D frame."""
    position = DATA_HEADER
    for _ in range(pair_count(frame)):
        middle = position + 4 + _number(frame, position)[0]
        end = middle + 4 + _number(frame, middle)[0]
        yield frame[position + 4 : middle], frame[middle + 4 : end]
        position = end


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


def encode(documents: Sequence[Mapping[str, object]], *, first: int = 1, level: int = 3) -> bytes:
    """Returns one v2 window as Beats write it: numbered from `first`, in one C frame; with level 0, plain J frames."""
    frames = b"".join(json_frame(first + index, orjson.dumps(item)) for index, item in enumerate(documents))
    return window(len(documents)) + (compressed(frames, level) if level else frames)


class LumberjackReplies:
    """Parses a server's acknowledgements."""

    def __init__(self, version: int = V2) -> None:
        self._version = version
        self._buffer = b""

    def receive(self, data: bytes) -> list[int]:
        """Returns the numbers that `data`, split anywhere, acknowledges, in order. Raises `ProtocolError` for anything else."""
        data = self._buffer + data
        found = []
        for at in range(0, len(data) - HEADER + 1, HEADER):
            if data[at] != self._version or data[at + 1] != A:
                raise ProtocolError(f"not an acknowledgement: {data[at : at + HEADER].hex()}")
            found.append(_number(data, at + 2)[0])
        self._buffer = data[HEADER * len(found) :]
        return found
