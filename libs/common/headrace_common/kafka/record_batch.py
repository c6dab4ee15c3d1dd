"""Kafka's record batch, version 2 (KIP-98), written by hand: each event is one bytes object, and a batch can be halved."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from aiokafka.record.util import calc_crc32c

from headrace_common.record import native
from headrace_common.record.encoding import KEYLESS, SHORT, read_varint, varint
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


def compressed(plain: bytes) -> bytes:
    """Returns records as a frame of zstd."""
    return _compressor.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)


_OFFSETS: Final = tuple(varint(number) + KEYLESS for number in range(8192))

WORTH_NATIVE: Final = 4
"""Events for which a call of the native core costs less than laying them out here."""


class BatchBuilder:
    """Builds one record batch from encoded records.

    `seal` compresses the records once. A producer's identity is only in the header: it is stamped on a sealed batch.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._count = 0
        self._size = 0
        self._first_timestamp = 0
        self._last_timestamp = 0
        self._stamp = -1
        self._before = b""
        self._body: bytes | None = None
        self._attributes = 0

    def add(self, event: bytes, timestamp: int, limit: int, key: bytes = KEYLESS) -> bool:
        """Appends one record if it fits, like `extend`. Returns whether it did. `key`: with its length before it."""
        if timestamp != self._stamp:
            self._begin(timestamp)
        count, stamp = self._count, self._before
        offset = _OFFSETS[count] if count < 8192 and key is KEYLESS else varint(count) + key
        size = len(stamp) + len(offset) + len(event)
        before = (SHORT[size] if size < 2048 else varint(size)) + stamp + offset
        total = self._size + len(before) + len(event)
        if total > limit and count:
            return False
        self._pieces += (before, event)
        self._size, self._count = total, count + 1
        return True

    def _begin(self, timestamp: int) -> None:
        """Gives the next records this time."""
        if not self._count:
            self._first_timestamp = timestamp
        self._stamp = timestamp
        self._last_timestamp = max(self._last_timestamp, timestamp)
        self._before = b"\0" + varint(timestamp - self._first_timestamp)

    def extend(self, events: list[Any], start: int, timestamp: int, limit: int) -> int:
        """Appends records from `events[start]` on: outputs of `encode`, with the Unix time `timestamp` in milliseconds.

        Stops at an item that is not bytes, or that would make the batch exceed `limit` bytes before compression, and returns
        its index. The first record always fits.
        """
        at = start
        if len(events) - start >= WORTH_NATIVE:
            if timestamp != self._stamp:
                self._begin(timestamp)
            room = max(0, limit - self._size)
            laid, at = native.core.lay(events, start, self._before, self._count, room)
            self._pieces.append(laid)
            self._size += len(laid)
            self._count += at - start
        while at < len(events) and type(event := events[at]) is bytes and self.add(event, timestamp, limit):
            at += 1
        return at

    def seal(self) -> None:
        """Compresses the records, unless that would not make them smaller. Takes about 3 ns per byte."""
        if self._body is None:
            plain, self._pieces = b"".join(self._pieces), []
            packed = compressed(plain)
            self._body, self._attributes = (packed, ZSTD) if len(packed) < len(plain) else (plain, 0)

    def events(self) -> list[bytes]:
        """Returns the records in order, unpacked."""
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
        """Returns the bytes of the batch; once it is sealed, as sent."""
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
