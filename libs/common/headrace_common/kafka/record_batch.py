"""Kafka's record batch, version 2 (KIP-98), written by hand: each event is one bytes object, and a batch can be halved."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from aiokafka.record.util import calc_crc32c

from headrace_common.record import native
from headrace_common.record.encoding import KEYLESS, lay, read_varint, varint
from headrace_common.session.inflate import zstd

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and last timestamp, producer id,
producer epoch, base sequence, number of records."""

AFTER_LENGTH: Final = 12  # the length does not count the base offset and itself
ATTRIBUTES_AT: Final = 21  # the CRC covers everything from here on
CRC_AT: Final = 17
MAGIC: Final = 2
ZSTD: Final = 4

UNLIMITED: Final = 1 << 30

_Zstd = zstd.CompressionParameter

# Level 3 takes a fifth more time, for events of 2 KB two fifths, and makes a batch one hundredth smaller, or not at all. Window
# and tables stay in the CPU cache: a fifth less time than with the level's own, and a batch of up to one fortieth more bytes,
# mostly fewer. The level's strategy is another for 128 to 256 KiB, which takes a quarter more time for no fewer bytes. Kept,
# because making one takes as long as compressing two to ten events.
_compressor: Final = zstd.ZstdCompressor(
    options={
        _Zstd.compression_level: 2,
        _Zstd.window_log: 18,
        _Zstd.hash_log: 15,
        _Zstd.min_match: 5,
        _Zstd.strategy: zstd.Strategy.fast,
    }
)


RECORD_OVERHEAD: Final = 16
"""Bytes of a record before its value and headers, as the limit of a batch counts them: at most, with clocks that go right."""


class BatchBuilder:
    """Builds one record batch from encoded records.

    `seal` lays out and compresses the records once. A producer's identity is only in the header: it is stamped on a sealed batch.
    """

    def __init__(self, key: bytes = KEYLESS) -> None:
        """`key`: of all records, with its length before it; empty if each begins with its own."""
        self._key = key
        self._pieces: list[bytes] = []
        self._waiting: list[bytes] = []  # records of one time, not laid out yet
        self._count = 0
        self._size = 0
        self._first_timestamp = 0
        self._last_timestamp = 0
        self._stamp = -1
        self._body: bytes | None = None
        self._attributes = 0

    def add(self, event: bytes, timestamp: int, limit: int) -> bool:
        """Appends one record if it fits, like `extend`. Returns whether it did."""
        size = self._size + len(event) + RECORD_OVERHEAD
        if size > limit and self._count:
            return False
        if timestamp != self._stamp:
            self._begin(timestamp)
        self._waiting.append(event)
        self._size, self._count = size, self._count + 1
        return True

    def extend(self, events: list[Any], start: int, timestamp: int, limit: int) -> int:
        """Appends records from `events[start]` on: outputs of `encode`, with the Unix time `timestamp` in milliseconds.

        Stops at an item that is not bytes, or that would make the batch exceed `limit` bytes before compression, and returns
        its index. The first record always fits.
        """
        at, many = start, len(events) - start
        while many > 1:
            some = events[at : at + many]
            size = self._size + sum(map(len, some)) + RECORD_OVERHEAD * len(some)
            if size > limit or {*map(type, some)} != {bytes}:
                many //= 2
                continue
            if timestamp != self._stamp:
                self._begin(timestamp)
            self._waiting += some
            self._size, self._count = size, self._count + many
            at += many
            many = min(many, len(events) - at)
        while at < len(events) and type(event := events[at]) is bytes and self.add(event, timestamp, limit):
            at += 1
        return at

    def _begin(self, timestamp: int) -> None:
        """Gives the next records this time."""
        self._lay()
        if not self._count:
            self._first_timestamp = timestamp
        self._stamp = timestamp
        self._last_timestamp = max(self._last_timestamp, timestamp)

    def _lay(self) -> None:
        """Lays out the records that wait."""
        if waiting := self._waiting:
            first, stamp = self._count - len(waiting), b"\0" + varint(self._stamp - self._first_timestamp)
            alike = self._key == KEYLESS
            laid = native.core.lay(waiting, stamp, first) if alike else lay(waiting, stamp, first, self._key)
            self._pieces.append(laid)
            self._waiting = []

    def seal(self) -> None:
        """Compresses the records, unless that would not make them smaller. Takes about 3 ns per byte."""
        if self._body is None:
            self._lay()
            plain, self._pieces = b"".join(self._pieces), []
            packed = _compressor.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)
            self._body, self._attributes = (packed, ZSTD) if len(packed) < len(plain) else (plain, 0)

    def events(self) -> list[bytes]:
        """Returns the records in order, unpacked."""
        self._lay()
        body = b"".join(self._pieces) if self._body is None else self._body
        plain = zstd.decompress(body) if self._attributes else body
        found, at = [], 0
        while at < len(plain):
            size, at = read_varint(plain, at)
            end = at + size
            _, at = read_varint(plain, at + 1)  # after the record's attributes: the timestamp
            _, at = read_varint(plain, at)  # the offset
            found.append(plain[at + len(KEYLESS) : end])
            at = end
        return found

    def stamped(self, producer_id: int, epoch: int, sequence: int) -> bytes:
        """Returns the batch as sent, with this identity and the number of its first record."""
        self.seal()
        assert self._body is not None
        buffer = bytearray(BATCH_HEADER.size) + self._body
        BATCH_HEADER.pack_into(
            buffer, 0, 0, len(buffer) - AFTER_LENGTH, 0, MAGIC, 0, self._attributes, self._count - 1,
            self._first_timestamp, self._last_timestamp, producer_id, epoch, sequence, self._count,
        )  # fmt: skip
        with memoryview(buffer) as view:
            struct.pack_into(">I", buffer, CRC_AT, calc_crc32c(view[ATTRIBUTES_AT:]))
        return bytes(buffer)

    def size(self) -> int:
        """Returns the bytes of the batch, at most; once it is sealed, as sent."""
        return BATCH_HEADER.size + (self._size if self._body is None else len(self._body))

    def record_count(self) -> int:
        """Returns the number of records."""
        return self._count


def builder_of(events: Iterable[tuple[bytes, int]]) -> BatchBuilder:
    """Builds a batch from (encoded record, timestamp) pairs."""
    batch = BatchBuilder()
    for event, timestamp in events:
        batch.add(event, timestamp, UNLIMITED)
    return batch
