"""A partition's state as records of its own log: a process that starts reads these and what follows.

Nothing else is appended between the parts, and no record says that the log is read from there before all are stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace_segment.store.records import Checkpoint, Claim, Numbering
from headrace_segment.store.state import Segment, WriterState

if TYPE_CHECKING:
    from headrace_segment.store.fold import Fold

PART_BYTES: Final = 512 << 10
"""Bytes from which a part is closed."""

LONGS: Final = 4096
"""Numbers in one row of an index."""

_SEGMENT, _WRITER, _INDEX, _PARTITION = range(4)


def checkpoint(fold: Fold) -> Iterator[Checkpoint]:
    """Yields the parts, to be stored one after the other. Only they may be applied to the fold meanwhile."""
    begin, part, size = fold.next_offset, list[bytes](), 0
    for row in _rows(fold):
        part.append(row)
        size += len(row)
        if size >= PART_BYTES:
            yield Checkpoint(begin, msgspec.msgpack.encode(part))
            part, size = [], 0
    if part:
        yield Checkpoint(begin, msgspec.msgpack.encode(part))


def _rows(fold: Fold) -> Iterator[bytes]:
    encode = msgspec.msgpack.Encoder().encode

    def pack(kind: int, *fields: object) -> bytes:
        return encode((kind, *fields))

    claim = None if fold.claim is None else (fold.claim.producer_id, fold.claim.epoch, fold.claim.nonce)
    yield pack(_PARTITION, fold.log_time, claim)
    for name, segment in fold.segments.items():
        yield pack(_SEGMENT, name, segment.start, segment.length, segment.modified)
        for writer_id, writer in [*segment.writers.items()]:  # a copy: silent writers may be forgotten meanwhile
            yield pack(_WRITER, writer_id, writer.level, int(writer.numbering), writer.touched)
        index = segment.index
        for at in range(0, len(index.offsets), LONGS):
            piece = slice(at, at + LONGS)
            yield pack(_INDEX, *(each[piece].tolist() for each in (index.offsets, index.log_offsets, index.times)))


def restore(part: Checkpoint, fold: Fold) -> None:
    """Adds what a part has to a fold that has taken those before it, and nothing else."""
    for packed in msgspec.msgpack.decode(part.rows, type=list[bytes]):
        kind, *row = msgspec.msgpack.decode(packed, type=list[Any])
        if kind == _SEGMENT:
            name, start, length, modified = row
            fold.segments[name] = Segment(start, length, modified)
        elif kind == _PARTITION:
            fold.log_time, claim = row
            fold.claim = claim and Claim(*claim)
        else:
            segment = next(reversed(fold.segments.values()))
            if kind == _WRITER:
                writer_id, level, numbering, touched = row
                segment.writers[writer_id] = WriterState(level, Numbering(numbering), touched)
            else:
                index = segment.index
                for column, values in zip((index.offsets, index.log_offsets, index.times), row, strict=True):
                    column.extend(array("q", values))
