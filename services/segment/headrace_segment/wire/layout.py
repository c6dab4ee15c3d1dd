"""Bodies of messages, field by field: the types of a message's fields define how it is read and written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

from headrace_common.operations.errors import ProtocolError

from headrace_segment.wire.codes import Kind, message
from headrace_segment.wire.text import read_text, write_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field:
    """How a field is read and written. `read` gives its value and where the next field begins."""

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


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


def _boolean() -> Field:
    byte = _fixed(">B")

    def read(body: bytes, at: int) -> tuple[Any, int]:
        value, at = byte.read(body, at)
        return value != 0, at

    return Field(read, lambda value: byte.write(int(value)))


I32 = Annotated[int, _fixed(">i")]
I64 = Annotated[int, _fixed(">q")]
BYTE = Annotated[int, _fixed(">B")]
BOOLEAN = Annotated[bool, _boolean()]
UUID = Annotated[bytes, _fixed(">16s")]
"""Its 16 bytes in the order of its text."""

TEXT = Annotated[str, _counted(_fixed(">H"), read_text, write_text)]
DATA = Annotated[bytes, _counted(_fixed(">i"), bytes, bytes)]
REST = Annotated[bytes, Field(lambda body, at: (body[at:], len(body)), bytes)]
"""All further bytes."""


class Layout:
    """One message: its kind, its class, and its fields in the order of the class's own.

    `grows`: fields with a default may be missing at the end, and unknown ones may follow, as today's dialect grows.
    """

    def __init__(self, kind: Kind, message_type: type[Any], *, grows: bool) -> None:
        self.kind = kind
        self.message_type = message_type
        types = get_type_hints(message_type, include_extras=True)
        self._fields = tuple(
            (each.name, types[each.name].__metadata__[0], each.default) for each in fields(message_type)
        )
        self._grows = grows

    def decode(self, body: bytes) -> Any:
        """Decodes a message's body. Raises `ProtocolError`."""
        values = []
        at = 0
        for _, field, default in self._fields:
            if self._grows and at == len(body) and default is not MISSING:
                value: Any = default
            else:
                value, at = field.read(body, at)
            values.append(value)
        if at < len(body) and not self._grows:
            raise ProtocolError(f"{len(body) - at} bytes too many in {self.message_type.__name__}")
        return self.message_type(*values)

    def encode(self, value: Any) -> bytes:
        """Returns the whole message."""
        return message(self.kind, b"".join(field.write(getattr(value, name)) for name, field, _ in self._fields))


class Table:
    """All messages of a dialect that have a layout."""

    def __init__(self, *, grows: bool) -> None:
        self.grows = grows
        self._by_kind: dict[int, Layout] = {}
        self._by_type: dict[type[Any], Layout] = {}

    def add(self, layout: Layout) -> None:
        """Adds a message."""
        self._by_kind[layout.kind] = self._by_type[layout.message_type] = layout

    def __contains__(self, kind: int) -> bool:
        return kind in self._by_kind

    def decode(self, kind: int, body: bytes) -> Any:
        """Returns a message of either side. Raises `ProtocolError`."""
        layout = self._by_kind.get(kind)
        if layout is None:
            raise ProtocolError(f"a message of type {kind}")
        return layout.decode(body)

    def encode(self, value: Any) -> bytes:
        """Returns the whole message."""
        return self._by_type[type(value)].encode(value)


@dataclass_transform(frozen_default=True)
def wire(table: Table, kind: Kind) -> Callable[[type[T]], type[T]]:
    """Makes a class a frozen dataclass and a message of a dialect. Its fields' types say how each is read and written."""

    def decorate(message_type: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True)(message_type)
        table.add(Layout(kind, made, grows=table.grows))
        return made

    return decorate
