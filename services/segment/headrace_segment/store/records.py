"""Records of the log of segments. A record's key is its segment's name in UTF-8; its value is written and read here.

A value is a version (u8), a kind (u8) and the kind's own fields, big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from headrace_common.operations.errors import HeadraceError

VERSION: Final = 1

_HEAD: Final = struct.Struct(">BB")
_OPEN: Final = struct.Struct(">BB16s16sBB")
_BLOCK: Final = struct.Struct(">BB16s16sqq")

BLOCK_OVERHEAD: Final = _BLOCK.size
"""Bytes that a block costs in its record's value beyond its own."""


class LogError(HeadraceError):
    """The log has a record that we cannot read: no later one can be judged, and the partition stops."""


class RecordKind(IntEnum):
    """The effect of a record."""

    OPEN = 1
    BLOCK = 2
    CREATE = 3
    SEAL = 4
    TRUNCATE = 5
    DELETE = 6
    FORGET = 7
    RENEW = 8


class Numbering(IntEnum):
    """The unit of a writer's levels. A writer keeps to one."""

    BYTES = 0
    """Bytes of the writer in the segment; the first level is 0."""
    EVENTS = 1
    """Event numbers, which rise and may skip."""

    @property
    def first(self) -> int:
        """The level of a writer that has stored nothing."""
        return 0 if self is Numbering.BYTES else -(1 << 63)


class Encoded:
    """A record whose fields follow each other as `_LAYOUTS` says."""

    __slots__: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Returns the record's value."""
        kind, layout = _LAYOUTS[type(self)]
        return layout.pack(VERSION, kind, *(getattr(self, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Open(Encoded):
    """Opens a writer's session: blocks of its earlier ones count no more. `create`: creates a missing segment."""

    writer: bytes
    session: bytes
    numbering: Numbering
    create: bool = False


@dataclass(slots=True)  # one for each record of a replay: a frozen one would cost three times as much
class Block:
    """Bytes of a writer that bring it from one level to another."""

    writer: bytes
    session: bytes
    before: int
    after: int
    data: bytes

    def encode(self) -> bytes:
        """Returns the record's value."""
        return (
            _BLOCK.pack(
                VERSION,
                RecordKind.BLOCK,
                self.writer,
                self.session,
                self.before,
                self.after,
            )
            + self.data
        )


@dataclass(frozen=True, slots=True)
class Create(Encoded):
    """Creates a segment. By `request` the asking session knows its own record; likewise below."""

    request: bytes


@dataclass(frozen=True, slots=True)
class Seal(Encoded):
    """Ends appending to a segment."""

    request: bytes


@dataclass(frozen=True, slots=True)
class Truncate(Encoded):
    """Removes the bytes before `offset`."""

    request: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Delete(Encoded):
    """Removes a segment, with its writers."""

    request: bytes


@dataclass(frozen=True, slots=True)
class Forget(Encoded):
    """Forgets an idle writer, if it is still in this session, at this level, and was last heard then (Unix, ms)."""

    writer: bytes
    session: bytes
    level: int
    touched: int


@dataclass(frozen=True, slots=True)
class Renew(Encoded):
    """Keeps a silent writer that has a connection from being idle, if this is still its session."""

    writer: bytes
    session: bytes


Change = Create | Seal | Truncate | Delete
Record = Open | Block | Change | Forget | Renew

_REQUEST: Final = struct.Struct(">BB16s")
_LAYOUTS: Final[dict[type[Any], tuple[RecordKind, struct.Struct]]] = {
    Open: (RecordKind.OPEN, _OPEN),
    Create: (RecordKind.CREATE, _REQUEST),
    Seal: (RecordKind.SEAL, _REQUEST),
    Truncate: (RecordKind.TRUNCATE, struct.Struct(">BB16sq")),
    Delete: (RecordKind.DELETE, _REQUEST),
    Forget: (RecordKind.FORGET, struct.Struct(">BB16s16sqq")),
    Renew: (RecordKind.RENEW, struct.Struct(">BB16s16s")),
}
_BY_KIND: Final[dict[int, tuple[type[Any], struct.Struct]]] = {
    kind: (record_type, layout) for record_type, (kind, layout) in _LAYOUTS.items()
}


def segment_of(key: bytes | None) -> str:
    """Returns the segment that a record is about. Raises `LogError`."""
    try:
        return (key or b"").decode()
    except UnicodeDecodeError as error:
        raise LogError("a record whose key is no segment's name") from error


def decode(value: bytes | None) -> Record:
    """Decodes a record. Raises `LogError` for a record that is not ours, or of a later version."""
    if value is None or len(value) < _HEAD.size:
        raise LogError("a record without a value of ours")
    version, kind = _HEAD.unpack_from(value)
    if version != VERSION:
        raise LogError(f"a record of version {version}; this service knows {VERSION}")
    try:
        if kind == RecordKind.BLOCK:
            _, _, writer, session, before, after = _BLOCK.unpack_from(value)
            return Block(writer, session, before, after, value[_BLOCK.size :])
        if kind == RecordKind.OPEN:
            _, _, writer, session, numbering, create = _OPEN.unpack(value)
            return Open(writer, session, Numbering(numbering), bool(create))
        if kind not in _BY_KIND:
            raise LogError(f"a record of kind {kind}")
        record_type, layout = _BY_KIND[kind]
        _, _, *fields = layout.unpack(value)
        record: Record = record_type(*fields)
    except (struct.error, ValueError) as error:
        raise LogError(f"a record of kind {kind} that makes no sense: {error}") from error
    return record
