"""A frame as it is shown: where it stands, and what each of its fields means. Pure."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace_common.operations.errors import ProtocolError
from headrace_courier.wire import HEADER, NONCE_BYTES, STREAMING, Decoder, MessageKind, Payload
from headrace_logjam.wire import FRAMES, Compression, decode_meta, is_app_env, joined, split
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import HEADER as SEGMENT_HEADER
from headrace_segment.wire.codes import Kind
from headrace_segment.wire.layout import Table
from headrace_segment.wire.stream import MessageStream

SAMPLE: Final = 16
"""Most bytes of a field that are shown."""
TEXT: Final = 200
"""Most characters of a text that are shown."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a frame, or something within one. `sample`: its first bytes; `inflated`: its offset counts what was inflated."""

    offset: int
    size: int
    sample: bytes
    meaning: str
    inflated: bool = False

    def described(self) -> dict[str, Any]:
        """For JSON."""
        found = {"offset": self.offset, "size": self.size, "hex": self.sample.hex(), "meaning": self.meaning}
        return {**found, "inflated": True} if self.inflated else found


@dataclass(frozen=True, slots=True)
class Unit:
    """One frame: `kind` is its name in the protocol. `more`: parts that are left out."""

    kind: str
    offset: int
    size: int
    meaning: str
    parts: Sequence[Part] = ()
    more: int = 0

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.offset + self.size

    def described(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "offset": self.offset,
            "size": self.size,
            "kind": self.kind,
            "meaning": self.meaning,
            "fields": [part.described() for part in self.parts],
            "fields_left_out": self.more,
        }


class Walker(Protocol):
    """Cuts a stream into frames."""

    def feed(self, data: bytes) -> Iterator[Unit]:
        """Yield the frames that `data`, split anywhere, completes. Where the stream breaks it yields no more, and never raises:
        it is the receiver's session that says why.
        """


def fields(data: bytes, offset: int, *sizes: tuple[int, str], inflated: bool = False) -> list[Part]:
    """Consecutive fields of `data`, which begins at `offset`: their sizes and meanings."""
    found = []
    at = 0
    for size, meaning in sizes:
        found.append(Part(offset + at, size, data[at : at + min(size, SAMPLE)], meaning, inflated))
        at += size
    return found


def count(number: int, what: str) -> str:
    """``1 event``, ``2 events``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def cut_text(text: str) -> str:
    """At most `TEXT` characters of it."""
    return text if len(text) <= TEXT else f"{text[:TEXT]} …"


_LENGTH_BYTES: Final = 4
_SHOWN: Final = 64


class CourierWalker:
    """See `Walker`. `most`: events of a payload that are shown."""

    def __init__(self, decoder: Decoder, most: int) -> None:
        self._decoder = decoder
        self._most = most
        self._broken = False

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        if self._broken:
            return
        try:
            while True:
                for message in self._decoder.receive(data):
                    yield self._unit(message)
                if not self._decoder.busy:
                    return
                data = b""
        except ProtocolError:
            self._broken = True

    def _unit(self, message: MessageKind | Payload) -> Unit:
        begin, end = self._decoder.span
        head = self._decoder.head
        kind = head[:4].decode("ascii", "replace")
        length = int.from_bytes(head[4:8], "big")
        if not isinstance(message, Payload):
            parts = fields(head, begin, (4, f"type {kind}: {message.value}"), (4, f"{length} bytes follow"))
            if length:
                parts += fields(head[HEADER.size :], begin + HEADER.size, (length, "its body"))
            return Unit(kind, begin, end - begin, message.value, parts)
        streaming = length == STREAMING
        stream = end - begin - HEADER.size - NONCE_BYTES
        parts = fields(
            head[: HEADER.size] + message.nonce,
            begin,
            (4, f"type {kind}: events, compressed"),
            (4, "no length: it ends where its zlib stream ends" if streaming else f"{length} bytes follow"),
            (NONCE_BYTES, "the nonce, which the acknowledgement repeats"),
            (stream, "a zlib stream"),
        )
        entries = list(self._entries(message))
        meaning = f"a payload of {count(message.count, 'event')}"
        return Unit(kind, begin, end - begin, meaning, [*parts, *entries], message.count - len(entries))

    def _entries(self, payload: Payload) -> Iterator[Part]:
        at = 0
        for index, entry in enumerate(payload.entries[: self._most]):
            size = _LENGTH_BYTES + len(entry)
            text = cut_text(entry[:_SHOWN].decode(errors="replace"))
            sample = len(entry).to_bytes(_LENGTH_BYTES, "big") + entry[:12]
            yield Part(at, size, sample, f"event {index + 1}, its length and {len(entry)} bytes: {text}", inflated=True)
            at += size


_NAMES: Final = ("app-env", "topic", "body", "meta")


def frames_of(raw: bytes) -> Sequence[bytes] | None:
    """Its frames; None if the bytes are not what the quarantine keeps."""
    try:
        found = split(raw)
    except struct.error:
        return None
    return found if raw and joined(found) == raw else None


def looks_so(beginning: bytes) -> bool:
    """Whether bytes begin with the length of an app-env, and with one."""
    size = int.from_bytes(beginning[:_LENGTH_BYTES], "big")
    frame = beginning[_LENGTH_BYTES : _LENGTH_BYTES + size]
    return 0 < size == len(frame) and is_app_env(frame)


def message_unit(frames: Sequence[bytes]) -> Unit:
    """The message's frames and what they mean."""
    parts: list[Part] = []
    at = 0
    for index, frame in enumerate(frames):
        name = _NAMES[index] if len(frames) == FRAMES else f"frame {index + 1}"
        parts += fields(
            len(frame).to_bytes(_LENGTH_BYTES, "big") + frame[:16],
            at,
            (_LENGTH_BYTES, f"{len(frame)} bytes follow"),
            (len(frame), f"{name}{_meaning(name, frame)}"),
        )
        at += _LENGTH_BYTES + len(frame)
    return Unit("message", 0, at, f"a message of {count(len(frames), 'frame')}", parts)


