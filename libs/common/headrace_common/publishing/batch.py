"""A batch of records for one partition, kept until Kafka has stored it, and the cycle around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from headrace_common.kafka.record_batch import UNLIMITED, BatchBuilder, builder_of
from headrace_common.publishing.in_flight import InFlightFrame
from headrace_common.record.contract import REPUBLISHED
from headrace_common.record.encoding import decode, encode
from headrace_common.record.event import Reject

REJECT_OVERHEAD: Final = 1024
"""Bytes that a reject takes in memory beyond its own during its cycle: a frame may hold a hundred thousand tiny ones."""


def republished(record: bytes) -> bytes:
    """Returns the same record, marked as sent again under another identity: the lake then checks its id, deterministic or not."""
    value, headers = decode(record)
    key, last = headers[-1]
    if key not in ("ce_attributes", "attributes"):
        return encode(value, [*headers, ("ce_attributes", b"{" + REPUBLISHED)])
    if last.endswith(REPUBLISHED):
        return record
    separator = b"" if last == b"{}" else b","
    return encode(value, [*headers[:-1], (key, last[:-1] + separator + REPUBLISHED)])


class Batch:
    """Encoded records for one partition, sent as one Kafka batch of at most `limit` bytes before compression.

    Record i belongs to the frame `owners[i]`.
    """

    def __init__(self, topic: str, partition: int, limit: int) -> None:
        self.topic = topic
        self.partition = partition
        self.owners: list[InFlightFrame] = []
        self._limit = limit
        self._builder = BatchBuilder()
        self._in_doubt = False

    def __len__(self) -> int:
        return len(self.owners)

    def add(self, record: bytes, owner: InFlightFrame) -> bool:
        """Adds a record. Returns False when it does not fit."""
        if not self._builder.add(record, owner.received_ms, self._limit):
            return False
        self.owners.append(owner)
        return True

    def extend(self, parts: list[Any], start: int, owner: InFlightFrame) -> int:
        """Adds records of one owner from `parts[start]` on. Returns the index of the first part that is a reject or does
        not fit.
        """
        end = self._builder.extend(parts, start, owner.received_ms, self._limit)
        self.owners += [owner] * (end - start)
        return end

    def sealed(self) -> BatchBuilder:
        """Returns the records as a sealed batch."""
        self._builder.seal()
        return self._builder

    def doubt(self) -> int:
        """Marks the records: Kafka may or may not have stored them. Returns how many are marked for the first time."""
        if self._in_doubt:
            return 0
        self._in_doubt = True
        self._fill([(republished(record), owner) for record, owner in self.pairs()])
        return len(self)

    def pairs(self) -> list[tuple[bytes, InFlightFrame]]:
        """Returns each record with its frame."""
        return list(zip(self._builder.events(), self.owners, strict=True))

    def halves(self) -> Iterator[Batch]:
        """Splits this batch in two; the halves are in doubt if it is."""
        pairs, middle = self.pairs(), len(self) // 2
        for span in (slice(middle), slice(middle, None)):
            half = Batch(self.topic, self.partition, UNLIMITED)
            half._in_doubt = self._in_doubt
            half._fill(pairs[span])
            yield half

    def _fill(self, pairs: list[tuple[bytes, InFlightFrame]]) -> None:
        """Replaces the records."""
        self.owners = [owner for _, owner in pairs]
        self._builder = builder_of((record, owner.received_ms) for record, owner in pairs)


@dataclass(eq=False, slots=True)
class Cycle:
    """A batch of events, the rejects between them, and the frames they belong to: one is stored at a time."""

    batch: Batch | None
    """None: Kafka has stored it."""
    limit: int
    """Bytes of its batch, and of its rejects."""
    rejects: list[tuple[InFlightFrame, Reject]] = field(default_factory=list)
    reject_bytes: int = 0
    rejects_in_doubt: bool = False
    """Kafka may have stored some of the rejects."""
    frames: dict[InFlightFrame, None] = field(default_factory=dict)
    """Frames with parts in this cycle, or that end with it."""
    whole: bool = False
    """It holds the end of a frame: a client waits for it."""
    full: bool = False
    """The next part did not fit, or waits for the next cycle."""

    def add_some(self, owner: InFlightFrame) -> bool:
        """Moves the parts that a frame has made here, as far as they fit. Returns whether these were its last."""
        batch, parts, at = self.batch, owner.made, 0
        assert batch is not None
        if len(parts) == 1 and type(part := parts[0]) is bytes and batch.add(part, owner):  # the usual small frame
            at = 1
        while at < len(parts):
            at = batch.extend(parts, at, owner)
            if at == len(parts):
                break
            part = parts[at]
            if not isinstance(part, Reject) or self.reject_bytes >= self.limit:
                self.full = True
                break
            self.rejects.append((owner, part))
            self.reject_bytes += len(part) + REJECT_OVERHEAD
            at += 1
        whole = owner.exhausted and at == len(parts)
        if at or whole:
            self.frames[owner] = None
            owner.built += at
            del parts[:at]
        self.whole = self.whole or whole
        return whole

    def living(self) -> list[InFlightFrame]:
        """Returns the frames that are not abandoned."""
        return [frame for frame in self.frames if not frame.abandoned]

    def deadline(self) -> float:
        """Returns the latest deadline of its living frames: after it no client waits. In the past if there are none."""
        return max([frame.deadline for frame in self.frames if not frame.abandoned], default=0.0)
