"""Kafka's record, version 2 (KIP-98), written by hand.

A record is `length, attributes, timestamp delta, offset delta, key, value, headers`. Only the fields before the key depend on
the batch. So an event is encoded once, when it is built, from the key on, and a batch only puts a few bytes before it.
"""

from __future__ import annotations

from typing import Final

Header = tuple[str, bytes]

KEYLESS: Final = b"\x01"  # the length -1


def varint(number: int) -> bytes:
    """Encodes a zigzag varint, as in Protocol Buffers; at most 64 bits."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT: Final = tuple(varint(number) for number in range(8192))
"""The varints of short lengths and low offsets."""


def length(number: int) -> bytes:
    """Returns the varint of a length, from a table if it is short."""
    return SHORT[number] if number < 8192 else varint(number)


def field(data: bytes) -> bytes:
    """Encodes bytes with their length before them."""
    return length(len(data)) + data


def header(key: str, value: bytes) -> bytes:
    """Encodes one record header."""
    return field(key.encode()) + field(value)


def encode(value: bytes, headers: list[Header]) -> bytes:
    """Encodes the part of a keyless record that does not depend on its batch: value and headers."""
    return b"".join((field(value), length(len(headers)), *(header(key, text) for key, text in headers)))


def lay(events: list[bytes], stamp: bytes, offset: int, key: bytes = KEYLESS) -> bytes:
    """Returns records of a batch, one after the other: of outputs of `encode`.

    `stamp`: their attributes and timestamp; `offset`: of the first in its batch; `key`: with its length before it.
    """
    pieces: list[bytes] = []
    for number, event in enumerate(events, offset):
        head = stamp + length(number) + key
        pieces += (length(len(head) + len(event)), head, event)
    return b"".join(pieces)


def decode(event: bytes) -> tuple[bytes, list[Header]]:
    """Decodes value and headers from the output of `encode`."""
    value, at = _read_field(event, 0)
    count, at = read_varint(event, at)
    headers = []
    for _ in range(count):
        key, at = _read_field(event, at)
        text, at = _read_field(event, at)
        headers.append((key.decode(), text))
    return value, headers


def _read_field(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_varint(data, at)
    return data[at : at + size], at + size


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Returns the number at offset `at`, and the offset after it."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
