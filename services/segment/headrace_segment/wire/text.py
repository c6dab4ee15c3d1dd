"""Java's modified UTF-8, as `DataOutput.writeUTF` writes it.

U+0000 is C0 80, and a character above U+FFFF is two surrogates of three bytes each. Java reads overlong forms too, so they are
read here; what is written is always the shortest form.
"""

from __future__ import annotations

import struct

from headrace_common.operations.errors import ProtocolError

LONGEST = 0xFFFF


def read_text(data: bytes) -> str:
    """Raises `ProtocolError` for what Java would not read, and for half a surrogate pair: Kafka could not hold it as a key."""
    if data.isascii():
        return data.decode("ascii")
    units = list(_units(data))
    try:
        return struct.pack(f">{len(units)}H", *units).decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise ProtocolError("a text with half a surrogate pair") from error


def _units(data: bytes) -> list[int]:
    """The UTF-16 units."""
    units = []
    at, end = 0, len(data)
    while at < end:
        first = data[at]
        if first < 0x80:
            size, unit = 1, first
        elif first & 0xE0 == 0xC0:
            size, unit = 2, first & 0x1F
        elif first & 0xF0 == 0xE0:
            size, unit = 3, first & 0x0F
        else:
            raise ProtocolError("a text that is no modified UTF-8")
        if at + size > end:
            raise ProtocolError("a text that ends inside a character")
        for more in data[at + 1 : at + size]:
            if more & 0xC0 != 0x80:
                raise ProtocolError("a text that is no modified UTF-8")
            unit = unit << 6 | more & 0x3F
        units.append(unit)
        at += size
    return units


def write_text(text: str) -> bytes:
    """Raises ValueError for what is longer than 65,535 bytes, or no text."""
    encoded = bytearray()
    packed = text.encode("utf-16-be")
    for (unit,) in struct.iter_unpack(">H", packed):
        if 0 < unit < 0x80:
            encoded.append(unit)
        elif unit < 0x800:
            encoded += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            encoded += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    if len(encoded) > LONGEST:
        raise ValueError(f"a text of {len(encoded)} bytes")
    return bytes(encoded)
