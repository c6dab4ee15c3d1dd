"""Java's modified UTF-8, as `DataOutput.writeUTF` writes it.

U+0000 is C0 80, and a character above U+FFFF is two surrogates of three bytes each. Java reads overlong forms, too, but writes
none: only C0 80 is read here.
"""

from __future__ import annotations

import struct

from headrace_common.operations.errors import ProtocolError

LONGEST = 0xFFFF
_AT_MOST_THREE = bytes(range(0xF0))  # bytes of characters of at most three


def read_text(data: bytes) -> str:
    """Reads a text. Raises `ProtocolError` for other bytes, and for half a surrogate pair: Kafka could not hold it as a key.

    Takes well below a millisecond for the longest text: in a loop over its bytes it took ten, and others would have waited.
    """
    if data.isascii():
        return data.decode("ascii")
    try:
        if data.translate(None, _AT_MOST_THREE):
            raise ProtocolError("a text that is no modified UTF-8")
        units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ProtocolError("a text that is no modified UTF-8") from error
    try:
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise ProtocolError("a text with half a surrogate pair") from error


def write_text(text: str) -> bytes:
    """Writes a text. Raises ValueError if it is longer than 65,535 bytes, or no text."""
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
