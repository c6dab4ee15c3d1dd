"""Lots: records on their way to one partition, kept until Kafka has stored them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headrace_common.consignment import Consignment
from headrace_common.event import Attribute, Part
from headrace_common.record import UNLIMITED, Batch, batch_of, decode, encode

REPUBLISHED: Final = b'"%b":true}' % Attribute.REPUBLISHED.value.encode()


def republished(record: bytes) -> bytes:
    """The same record, marked as sent again by a fresh producer: the lake looks its id up whatever its kind."""
    value, headers = decode(record)
    key, last = headers[-1]
    if key not in ("ce_attributes", "attributes"):
        return encode(value, [*headers, ("ce_attributes", b"{" + REPUBLISHED)])
    if last.endswith(REPUBLISHED):
        return record
    separator = b"" if last == b"{}" else b","
    return encode(value, [*headers[:-1], (key, last[:-1] + separator + REPUBLISHED)])


class Lot:
    """Encoded records for one partition that are sent in one batch of at most `limit` bytes before compression.

    Record i belongs to the frame `owners[i]`.
    """

    def __init__(self, topic: str, partition: int, limit: int) -> None:
        self.topic = topic
        self.partition = partition
        self.owners: list[Consignment] = []
        self._unbatched: list[bytes] = []  # while there is no batch
        self._limit = limit
        self._batch: Batch | None = Batch()
        self._in_doubt = False

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def records(self) -> list[bytes]:
        """The records, a list of their own. Of a sealed batch they are unpacked: seldom are they wanted again, and meanwhile
        they would hold five times as many bytes.
        """
        return self._unbatched if self._batch is None else self._batch.events()

    @property
    def size(self) -> int:
        """Bytes of the batch, before compression until it is sealed."""
        return 0 if self._batch is None else self._batch.size()

    def add(self, record: bytes, owner: Consignment) -> bool:
        """Adds a record; False when it does not fit any more."""
        return self.extend([record], 0, owner) == 1

    def extend(self, parts: Sequence[Part], start: int, owner: Consignment) -> int:
        """Adds records of one owner from `parts[start]` on, up to what is none or does not fit any more: where it stopped."""
        batch = self._batch
        assert batch is not None
        end = batch.extend(parts, start, owner.frame.received_ms, self._limit)
        self.owners += [owner] * (end - start)
        return end

    def batch(self) -> Batch:
        """The records as a sealed batch; compressed again only when they have changed."""
        if self._batch is None:
            stamps = (owner.frame.received_ms for owner in self.owners)
            self._batch = batch_of(zip(self._unbatched, stamps, strict=True))
            self._unbatched = []
        self._batch.seal()
        return self._batch

    def doubt(self) -> int:
        """Kafka may or may not have stored these: from now on they are marked. How many are marked for the first time."""
        if self._in_doubt:
            return 0
        self._in_doubt = True
        self._replace(zip(map(republished, self.records), self.owners, strict=True))
        return len(self)

    def drop_dead(self) -> None:
        """Forgets the records of frames that were given up."""
        if any(owner.dead for owner in self.owners):
            self._replace(pair for pair in zip(self.records, self.owners, strict=True) if not pair[1].dead)

    def clear(self) -> None:
        """Forgets all records: they are stored."""
        self._unbatched, self.owners, self._batch = [], [], None

    def halves(self) -> Iterator[Lot]:
        """Two lots that are this one together; in doubt if this one is."""
        records, middle = self.records, len(self) // 2
        for span in (slice(middle), slice(middle, None)):
            half = Lot(self.topic, self.partition, UNLIMITED)
            half._in_doubt = self._in_doubt
            half._replace(zip(records[span], self.owners[span], strict=True))
            yield half

    def _replace(self, pairs: Iterable[tuple[bytes, Consignment]]) -> None:
        kept = list(pairs)
        self._unbatched = [record for record, _ in kept]
        self.owners = [owner for _, owner in kept]
        self._batch = None
