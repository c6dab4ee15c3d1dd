"""The records of the segments topic. A record's key is the name of the segment that it is about; else it is empty.

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
from typing import Final

from headrace_common.operations.errors import HeadraceError

VERSION: Final = 1

_HEAD: Final = struct.Struct(">BBq")
_CLAIM: Final = struct.Struct(">BBqqh16s")
_BLOCK: Final = struct.Struct(">BBq16sqq")
_CHECKPOINT: Final = struct.Struct(">BBqq")

BLOCK_OVERHEAD: Final = _BLOCK.size
"""Bytes that a block costs in its record's value beyond its own."""

RESIGNED: Final = bytes(16)
"""The nonce of an owner that has stopped."""

LAST_EPOCH: Final = 2**15 - 1
"""The highest epoch of a producer id. Nothing is appended in it: a claim of it makes room for another producer id."""


class LogError(HeadraceError):
    """The log has a record that we cannot read, or that contradicts those before it: it is not served."""


class RecordKind(IntEnum):
    """The effect of a record."""

    CLAIM = 1
    BLOCK = 2
    CREATE = 3
    CHECKPOINT = 4


class Numbering(IntEnum):
    """The unit of a writer's levels."""

    BYTES = 0
    """Bytes of the writer in the segment; the first level is 0."""
    EVENTS = 1
    """Event numbers, which rise and may skip."""

    @property
    def first(self) -> int:
        """The level of a writer that has stored nothing."""
        return 0 if self is Numbering.BYTES else -(1 << 63)


FIRST_LEVELS: Final = {each.first for each in Numbering}


# `encode` returns a record's value; its `start` is where the log is read from.


@dataclass(frozen=True, slots=True)
class Claim:
    """Makes a process the owner of the log: it appends with this producer id and epoch, and Kafka refuses lower epochs.

    `nonce` tells two processes apart that claim the same epoch at once. An owner repeats its claim as a sign of life.
    """

    producer_id: int
    epoch: int
    nonce: bytes

    def encode(self, start: int = 0) -> bytes:
        return _CLAIM.pack(VERSION, RecordKind.CLAIM, start, self.producer_id, self.epoch, self.nonce)


@dataclass(slots=True)  # one for each record of a replay: a frozen one would cost three times as much
class Block:
    """Bytes of a writer that bring it from one level to another."""

    writer: bytes
    before: int
    after: int
    data: bytes

    def encode(self, start: int = 0) -> bytes:
        return _BLOCK.pack(VERSION, RecordKind.BLOCK, start, self.writer, self.before, self.after) + self.data


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a segment."""

    def encode(self, start: int = 0) -> bytes:
        return _HEAD.pack(VERSION, RecordKind.CREATE, start)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A part of the log's state at offset `begin`, which is that of the first part."""

    begin: int
    rows: bytes

    def encode(self, start: int = 0) -> bytes:
        return _CHECKPOINT.pack(VERSION, RecordKind.CHECKPOINT, start, self.begin) + self.rows


Record = Claim | Block | Create | Checkpoint


def segment_of(key: bytes | None) -> str:
    """Returns the segment that a record is about. Raises `LogError`."""
    try:
        return (key or b"").decode()
    except UnicodeDecodeError as error:
        raise LogError("a record whose key is no segment's name") from error


def decode(value: bytes | None) -> tuple[Record, int]:
    """Returns a record, and where the log is read from. Raises `LogError` for one that is not ours, or of a later version."""
    if not value or value[0] != VERSION:
        raise LogError(f"a record of version {value[0]}; this service knows {VERSION}" if value else "an empty record")
    try:
        _, kind, start = _HEAD.unpack_from(value)
        if kind == RecordKind.BLOCK:
            _, _, _, writer, before, after = _BLOCK.unpack_from(value)
            return Block(writer, before, after, value[_BLOCK.size :]), start
        if kind == RecordKind.CLAIM:
            return Claim(*_CLAIM.unpack(value)[3:]), start
        if kind == RecordKind.CHECKPOINT:
            return Checkpoint(_CHECKPOINT.unpack_from(value)[-1], value[_CHECKPOINT.size :]), start
        if kind == RecordKind.CREATE and len(value) == _HEAD.size:
            return Create(), start
    except struct.error as error:
        raise LogError(f"a record that makes no sense: {error}") from error
    raise LogError(f"a record of kind {kind} and {len(value)} bytes")
