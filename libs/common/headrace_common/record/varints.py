"""Kafka's variable-length integers: zigzag, as in Protocol Buffers."""

from __future__ import annotations

from typing import Final


def varint(number: int) -> bytes:
    """Encodes a zigzag varint, as in Protocol Buffers; at most 64 bits."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = tuple(varint(number) for number in range(2048))


def length(number: int) -> bytes:
    """The varint of a length, from a table if it is short."""
    return _SMALL[number] if number < 2048 else varint(number)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at offset `at`, and the offset after it."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
