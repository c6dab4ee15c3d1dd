"""Logjam's messages: four frames of ZeroMQ, app-env, topic, body and meta, and the four ways to compress a body. Pure.

Facts: Logjam's own tools (skaes/logjam-tools 994b6f5) and agent (skaes/logjam_agent 58ac43b), read and run. Where their
documents and programs differ, the programs hold:

* meta is 24 bytes, big-endian. Some clients swap the bytes of its tag, and of nothing else.
* method 1 is a zlib stream from C and Go, and a gzip one from Ruby.
* method 2 is a raw snappy block, never the framed format.
* method 3 is the length as u32, big-endian, and one raw LZ4 block.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, cast

import lz4.block
import snappy
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import inflate_stream

META: Final = struct.Struct(">HBBIQQ")
TAG: Final = 0xCABD
SWAPPED_TAG: Final = 0xBDCA
VERSION: Final = 1

HEARTBEAT: Final = b"heartbeat"
"""First frame of a device's message every 5 s. It takes a number of the device's."""

PING: Final = b"ping"
"""First frame of a producer's question whether a receiver is there."""

ACCEPTED: Final = b"202 Accepted"
REFUSED: Final = b"400 Bad Request"
PONG: Final = b"200 OK"

NOBODY: Final = b"unknown-unknown"
"""First frame of the answer to a message whose app-env cannot be repeated."""

TOPICS: Final = (b"logs", b"javascript", b"events", b"frontend.page", b"frontend.ajax", b"mobile")
"""Beginnings of a producer's topics. A device checks no more."""

NAME_BYTES: Final = 1024
"""Longest app-env or topic."""

_LENGTH: Final = struct.Struct(">I")
_VISIBLE: Final = bytes(range(32, 128))
_LZ4Error: Final = cast("type[Exception]", lz4.block.LZ4BlockError)


METHODS: Final = "none", "zlib", "snappy", "lz4"
"""The ways to compress a body, by their number in meta."""
NONE, ZLIB, SNAPPY, LZ4 = range(len(METHODS))


class Meta(NamedTuple):
    """The fourth frame. `compression` is any number; `created_ms`: Unix time, 0 if unknown."""

    compression: int = NONE
    device: int = 0
    created_ms: int = 0
    sequence: int = 0


def encode_meta(meta: Meta, *, tag: int = TAG, version: int = VERSION) -> bytes:
    """Returns the frame of `meta`."""
    return META.pack(tag, meta.compression, version, meta.device, meta.created_ms, meta.sequence)


def decode_meta(frame: bytes) -> Meta:
    """Returns the meta in `frame`. Raises `ProtocolError` when its length, tag or version is wrong."""
    if len(frame) != META.size:
        raise ProtocolError(f"meta has {len(frame)} bytes, not {META.size}")
    tag, compression, version, device, created_ms, sequence = META.unpack(frame)
    if tag not in (TAG, SWAPPED_TAG):
        raise ProtocolError(f"meta begins with the tag {tag:04x}")
    if version != VERSION:
        raise ProtocolError(f"meta has version {version}")
    return Meta(compression, device, created_ms, sequence)


@lru_cache(maxsize=1024)
def _is_app_env(frame: bytes) -> bool:
    """Returns whether a frame names an application and its environment: printable ASCII with a hyphen."""
    return b"-" in frame and not frame.translate(None, _VISIBLE)


def compress(method: int, body: bytes) -> bytes:
    """Returns `body`, compressed as devices and agents do."""
    if method == ZLIB:
        return zlib.compress(body)
    if method == SNAPPY:
        return bytes(snappy.compress(body))
    if method == LZ4:
        block: bytes = lz4.block.compress(body, store_size=False)
        return _LENGTH.pack(len(body)) + block
    assert method == NONE, method
    return body


def inflate(method: int, body: bytes, largest: int) -> Generator[int, None, bytes]:
    """Returns the JSON of a body; yields between steps. A length that it announces is judged before anything is allocated.
    `largest`: the less of LIMITS__EVENT_BYTES and LIMITS__INFLATED_BYTES.

    Raises `ProtocolError`: with `limit` set when it is larger than allowed, and then it may be sound; without when it cannot be
    read.
    """
    if method == NONE:
        _fits(len(body), largest, len(body))
        return body
    if method == ZLIB:
        return (yield from _inflate_zlib(body, largest))
    if method == SNAPPY:
        return _inflate_snappy(body, largest)
    if method == LZ4:
        return _inflate_lz4(body, largest)
    raise ProtocolError(f"compression {method} is unknown")


def _fits(size: int, largest: int, most: float, kind: str = "") -> None:
    """Raises `ProtocolError` if a body may not have `size` bytes, or its block, of this kind, holds at most `most`."""
    if size > largest:
        raise ProtocolError(f"{size} bytes, LIMITS__EVENT_BYTES {largest}", limit="LIMITS__EVENT_BYTES")
    if size > most:
        raise ProtocolError(f"a {kind} block that cannot hold the {size} bytes that it announces")


def _inflate_zlib(body: bytes, largest: int) -> Generator[int, None, bytes]:
    pieces: list[bytes] = []
    for piece in inflate_stream(body, largest):
        if pieces:
            yield 0
        pieces.append(piece)
    return b"".join(pieces)


