"""Forward on the wire: bytes to messages and back. No sockets, no clock; limits are constructor arguments.

A connection is a concatenation of msgpack objects without an outer length. A message is an array whose second element
decides its mode (fluentd, in_forward.rb `on_message`): an array (Forward), a str or bin (PackedForward, compressed or not),
anything else is a time (Message). Clients: fluentd, Fluent Bit, fluent-logger-golang, -python, @fluent-org/logger.
"""

from __future__ import annotations

import gzip
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, cast

import msgpack
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import SMALL

from headrace_forward.kinds import HEADER, KINDS, TIMES, MsgpackKind, cut

SAMPLE: Final = 32
"""Bytes of a faulty message that are logged."""

ELEMENTS: Final = 16
"""Maximum elements of a message, more than any client sends: each takes a step and a place in a list."""

UNPACKER_BUFFER: Final = 4 << 10
RENEWAL: Final = 1 << 20
"""Bytes after which the unpacker is replaced: its buffer, 1 MiB by default, grows with a message and never shrinks."""

STEPS: Final = 2048
"""Steps after which `ForwardDecoder.receive` pauses: a few milliseconds of work. A step is an entry or a part of a message."""

MESSAGE_STEPS: Final = 32
"""Steps that a complete message counts for, since its option is read and it becomes a frame."""

MANY_NILS: Final = b"\xc0" * 1024
"""Consecutive heartbeats that are skipped at once: one by one, each takes a microsecond and costs its sender one byte."""

NILS: Final = re.compile(rb"\xc0++")

HEARTBEAT: Final = b"\0"
"""The datagram that fluentd sends (`heartbeat_type udp`) and expects back."""

ACK_KEY: Final = b"\x81\xa3ack"  # map of one entry, str "ack"


class EventTime(NamedTuple):
    """Ext type 0 of eight bytes: u32 seconds and u32 nanoseconds, big-endian, unsigned: valid until 2106."""

    seconds: int
    nanoseconds: int

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> EventTime:
        """Decodes the ext's eight bytes. Raises ValueError for any other length."""
        if len(data) != 8:
            raise ValueError(f"an EventTime has 8 bytes, not {len(data)}")
        return cls(*struct.unpack(">II", data))

    def encode(self) -> msgpack.ExtType:
        """Encodes it as the fixext 8 (d7 00) that every measured client sends."""
        return msgpack.ExtType(0, struct.pack(">II", *self))


@dataclass(slots=True)
class ForwardMessage:
    """One complete top-level array, cut into its elements but not decoded.

    `raw`: the message's bytes; `offset`: its position in the connection. Element 0 begins at `start` in `raw`; element i ends
    at ``ends[i]``. In Forward mode `entries` holds the start of each entry and, last, the end of the array, counted from
    `base` before the message's first byte. It covers the first `most` entries only; `count` is their total number.
    """

    raw: bytes
    offset: int
    start: int
    ends: list[int]
    entries: array[int] | None = None
    base: int = 0
    count: int = 0
    option_index: int = field(init=False)
    """The position of the option map in this mode; the message may lack it."""

    def __post_init__(self) -> None:
        self.option_index = 3 if self.kind(1) in TIMES else 2

    def element(self, index: int) -> bytes:
        """Returns the bytes of element `index`, or empty bytes."""
        if index >= len(self.ends):
            return b""
        return self.raw[self.ends[index - 1] if index else self.start : self.ends[index]]

    def content(self, index: int) -> memoryview:
        """Returns the content of element `index`, a str or bin, without a copy."""
        start = self.ends[index - 1] if index else self.start
        return memoryview(self.raw)[start + 1 + HEADER.get(self.raw[start], 0) : self.ends[index]]

    def kind(self, index: int) -> MsgpackKind | None:
        """Returns the kind of element `index`, or None."""
        if index >= len(self.ends):
            return None
        return KINDS[self.raw[self.ends[index - 1] if index else self.start]]

    def begins(self, index: int, prefixes: bytes | tuple[bytes, ...]) -> bool:
        """Returns whether the content of element `index`, a str or bin, begins with one of `prefixes`."""
        start = self.ends[index - 1] if index else self.start
        return self.raw.startswith(prefixes, start + 1 + HEADER.get(self.raw[start], 0))

    @property
    def size(self) -> int:
        """Returns the bytes that it holds: its own, and the positions of its entries."""
        return len(self.raw) + _size(self.entries)


class _Stage(Enum):
    TOP = "between messages"
    ELEMENT = "in a message"
    ENTRY = "in a message's entries"


