"""Records, and the batches that they are sent in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from headrace_common.event import Attribute, Header

if TYPE_CHECKING:
    from headrace_common.pump import Consignment

REPUBLISHED: Final = b'"%b":true}' % Attribute.REPUBLISHED.value.encode()


class Record(NamedTuple):
    """One Kafka record, and the frame that it belongs to."""

    headers: list[Header]
    value: bytes
    timestamp: int
    owner: Consignment

    def republished(self) -> Record:
        """The same record, marked as sent again by a fresh producer: the lake looks its id up whatever its kind."""
        *head, (key, last) = self.headers
        if key in ("ce_attributes", "attributes"):
            if last.endswith(REPUBLISHED):
                return self
            separator = b"" if last == b"{}" else b","
            return self._replace(headers=[*head, (key, last[:-1] + separator + REPUBLISHED)])
        return self._replace(headers=[*self.headers, ("ce_attributes", b"{" + REPUBLISHED)])


class Batch(BatchBuilder):  # type: ignore[misc]  # aiokafka has no types
    """A record batch that grows record by record. `limit`: bytes before compression; one record always fits."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, DefaultRecordBatch.CODEC_ZSTD)

    def add(self, headers: list[Header], value: bytes, timestamp: int) -> bool:
        """Appends a record; False when it does not fit any more. The same as `append`, without its general cases."""
        if self._builder.append(self._relative_offset, timestamp, None, value, headers) is None:
            return False
        self._relative_offset += 1
        return True


UNLIMITED: Final = 1 << 30


class Lot:
    """Records that are sent to one partition in one batch, kept until Kafka has stored them.

    The batch that was filled is used for the first attempt; later ones are built anew from the records, because a batch
    carries its producer's identity.
    """

    def __init__(self, topic: str, partition: int, limit: int) -> None:
        self.topic = topic
        self.partition = partition
        self.records: list[Record] = []
        self._batch: Batch | None = Batch(limit)
        self._in_doubt = False

    @classmethod
    def of(cls, topic: str, partition: int, records: Iterable[Record]) -> Lot:
        """A lot of exactly `records`."""
        lot = cls(topic, partition, UNLIMITED)
        for record in records:
            lot.add(record)
        return lot

    def __len__(self) -> int:
        return len(self.records)

    def add(self, record: Record) -> bool:
        """Adds a record; False when the batch is full."""
        assert self._batch is not None
        if not self._batch.add(record.headers, record.value, record.timestamp):
            return False
        self.records.append(record)
        return True

    def take_batch(self) -> Batch:
        """The batch to send now. Once it was sent and not answered, the records count as in doubt: see `doubt`."""
        batch, self._batch = self._batch, None
        return batch or self._build()

    def doubt(self) -> int:
        """Kafka may or may not have stored these: from now on they are marked. How many are marked now for the first time."""
        if self._in_doubt:
            return 0
        self._in_doubt = True
        self._batch = None
        self.records = [record.republished() for record in self.records]
        return len(self.records)

    def drop_dead(self) -> None:
        """Forgets the records of frames that were given up."""
        alive = [record for record in self.records if not record.owner.dead]
        if len(alive) != len(self.records):
            self.records = alive
            self._batch = None

    def halves(self) -> Iterator[Lot]:
        """Two lots that are this one together. In doubt if this one is."""
        middle = len(self.records) // 2
        for records in (self.records[:middle], self.records[middle:]):
            half = Lot.of(self.topic, self.partition, records)
            half._in_doubt = self._in_doubt
            yield half

    def fits(self, max_message_bytes: int) -> bool:
        """Whether the finished batch is within the topic's limit. Compresses only where that is open."""
        batch = self._batch = self._batch or self._build()
        if batch.size() <= max_message_bytes:
            return True
        return len(self._build()._build()) <= max_message_bytes

    def _build(self) -> Batch:
        batch = Batch(UNLIMITED)
        for record in self.records:
            batch.add(record.headers, record.value, record.timestamp)
        return batch
