"""A partition's state as an immutable set of records: parts, and a manifest that closes them.

Every key contains the offset of the set's state, so no set is ever overwritten: neither a writer that wakes up late nor
one that is cut off can make a state that is read older, or incomplete.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from headrace_segment.store.fold import Fold
from headrace_segment.store.records import Claim, Numbering
from headrace_segment.store.state import Segment, WriterState

VERSION: Final = 1

PART_BYTES: Final = 512 << 10
"""Bytes from which a part is closed."""

LONGS: Final = 4096
"""Numbers in one row of an index."""

_SEGMENT, _WRITER, _INDEX, _PARTITION = range(4)
MANIFEST: Final = "manifest"


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    """The number of parts, and the digest over all of them."""

    version: int
    parts: int
    digest: bytes


def key(partition: int, offset: int, part: int | str) -> bytes:
    """Returns the key of one record of a set."""
    return f"{partition}/{offset}/{part}".encode()


def parsed(record_key: bytes | None) -> tuple[str, int, str]:
    """Returns the arguments of `key`. No partition: it is not one of ours."""
    try:
        partition, offset, part = (record_key or b"").decode().split("/")
        return partition, int(offset), part
    except ValueError:
        return "", 0, ""


def snapshot(fold: Fold, partition: int, part_bytes: int = PART_BYTES) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a set, in the order in which they are to be stored. The fold must not move meanwhile."""
    digest = blake2b(digest_size=16)
    count, rows = 0, _rows(fold)
    while True:
        part, size = [], 0
        for row in rows:
            part.append(row)
            size += len(row)
            if size >= part_bytes:
                break
        if not part:
            break
        value = msgspec.msgpack.encode(part)
        digest.update(value)
        yield key(partition, fold.next_offset, count), value
        count += 1
    manifest = Manifest(VERSION, count, digest.digest())
    yield key(partition, fold.next_offset, MANIFEST), msgspec.msgpack.encode(manifest)


def _rows(fold: Fold) -> Iterator[bytes]:
    encode = msgspec.msgpack.Encoder().encode

    def pack(kind: int, *fields: object) -> bytes:
        return encode((kind, *fields))

    claim = None if fold.claim is None else (fold.claim.producer_id, fold.claim.epoch, fold.claim.nonce)
    yield pack(_PARTITION, fold.era, fold.log_time, claim)
    for name, segment in fold.segments.items():
        yield pack(_SEGMENT, name, segment.start, segment.length, segment.sealed, segment.modified, segment.era)
        for writer_id, writer in segment.writers.items():
            yield pack(_WRITER, writer_id, writer.level, int(writer.numbering), writer.touched)
        index = segment.index
        for at in range(0, len(index.offsets), LONGS):
            piece = slice(at, at + LONGS)
            yield pack(_INDEX, index.offsets[piece].tolist(), index.log_offsets[piece].tolist())


class Snapshots:
    """The snapshots of one partition in their topic. Records that are no part of a complete set of ours are ignored."""

    def __init__(self, partition: int) -> None:
        self._partition = str(partition)
        self._parts: dict[int, dict[str, bytes]] = {}

    def add(self, record_key: bytes | None, value: bytes | None) -> None:
        """Adds a record of the topic, in any order. A value of None: the record is deleted."""
        partition, number, part = parsed(record_key)
        if partition != self._partition:
            return
        if value is None:
            self._parts.get(number, {}).pop(part, None)
        else:
            self._parts.setdefault(number, {})[part] = value

    def newest(self, log_start: int) -> Fold | None:
        """Returns the state to start from, of the newest complete set from which the log can be read on; else None."""
        for offset in sorted(self._parts, reverse=True):
            if offset < log_start:
                return None
            values = self._read(offset)
            if values is not None:
                return _restore(offset, values)
        return None

    def _read(self, offset: int) -> list[bytes] | None:
        parts = self._parts[offset]
        try:
            manifest = msgspec.msgpack.decode(parts.get(MANIFEST, b""), type=Manifest)
        except msgspec.DecodeError:
            return None
        values = [parts.get(str(number)) for number in range(manifest.parts)]
        there = [value for value in values if value is not None]
        digest = blake2b(b"".join(there), digest_size=16).digest()
        return (
            there
            if manifest.version == VERSION and len(there) == manifest.parts and digest == manifest.digest
            else None
        )


def _restore(offset: int, values: list[bytes]) -> Fold:
    fold = Fold(offset)
    segment = Segment()
    for value in values:
        for packed in msgspec.msgpack.decode(value, type=list[bytes]):
            kind, *row = msgspec.msgpack.decode(packed, type=list[Any])
            if kind == _SEGMENT:
                name, start, length, sealed, modified, era = row
                segment = fold.segments[name] = Segment(start, length, sealed, modified, era)
            elif kind == _WRITER:
                writer_id, level, numbering, touched = row
                segment.writers[writer_id] = WriterState(level, Numbering(numbering), touched)
            elif kind == _PARTITION:
                fold.era, fold.log_time, claim = row
                fold.claim = claim and Claim(*claim)
            else:
                segment.index.offsets.extend(array("q", row[0]))
                segment.index.log_offsets.extend(array("q", row[1]))
    return fold