@dataclass(slots=True)
class ForwardDecoder:
    """Decodes bytes, split anywhere, into messages.

    `frame_bytes`: largest message; `frame_events`: entries whose positions are recorded. Work and memory follow the received
    bytes, never an announced length: msgpack's unpacker scans each byte once and continues where it stopped.
    """

    frame_bytes: int
    frame_events: int
    origin: int = 0  # offset in the connection of position 0 of the unpacker and of the fields below
    busy: bool = field(init=False, default=False)
    """It has not parsed all received bytes: call `receive` with no bytes to continue."""

    _unpacker: Any = field(
        init=False, default=None
    )  # takes 41 KB: from when it is needed to the end of the last message
    _buffer: bytearray = field(init=False, default_factory=bytearray)
    _base: int = field(init=False, default=0)  # offset of the buffer's first byte
    _stage: _Stage = field(init=False, default=_Stage.TOP)
    _first: int = field(init=False, default=0)  # offset of the current message's first byte
    _start: int = field(init=False, default=0)  # of its first element
    _left: int = field(init=False, default=0)  # elements still to come
    _entries_left: int = field(init=False, default=0)
    _ends: list[int] = field(init=False, default_factory=list)
    _entries: array[int] | None = field(init=False, default=None)
    _count: int = field(init=False, default=0)
    _failed: ProtocolError | None = field(init=False, default=None)

    def partial_bytes(self) -> int:
        """Returns the bytes kept for an incomplete message: ours, the unpacker's copy, and the positions of its entries."""
        return 2 * len(self._buffer) + (0 if self._entries is None else _size(self._entries))

    def may_be_whole(self, data: bytes) -> bool:
        """Returns whether `data` begins a message and is as short as a small one."""
        fresh = not self._buffer and self._failed is None and not self.busy  # what has begun is in the buffer
        return fresh and len(data) <= SMALL and len(data) <= self.frame_bytes

    def taken(self, data: bytes) -> int:
        """Goes on after `data`, a whole message. Returns its offset in the connection."""
        offset = self.origin + self._first
        self.origin += len(data)
        return offset

    def whole(self, data: bytes) -> ForwardMessage | None:
        """Returns `data` as a message, if it is exactly one small message. None: it must be received."""
        found = cut(data, self.frame_events) if self.may_be_whole(data) else None
        return None if found is None else ForwardMessage(data, self.taken(data), 1, *found)

    def receive(self, data: bytes) -> Iterator[ForwardMessage]:
        """Yields the messages that `data` completes, unless it pauses. Exhaust it before the next call.

        Raises `ProtocolError` where the stream becomes invalid; every later call raises it again.
        """
        if self._failed is not None:
            raise self._failed
        self._buffer += data
        if self._unpacker is None:
            self._renew()
        else:
            self._unpacker.feed(data)
        steps = STEPS
        self.busy = False
        try:
            while steps > 0:
                if self._entries_left:
                    steps -= self._skip_entries(steps)
                    continue
                message = self._step()
                steps -= 1
                if message is not None:
                    steps -= MESSAGE_STEPS
                    yield message
            self.busy = True
        except msgpack.OutOfData:
            if len(self._buffer) > self.frame_bytes:
                raise self.fault("a message is too large", "LIMITS__FRAME_BYTES") from None
        except msgpack.StackError as error:
            raise self.fault("nested too deep to be read", "LIMITS__DEPTH") from error
        except (msgpack.FormatError, msgpack.BufferFull, ValueError) as error:
            raise self.fault(f"not msgpack: {type(error).__name__} {error}".strip()) from error

    def _step(self) -> ForwardMessage | None:
        """Parses one header or element, or ends the entries. Raises `msgpack.OutOfData` if bytes are missing."""
        if self._stage is _Stage.TOP:
            self._begin()
        elif self._stage is _Stage.ELEMENT:
            if self._left == 0:
                return self._complete()
            self._element()
        else:
            self._stage = _Stage.ELEMENT
            self._end_element()
        return None

    def _skip_entries(self, most: int) -> int:
        """Skips at most `most` entries and returns how many. Raises like `_step`."""
        skip, tell, entries = self._unpacker.skip, self._unpacker.tell, self._entries
        assert entries is not None
        most = min(most, self._entries_left)
        done = 0
        try:
            while done < most:
                skip()
                done += 1
                if len(entries) <= self.frame_events:
                    entries.append(tell())
        finally:
            self._entries_left -= done
        return done

    def _begin(self) -> None:
        """Begins what follows a message: nil is a heartbeat, an array a message; anything else cannot be trusted."""
        self._first = self._unpacker.tell()
        del self._buffer[: self._first - self._base]
        self._base = self._first
        if self._first >= RENEWAL:
            self._renew()
        if not self._buffer:
            self.origin, self._first, self._base, self._unpacker = self.origin + self._first, 0, 0, None
            raise msgpack.OutOfData
        kind = KINDS[self._buffer[0]]
        if kind is MsgpackKind.NIL and self._buffer.startswith(MANY_NILS):
            run = cast("re.Match[bytes]", NILS.match(self._buffer)).end()
            del self._buffer[:run]
            self._first += run
            self._renew()
        elif kind is MsgpackKind.NIL:
            self._unpacker.skip()
        elif kind is MsgpackKind.ARRAY:
            self._left = self._array_header()
            if self._left > ELEMENTS:
                raise self.fault(f"a message of {self._left} elements")
            self._start = self._unpacker.tell()
            self._ends = []
            self._entries, self._count = None, 0
            self._stage = _Stage.ELEMENT
        else:
            raise self.fault("neither a message nor a heartbeat")

    def _renew(self) -> None:
        self.origin += self._first
        self._first = self._base = 0
        self._unpacker = new_unpacker()
        self._unpacker.feed(self._buffer)

    def _element(self) -> None:
        if len(self._ends) == 1:
            position = self._ends[0]  # not tell(): the unpacker may be inside this element
            if position == len(self._buffer):
                raise msgpack.OutOfData
            first = self._buffer[position]
            if KINDS[first] is MsgpackKind.ARRAY:
                self._entries_left = self._count = self._array_header()
                self._entries = array("Q", (self._unpacker.tell(),))
                self._stage = _Stage.ENTRY
                return
            length = HEADER.get(first)
            if length is not None and position + length < len(self._buffer):
                announced = int.from_bytes(self._buffer[position + 1 : position + 1 + length], "big")
                if announced > self.frame_bytes:
                    raise self.fault("a message is too large", "LIMITS__FRAME_BYTES")
        self._unpacker.skip()
        self._end_element()

    def _end_element(self) -> None:
        self._ends.append(self._unpacker.tell() - self._first)
        self._left -= 1

    def _array_header(self) -> int:
        """Reads an array's length. Refuses at once one that cannot fit, as each element has at least one byte."""
        length = cast("int", self._unpacker.read_array_header())
        if length > self.frame_bytes:
            raise self.fault("a message is too large", "LIMITS__FRAME_BYTES")
        return length

    def _complete(self) -> ForwardMessage:
        end = self._unpacker.tell() - self._base
        if end > self.frame_bytes:
            raise self.fault("a message is too large", "LIMITS__FRAME_BYTES")
        self._stage = _Stage.TOP
        entries, self._entries = self._entries, None
        # One copy: most messages come alone, so the buffer holds nothing else.
        raw = bytes(self._buffer) if end == len(self._buffer) else bytes(self._buffer[:end])
        return ForwardMessage(
            raw, self.origin + self._first, self._start - self._first, self._ends, entries, self._first, self._count
        )

    def fault(self, problem: str, limit: str | None = None) -> ProtocolError:
        sample = bytes(self._buffer[:SAMPLE])
        return self.refuse(ProtocolError(problem, limit=limit, offset=self.origin + self._first, sample=sample))

    def refuse(self, error: ProtocolError) -> ProtocolError:
        """Ends decoding: every later call raises `error`, which it returns. Frees what it holds: the connection may still wait
        for Kafka.
        """
        self._failed = error
        self.busy = False
        self._buffer.clear()
        self._entries = self._unpacker = None
        return error


