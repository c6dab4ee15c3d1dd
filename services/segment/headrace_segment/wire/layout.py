"""Messages as data: a row of a dialect's table names a message's fields in their order, and each field says how it is read and
written.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError

from headrace_segment.wire.codes import message

# Texts are Java's modified UTF-8, as `DataOutput.writeUTF` writes it: U+0000 is C0 80, and a character above U+FFFF is two
# surrogates of three bytes each. Java reads overlong forms, too, but writes none: only C0 80 is read here.

LONGEST: Final = 0xFFFF
_AT_MOST_THREE: Final = bytes(range(0xF0))  # bytes of characters of at most three


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
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise ProtocolError("a text that is no modified UTF-8") from error


def write_text(text: str) -> bytes:
    """Writes a text. Raises ValueError if it is longer than 65,535 bytes, or no text."""
    units = "".join(chr(unit) for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")))
    encoded = units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(encoded) > LONGEST:
        raise ValueError(f"a text of {len(encoded)} bytes")
    return encoded


@dataclass(frozen=True, slots=True)
class Field:
    """How a field is read and written. `read` gives its value and where the next field begins. With a `default` it may be missing
    at a message's end, where the dialect allows that.
    """

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    default: Any = None

    def __call__(self, default: Any) -> Field:
        """Returns the field with a default."""
        return Field(self.read, self.write, default)


def _fixed(form: str) -> Field:
    packed = struct.Struct(form)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        if at + packed.size > len(body):
            raise ProtocolError("a message that ends inside a field")
        return packed.unpack_from(body, at)[0], at + packed.size

    return Field(read, packed.pack)


def _counted(length: Field, of: Callable[[bytes], Any], to: Callable[[Any], bytes]) -> Field:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        size, at = length.read(body, at)
        if size < 0 or at + size > len(body):
            raise ProtocolError("a field that is longer than its message")
        return of(body[at : at + size]), at + size

    def write(value: Any) -> bytes:
        data = to(value)
        return length.write(len(data)) + data

    return Field(read, write)


I32: Final = _fixed(">i")
I64: Final = _fixed(">q")
BYTE: Final = _fixed(">B")
BOOLEAN: Final = _fixed(">?")
UUID: Final = _fixed(">16s")
"""Its 16 bytes in the order of its text."""

TEXT: Final = _counted(_fixed(">H"), read_text, write_text)
DATA: Final = _counted(I32, bytes, bytes)
REST: Final = Field(lambda body, at: (body[at:], len(body)), bytes)
"""All further bytes."""


class Table:
    """The messages of a dialect. `grows`: fields with a default may be missing at the end, and unknown ones may follow."""

    def __init__(self, *, grows: bool) -> None:
        self._grows = grows
        self._by_kind: dict[int, tuple[type[Any], dict[str, Field]]] = {}
        self._kinds: dict[type[Any], int] = {}

    def row(self, kind: int, name: str, **fields: Field) -> type[Any]:
        """Adds a message. Returns its class, a frozen dataclass with these fields."""
        declared = [
            (each, Any, dataclasses.field(default=MISSING if field.default is None else field.default))
            for each, field in fields.items()
        ]
        made = dataclasses.make_dataclass(name, declared, frozen=True, slots=True)
        self._by_kind[kind], self._kinds[made] = (made, fields), kind
        return made

    def kind(self, value: Any) -> int:
        """Returns a message's type."""
        return self._kinds[type(value)]

    def make(self, kind: int, **values: Any) -> Any:
        """Returns a message with those of the values that the dialect has a field for."""
        made, fields = self._by_kind[kind]
        return made(**{name: value for name, value in values.items() if name in fields})

    def decode(self, kind: int, body: bytes) -> Any:
        """Returns a message of either side. Raises `ProtocolError`."""
        if kind not in self._by_kind:
            raise ProtocolError(f"a message of type {kind}")
        made, fields = self._by_kind[kind]
        values, at = [], 0
        for field in fields.values():
            if self._grows and at == len(body) and field.default is not None:
                value = field.default
            else:
                value, at = field.read(body, at)
            values.append(value)
        if at < len(body) and not self._grows:
            raise ProtocolError(f"{len(body) - at} bytes too many in {made.__name__}")
        return made(*values)

    def encode(self, value: Any) -> bytes:
        """Returns the whole message."""
        kind = self._kinds[type(value)]
        _, fields = self._by_kind[kind]
        return message(kind, b"".join(field.write(getattr(value, name)) for name, field in fields.items()))
