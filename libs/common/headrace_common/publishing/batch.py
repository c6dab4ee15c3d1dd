"""Batches: records on their way to one partition, kept until Kafka has stored them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace_common.publishing.in_flight_frame import InFlightFrame
from headrace_common.record.contract import REPUBLISHED
from headrace_common.record.encoding import UNLIMITED, BatchBuilder, builder_of, decode, encode
from headrace_common.record.event import Part


def republished(record: bytes) -> bytes:
    """The same record, marked as sent again by a fresh producer: the lake then checks its id, deterministic or not."""
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
        self._unbuilt: list[bytes] = []  # while there is no builder
        self._limit = limit
        self._builder: BatchBuilder | None = BatchBuilder()
        self._in_doubt = False

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def records(self) -> list[bytes]:
        """The records, as a new list. A sealed batch unpacks them: they are seldom needed again, and would otherwise take
        five times as many bytes.
        """
        return self._unbuilt if self._builder is None else self._builder.events()

    @property
    def size(self) -> int:
        """Bytes of the batch: before compression until it is sealed, compressed afterwards."""
        return 0 if self._builder is None else self._builder.size()

    def add(self, record: bytes, owner: InFlightFrame) -> bool:
        """Adds a record. Returns False when it does not fit."""
        return self.extend([record], 0, owner) == 1

    def extend(self, parts: Sequence[Part | bytes], start: int, owner: InFlightFrame) -> int:
        """Adds records of one owner from `parts[start]` on. Returns the index of the first part that is a reject or does
        not fit.
        """
        builder = self._builder
        assert builder is not None
        end = builder.extend(parts, start, owner.frame.received_ms, self._limit)
        self.owners += [owner] * (end - start)
        return end

    def sealed(self) -> BatchBuilder:
        """The records as a sealed batch; recompressed only when they have changed."""
        if self._builder is None:
            stamps = (owner.frame.received_ms for owner in self.owners)
            self._builder = builder_of(zip(self._unbuilt, stamps, strict=True))
            self._unbuilt = []
        self._builder.seal()
        return self._builder

    def doubt(self) -> int:
        """Marks the records: Kafka may or may not have stored them. Returns how many are marked for the first time."""
        if self._in_doubt:
            return 0
        self._in_doubt = True
        self._replace(zip(map(republished, self.records), self.owners, strict=True))
        return len(self)

    def has_dead(self) -> bool:
        """Whether a frame with records here was abandoned."""
        return any(owner.dead for owner in self.owners)

    def drop_dead(self) -> None:
        """Drops the records of abandoned frames."""
        if self.has_dead():
            self._replace(pair for pair in zip(self.records, self.owners, strict=True) if not pair[1].dead)

    def clear(self) -> None:
        """Drops all records: they are stored."""
        self._unbuilt, self.owners, self._builder = [], [], None

    def halves(self) -> Iterator[Batch]:
        """Splits this batch in two; the halves are in doubt if it is."""
        records, middle = self.records, len(self) // 2
        for span in (slice(middle), slice(middle, None)):
            half = Batch(self.topic, self.partition, UNLIMITED)
            half._in_doubt = self._in_doubt
            half._replace(zip(records[span], self.owners[span], strict=True))
            yield half

    def _replace(self, pairs: Iterable[tuple[bytes, InFlightFrame]]) -> None:
        kept = list(pairs)
        self._unbuilt = [record for record, _ in kept]
        self.owners = [owner for _, owner in kept]
        self._builder = None