def _size(noted: array[int] | None) -> int:
    return 0 if noted is None else noted.itemsize * len(noted)


def new_unpacker() -> Any:
    """Makes an unpacker without size limits, whose buffer starts small."""
    return msgpack.Unpacker(max_buffer_size=0, read_size=UNPACKER_BUFFER)


def acknowledgement(chunk: bytes) -> bytes:
    """Makes the reply for a chunk from its msgpack encoding as received: the same bytes, so the same type, go back."""
    return ACK_KEY + chunk


def heartbeat(data: bytes) -> bytes:
    """Returns the answer to a datagram: one byte for any content, so never more than was received."""
    return HEARTBEAT if data else b""


# The client's side, for the command line, the tests and the load generators

Mode = Literal["Message", "Forward", "PackedForward", "CompressedPackedForward"]
Time = EventTime | int | float | None
Entry = tuple[Time, Mapping[str, Any]]


def encode(
    tag: str, entries: Sequence[Entry], *, mode: Mode = "PackedForward", chunk: str | bytes | None = None
) -> bytes:
    """Makes messages of `mode` that carry `entries`: one, or in Message mode one per entry, all with the same `chunk`.

    Raises ValueError if a value has no msgpack form.
    """
    asked: dict[str, Any] = {} if chunk is None else {"chunk": chunk}
    packed = [(_encode_time(time), record) for time, record in entries]
    if mode == "Message":
        return b"".join(_pack([tag, time, record, asked]) for time, record in packed)
    option: dict[str, Any] = {"size": len(packed), **asked}
    if mode == "Forward":
        return _pack([tag, packed, option])
    body = b"".join(map(_pack, packed))
    if mode == "CompressedPackedForward":
        body = gzip.compress(body, compresslevel=6, mtime=0)
        option["compressed"] = "gzip"
    return _pack([tag, body, option])


class ForwardReplies:
    """Parses a server's acknowledgements, after the handshake."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(unicode_errors="surrogateescape")

    def receive(self, data: bytes) -> list[str | bytes]:
        """Returns the chunks that `data`, split anywhere, acknowledges, in order. Raises `ProtocolError` for anything else."""
        self._unpacker.feed(data)
        try:
            return [reply["ack"] for reply in self._unpacker]
        except (KeyError, TypeError, ValueError, msgpack.FormatError) as error:
            raise ProtocolError(f"not an acknowledgement: {error}") from error


def _encode_time(time: Time) -> Any:
    return time.encode() if isinstance(time, EventTime) else time


def _pack(value: object) -> bytes:
    return cast("bytes", msgpack.packb(value, unicode_errors="surrogateescape"))