def _meaning(name: str, frame: bytes) -> str:
    if name in ("app-env", "topic"):
        return f": {frame[:64].decode(errors='replace')}"
    if name != "meta":
        return ""
    try:
        meta = decode_meta(frame)
    except ProtocolError as error:
        return f": {error}"
    known = meta.compression in set(Compression)
    method = Compression(meta.compression).name.lower() if known else "unknown"
    return f": compression {meta.compression} ({method}), device {meta.device}, number {meta.sequence}, made {meta.created_ms} ms"


_HELLO: Final = struct.pack(">i", Kind.HELLO)


class SegmentWalker:
    """See `Walker`. What begins with Hello is today's dialect."""

    def __init__(self, frame_bytes: int) -> None:
        self._stream = MessageStream(frame_bytes, self._accept)
        self._first = b""
        self._table: Table | None = None
        self._broken = False

    def _accept(self, kind: int, length: int) -> int:
        inside = kind == Kind.BEGIN_APPEND_BLOCK and self._table is original.MESSAGES
        return min(length, original.BEGIN_BYTES) if inside else length

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        if self._broken:
            return
        if self._table is None:
            self._first += data
            if len(self._first) < len(_HELLO):
                return
            self._table = today.MESSAGES if self._first.startswith(_HELLO) else original.MESSAGES
            data = self._first
        self._stream.feed(data)
        try:
            while (found := self._stream.next()) is not None:
                yield self._unit(*found)
        except ProtocolError:
            self._broken = True

    def _unit(self, kind: int, body: bytes) -> Unit:
        assert self._table is not None
        offset = self._stream.offset
        known = kind in set(Kind)
        name = Kind(kind).name if known else f"type {kind}"
        parts = fields(
            SEGMENT_HEADER.pack(kind, len(body)), offset, (4, f"type {kind}: {name}"), (4, "the length of what follows")
        )
        values = ""
        if kind in self._table:
            try:
                value = self._table.decode(kind, body)
                names = (each.name for each in dataclasses.fields(value))
                values = ", ".join(f"{each} {_shown(getattr(value, each))}" for each in names)
            except ProtocolError as error:
                values = str(error)
        meaning = values or name.lower().replace("_", " ")
        if body:
            parts.append(Part(offset + SEGMENT_HEADER.size, len(body), body[:SAMPLE], values or "its body"))
        return Unit(name, offset, SEGMENT_HEADER.size + len(body), cut_text(meaning), parts)


def _shown(value: object) -> str:
    if not isinstance(value, bytes):
        return cut_text(str(value))
    if len(value) == today.WRITER_BYTES:
        return value.hex()
    return f"({len(value):,} bytes) {value[:SAMPLE]!r}"
