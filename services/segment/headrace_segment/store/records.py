"""The records of the segments topic. A record's key is the name of the segment that it is about; a claim's is empty.

========  =================================================================================================
byte      meaning
========  =================================================================================================
0         the version, 1
1         the kind, `RecordKind`
2 to 9    where the log is read from by a process that starts: the offset of a checkpoint that is whole, or 0
10        the fields of its kind, big-endian, in the order of its class; the bytes of a block, or a checkpoint, are the rest
========  =================================================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from headrace_common.operations.errors import HeadraceError

VERSION: Final = 1

_HEAD: Final = struct.Struct(">BBq")
_BLOCK: Final = struct.Struct(">BBq16sqq")
_CHECKPOINT: Final = struct.Struct(">BBqq")

BLOCK_OVERHEAD: Final = _BLOCK.size
"""Bytes that a block costs in its record's value beyond its own."""

RESIGNED: Final = bytes(16)
"""The nonce of an owner that has stopped."""


LAST_EPOCH: Final = 2**15 - 1
"""The highest epoch of a producer id. Nothing is appended in it: a claim of it makes room for another producer id."""


class LogError(HeadraceError):
    """The log has a record that we cannot read, or that contradicts those before it: the partition stops."""


class RecordKind(IntEnum):
    """The effect of a record."""

    CLAIM = 1
    BLOCK = 2
    CREATE = 3
    TRUNCATE = 4
    CHECKPOINT = 5


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

    @staticmethod
    def of(before: int) -> Numbering:
        """Returns the unit of a writer whose first block begins at this level."""
        return Numbering.EVENTS if before == Numbering.EVENTS.first else Numbering.BYTES


class Encoded:
    """A record whose fields follow each other as `_LAYOUTS` says."""

    __slots__: tuple[str, ...] = ()

    def encode(self, start: int = 0) -> bytes:
        """Returns the record's value. `start`: where the log is read from."""
        kind, layout = _LAYOUTS[type(self)]
        return layout.pack(VERSION, kind, start, *(getattr(self, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Claim(Encoded):
    """Makes a process the owner of the partition: it appends with this producer id and epoch, and Kafka refuses lower epochs.

    `nonce` tells two processes apart that claim the same epoch at once. An owner repeats its claim as a sign of life.
    """

    producer_id: int
    epoch: int
    nonce: bytes


@dataclass(slots=True)  # one for each record of a replay: a frozen one would cost three times as much
class Block:
    """Bytes of a writer that bring it from one level to another."""

    writer: bytes
    before: int
    after: int
    data: bytes

    def encode(self, start: int = 0) -> bytes:
        """Returns the record's value. `start`: where the log is read from."""
        return _BLOCK.pack(VERSION, RecordKind.BLOCK, start, self.writer, self.before, self.after) + self.data


@dataclass(frozen=True, slots=True)
class Create(Encoded):
    """Creates a segment."""


@dataclass(frozen=True, slots=True)
class Truncate(Encoded):
    """Removes the bytes before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A part of the partition's state at offset `begin`, which is that of the first part."""

    begin: int
    rows: bytes

    def encode(self, start: int = 0) -> bytes:
        """Returns the record's value. `start`: where the log is read from."""
        return _CHECKPOINT.pack(VERSION, RecordKind.CHECKPOINT, start, self.begin) + self.rows


Record = Claim | Block | Create | Truncate | Checkpoint

_LAYOUTS: Final[dict[type[Any], tuple[RecordKind, struct.Struct]]] = {
    Claim: (RecordKind.CLAIM, struct.Struct(">BBqqh16s")),
    Create: (RecordKind.CREATE, _HEAD),
    Truncate: (RecordKind.TRUNCATE, struct.Struct(">BBqq")),
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
    kind, _ = _head(value)
    assert value is not None
    try:
        if kind == RecordKind.BLOCK:
            _, _, _, writer, before, after = _BLOCK.unpack_from(value)
            return Block(writer, before, after, value[_BLOCK.size :])
        if kind == RecordKind.CHECKPOINT:
            return Checkpoint(_CHECKPOINT.unpack_from(value)[-1], value[_CHECKPOINT.size :])
        if kind not in _BY_KIND:
            raise LogError(f"a record of kind {kind}")
        record_type, layout = _BY_KIND[kind]
        _, _, _, *fields = layout.unpack(value)
        record: Record = record_type(*fields)
    except struct.error as error:
        raise LogError(f"a record of kind {kind} that makes no sense: {error}") from error
    return record


def start_of(value: bytes | None) -> int:
    """Returns where the log is read from, as a record says it. Raises `LogError` as `decode` does."""
    return _head(value)[1]


def _head(value: bytes | None) -> tuple[int, int]:
    if value is None or len(value) < 2:
        raise LogError("a record without a value of ours")
    if value[0] != VERSION:
        raise LogError(f"a record of version {value[0]}; this service knows {VERSION}")
    try:
        _, kind, start = _HEAD.unpack_from(value)
    except struct.error as error:
        raise LogError(f"a record of kind {value[1]} that makes no sense: {error}") from error
    return kind, start
