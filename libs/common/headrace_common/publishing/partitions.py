"""Which partition a frame's ordering key belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from aiokafka.partitioner import murmur2

CACHED_KEY: Final = 256
"""Longest key in bytes whose hash is cached: clients choose the keys, and the cache must stay small."""


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of `key`: murmur2 without its sign bit, modulo the partitions' number, as in Kafka's own clients."""
    return (_cached(key) if len(key) <= CACHED_KEY else _hash(key)) % partitions


def _hash(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFFFFFF


_cached = lru_cache(maxsize=16_384)(_hash)