def _inflate_snappy(body: bytes, largest: int) -> bytes:
    _fits(_snappy_length(body), largest, len(body) * 64 / 3, "snappy")  # a copy of 64 bytes takes 3
    try:
        return bytes(snappy.uncompress(body))
    except snappy.UncompressError as error:
        raise ProtocolError(f"no snappy block: {error}") from error


def _snappy_length(body: bytes) -> int:
    """Returns the length that a raw snappy block announces: a varint of 32 bits at its start (format_description.txt)."""
    size = 0
    for at, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80 and size < 1 << 32:
            return size
    raise ProtocolError("no snappy block: it announces no length")


def _inflate_lz4(body: bytes, largest: int) -> bytes:
    if len(body) < _LENGTH.size:
        raise ProtocolError(f"{len(body)} bytes have no room for the length before an LZ4 block")
    (size,) = _LENGTH.unpack_from(body)
    block = memoryview(body)[_LENGTH.size :]
    _fits(size, largest, len(block) * 255, "LZ4")  # 255 bytes take at least one
    try:
        found: bytes = lz4.block.decompress(block, uncompressed_size=size)
    except (_LZ4Error, ValueError) as error:
        raise ProtocolError(f"no LZ4 block: {error}") from error
    if len(found) != size:
        raise ProtocolError(f"an LZ4 block of {len(found)} bytes that announces {size}")
    return found


def joined(frames: Sequence[bytes]) -> bytes:
    """Returns a message as quarantine keeps it: each frame as u32 length, big-endian, and bytes."""
    return b"".join(piece for frame in frames for piece in (_LENGTH.pack(len(frame)), frame))


def split(raw: bytes) -> list[bytes]:
    """Returns the frames of what `joined` made."""
    frames, at = [], 0
    while at < len(raw):
        (size,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        frames.append(raw[at : at + size])
        at += size
    return frames


@dataclass(slots=True, eq=False)
class LogjamMessage:
    """A message as it was received. `frames`: app-env, topic, body and meta, or the frames that came instead.

    `sender`: the client's address or name, or the endpoint. `meta`: None if it is broken. `problem`: why the message can never
    be an event, judged by all but its body; empty if nothing is wrong. `asks`: it began with an empty frame, so it wants an
    answer, on its `route`; `answer`: its frames, once it is known. `heard`: what a consumer says of its number, as members of a
    JSON object.
    """

    frames: Sequence[bytes]
    sender: str
    meta: Meta | None
    problem: str
    asks: bool = False
    route: bytes = b""
    answer: Sequence[bytes] | None = None
    heard: bytes = b""

    @property
    def ping(self) -> bool:
        """Whether it is no event, but a question whether a receiver is there."""
        return not self.problem and self.frames[0] == PING

    @property
    def key(self) -> bytes:
        """Messages of one key keep their order: their app-env."""
        return b"" if self.problem else self.frames[0]

    @property
    def name(self) -> bytes:
        """The beginning of the answer."""
        first = self.frames[0] if self.frames else b""
        return first if 0 < len(first) <= NAME_BYTES else NOBODY


FRAMES: Final = 4
MOST_FRAMES: Final = 64
"""Frames of a message that are kept: one with more is none of Logjam's, and ZeroMQ does not bound their number."""

UNTOLD: Final = encode_meta(Meta())
"""The meta of a message without one: old producers leave it out where they get no answer."""


def read_request(parts: Sequence[bytes], sender: str) -> LogjamMessage:
    """Reads a message to the socket that answers: an empty frame, if it wants an answer, and four frames."""
    asks = bool(parts) and not parts[0]
    return _read(parts[1:] if asks else parts, sender, PING, TOPICS, asks=asks)


def read_unanswered(parts: Sequence[bytes], sender: str) -> LogjamMessage:
    """Reads a message to the socket that never answers: four frames, or three without meta."""
    return _read([*parts, UNTOLD] if len(parts) == FRAMES - 1 else parts, sender, PING, TOPICS)


def read_published(parts: Sequence[bytes], sender: str) -> LogjamMessage:
    """Reads a message from a device. Any topic will do."""
    return _read(parts, sender, HEARTBEAT, (b"",))


def _read(
    frames: Sequence[bytes], sender: str, special: bytes, topics: tuple[bytes, ...], *, asks: bool = False
) -> LogjamMessage:
    """`special`: what is in the app-env's place in a message with any topic. `topics`: beginnings of the others'."""
    if len(frames) != FRAMES:
        these = f"{len(frames)} frames" if len(frames) < MOST_FRAMES else f"the first of {MOST_FRAMES} frames or more"
        return LogjamMessage(frames, sender, None, f"{these}, not {FRAMES}", asks)
    app_env, topic, _, last = frames
    try:
        meta = decode_meta(last)
    except ProtocolError as error:
        return LogjamMessage(frames, sender, None, str(error), asks)
    problem = ""
    if app_env != special:
        if len(app_env) > NAME_BYTES or not _is_app_env(app_env):
            problem = f"no app-env: {_shown(app_env)}"
        elif len(topic) > NAME_BYTES or not topic.startswith(topics):
            problem = f"unknown topic: {_shown(topic)}"
    return LogjamMessage(frames, sender, meta, problem, asks)


def _shown(frame: bytes) -> str:
    return repr(frame[:64])[1:]
