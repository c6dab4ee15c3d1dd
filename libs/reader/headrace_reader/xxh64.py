"""xxHash, 64 bits, of many values at once, as Spark's `xxhash64` chains it over columns: each hash is the seed of the next.

Written after the specification of XXH64 (github.com/Cyan4973/xxHash). NumPy does each step for all rows that take it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

Words = np.ndarray[Any, np.dtype[np.uint64]]

_PRIMES: Final = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, _PRIMES)
_LANES: Final = np.array(
    [(each % (1 << 64)) for each in (_PRIMES[0] + _PRIMES[1], _PRIMES[1], 0, -_PRIMES[0])], np.uint64
)
SEED: Final = np.uint64(42)
"""The seed that Spark's function begins with."""
_STRIPE: Final = 32


def of_longs(values: Words, seed: Words) -> Words:
    """Returns the hashes of whole numbers of 64 bits."""
    mixed = (seed + _P5 + np.uint64(8)) ^ (_turned(values * _P2, 31) * _P1)
    return _avalanche(_turned(mixed, 27) * _P1 + _P4)


def of_ints(values: Words, seed: Words) -> Words:
    """Returns the hashes of whole numbers of 32 bits, given as 64."""
    mixed = (seed + _P5 + np.uint64(4)) ^ ((values & np.uint64(0xFFFFFFFF)) * _P1)
    return _avalanche(_turned(mixed, 23) * _P2 + _P3)


def of_texts(column: pa.Array, seed: Words) -> Words:
    """Returns the hashes of texts or bytes; a row without a value keeps its seed."""
    start, length, data = _laid_out(column)
    order = np.argsort(-length, kind="stable")
    hashed = np.empty_like(seed)
    hashed[order] = _sorted(data, start[order], length[order], seed[order])
    return np.where(column.is_null().to_numpy(zero_copy_only=False), seed, hashed)


def _laid_out(column: pa.Array) -> tuple[Any, Any, Any]:
    """Returns (start, length, bytes) of each value; the bytes go on a little after the last."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64 if large else np.int32, len(column) + 1, column.offset * (8 if large else 4))
    ends = ends.astype(np.int64)
    own = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.uint8)
    return ends[:-1] - ends[0], np.diff(ends), np.concatenate((own, np.zeros(8, np.uint8)))


def _sorted(data: Any, start: Any, length: Any, seed: Words) -> Words:
    """Returns the hashes of values whose lengths fall."""
    # each word at each byte: a copy, so that it need not be aligned
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    halves = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    long = _at_least(length, _STRIPE)
    hashed = seed + _P5
    hashed[:long] = _striped(words, start[:long], length[:long], seed[:long])
    hashed += length.astype(np.uint64)
    at, left = start + (length & -_STRIPE), length & (_STRIPE - 1)
    while (rows := np.flatnonzero(left >= 8)).size:
        mixed = hashed[rows] ^ (_turned(words[at[rows]] * _P2, 31) * _P1)
        hashed[rows] = _turned(mixed, 27) * _P1 + _P4
        at[rows] += 8
        left[rows] -= 8
    if (rows := np.flatnonzero(left >= 4)).size:
        mixed = hashed[rows] ^ (halves[at[rows]].astype(np.uint64) * _P1)
        hashed[rows] = _turned(mixed, 23) * _P2 + _P3
        at[rows] += 4
        left[rows] -= 4
    while (rows := np.flatnonzero(left)).size:
        mixed = hashed[rows] ^ (data[at[rows]].astype(np.uint64) * _P5)
        hashed[rows] = _turned(mixed, 11) * _P1
        at[rows] += 1
        left[rows] -= 1
    return _avalanche(hashed)


def _striped(words: Any, start: Any, length: Any, seed: Words) -> Words:
    """Hashes the stripes of 32 bytes, four words side by side."""
    lanes = seed[:, None] + _LANES
    within = np.arange(0, _STRIPE, 8)
    most = int(length[0]) // _STRIPE if len(length) else 0
    for number, rows in enumerate(_at_least(length, _STRIPE * np.arange(1, most + 1))):
        read = words[start[:rows, None] + (_STRIPE * number + within)]
        lanes[:rows] = _turned(lanes[:rows] + read * _P2, 31) * _P1
    hashed = _turned(lanes[:, 0], 1) + _turned(lanes[:, 1], 7) + _turned(lanes[:, 2], 12) + _turned(lanes[:, 3], 18)
    for lane in range(4):
        hashed = (hashed ^ (_turned(lanes[:, lane] * _P2, 31) * _P1)) * _P1 + _P4
    return hashed


def _at_least(falling: Any, least: Any) -> Any:
    """Returns how many of the `falling` lengths are at least `least`: a number, or one for each of several."""
    return np.searchsorted(-falling, -least, side="right")


def _turned(values: Words, bits: int) -> Words:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(values: Words) -> Words:
    values = (values ^ (values >> np.uint64(33))) * _P2
    values = (values ^ (values >> np.uint64(29))) * _P3
    return values ^ (values >> np.uint64(32))
