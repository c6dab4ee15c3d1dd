"""Checks events that arrive as JSON and pass through byte for byte: they must be JSON objects. Reads a few of their fields.

The check skips unwanted fields instead of building them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from headrace_common.record.contract import Note, Reason
from headrace_common.record.event import rfc3339
from headrace_common.record.json_text import PIECE, Bytes, letters_of, noted, object_of, readable, with_raw

T = TypeVar("T", bound=msgspec.Struct)
_Decode = Callable[[Bytes | msgspec.Raw], Any]

SHORT: Final = 16 << 10
"""Bytes of JSON that are looked through in one call, or between two pauses: at most a millisecond of work."""

TEXT_BYTES: Final = 16 << 10
"""Longest text of an event that is read: as a text of Python it may take four times its bytes."""

_ARRAY: Final = ord("[")
_TEXT: Final = ord('"')
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: +1 opens, -1 closes
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[{]}")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?[0-5]\d)", re.ASCII
)

DECIMALS: Final = 9
"""Decimals of a second that are kept; further ones are cut off."""


class Fault(NamedTuple):
    """Why bytes are not an event, for quarantine."""

    reason: Reason
    detail: str


class ReadEvent(NamedTuple, Generic[T]):
    """The wanted fields of an event, and its JSON in UTF-8. `raw`: the event as it was received; empty: it is the same."""

    fields: T
    value: Bytes
    raw: Bytes

    def attributes(self, others: bytes | None) -> bytes | None:
        """Returns `others`, an object as JSON, with what was received in it."""
        if not self.raw:
            return others
        before = [] if not others or others == b"{}" else [others[1:-1]]
        return object_of([*before, *noted((Note.INVALID_UTF8,), self.raw)])


@cache
def _decoders_of(wanted: type[msgspec.Struct]) -> tuple[_Decode, _Decode, Mapping[str, _Decode]]:
    """Returns the decoders of a struct, of its fields unparsed, and of each field by its name; each is made once."""
    fields = msgspec.structs.fields(wanted)
    raws = [
        (each.name, msgspec.Raw | msgspec.UnsetType, msgspec.field(default=msgspec.UNSET, name=each.encode_name))
        for each in fields
    ]
    by_name = {each.name: msgspec.json.Decoder(each.type).decode for each in fields}
    apart = msgspec.json.Decoder(msgspec.defstruct("Raws", raws)).decode
    return msgspec.json.Decoder(wanted).decode, apart, by_name


class JsonObject(Generic[T]):
    """Checks that bytes are one JSON object in UTF-8 (RFC 8259), at most `depth` deep, and reads the fields of `wanted`.

    `wanted`: a struct whose fields have defaults. A value of another type than its field's counts as absent, and so does a text
    of more than `TEXT_BYTES`, if the event is read in steps.
    """

    def __init__(self, wanted: type[T], depth: int) -> None:
        self._wanted = wanted
        self._whole, self._apart, self._fields = _decoders_of(wanted)
        self._depth = depth

    def quick(self, raw: bytes) -> T | None:
        """Returns the wanted fields of an ordinary event; None: it is unusual, or none. For at most `SHORT` bytes."""
        try:
            found: T = self._whole(raw)
            if not raw.isascii():
                raw.decode()  # the decoder does not check the texts that it skips
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return None if may_be_deep(raw, self._depth) else found

    def read(self, raw: Bytes, most: int) -> Generator[int, None, ReadEvent[T] | Fault]:
        """Returns any event, or why these bytes are none; yields between steps. Never raises.

        JSON with texts that are not UTF-8 is read as `readable` says. Then `most` bounds the bytes of the event and of what was
        received, together.
        """
        found = self._values(raw)
        if isinstance(found, Fault):
            return found
        value, received = raw, cast("Bytes", b"")
        if found is None or not (yield from is_utf8(raw)):
            value, received = bytearray(), raw
            for letters in letters_of(raw):
                value += readable(letters).encode()
                if with_raw(value, raw) > most:
                    detail = f"more than LIMITS__EVENT_BYTES ({most}) with its bytes, which are not UTF-8"
                    return Fault(Reason.OVERSIZED, detail)
                yield 0
            found = self._values(value)
            assert found is not None
            if isinstance(found, Fault):
                return found
        if (yield from deepest(value)) > self._depth:
            return self._too_deep()
        return ReadEvent(found, value, received)

    def _values(self, raw: Bytes) -> T | Fault | None:
        """Returns the fields that are wanted of JSON: those of their types, and numbers that Python can hold. None: one is not
        UTF-8. Only skipping the others is one call, at most 5 ns for each byte.
        """
        values: dict[str, Any] = {}
        try:
            raws = self._apart(raw)
            for name, decode in self._fields.items():
                value = getattr(raws, name)
                if value is not msgspec.UNSET and not (len(value) > TEXT_BYTES and memoryview(value)[0] == _TEXT):
                    with contextlib.suppress(msgspec.ValidationError):
                        values[name] = decode(value)
        except msgspec.ValidationError as error:
            return Fault(Reason.BAD_RECORD, str(error))
        except msgspec.DecodeError as error:
            return Fault(Reason.BAD_JSON, str(error))
        except UnicodeDecodeError:
            return None
        except RecursionError:  # the wanted field may come before the part that is too deep
            return self._too_deep()
        return self._wanted(**values)

    def _too_deep(self) -> Fault:
        return Fault(Reason.TOO_DEEP, f"nested deeper than {self._depth}")


def is_utf8(raw: Bytes) -> Generator[int, None, bool]:
    """Returns whether bytes are UTF-8; yields between steps."""
    for letters in letters_of(raw):
        try:
            letters.encode()
        except UnicodeEncodeError:
            return False
        yield 0
    return True


def may_be_deep(value: bytes, depth: int) -> bool:
    """Returns whether JSON text has more than `depth` opening brackets, also in texts. Only then it may be too deep.

    Removing them takes half the time of counting them, because searching a byte is fast and counting is not.
    """
    flat = value.replace(b"{", b"")
    if _ARRAY in flat:
        flat = flat.replace(b"[", b"")
    return len(value) - len(flat) > depth


def deepest(raw: Bytes) -> Generator[int, None, int]:
    """Returns the nesting depth of valid JSON: 1 for an object of plain values. Takes about 30 ns for each bracket.

    Without the escapes, every second piece between quotation marks is outside of texts.
    """
    at = level = most = 0
    inside, step = False, min(SHORT, PIECE // 3)  # the parts of a piece take up to ten times its bytes
    while at < len(raw):
        if at:
            yield 0
        piece = bytes(raw[at : at + step])
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # the other half of an escape follows
            piece = bytes(raw[at : at + step + 1])
        at += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        steps = b"".join(parts[inside::2]).translate(_STEPS, _NO_BRACKETS)
        inside ^= len(parts) % 2 == 0
        if steps:
            most = max(most, max(accumulate(memoryview(steps).cast("b"), initial=level)))
            level += 2 * steps.count(1) - len(steps)
    return most


@lru_cache(maxsize=4096)
def _is_second(text: str) -> bool:
    """Returns whether ``2026-11-21T09:59:34`` is a point in time."""
    return text[10:11] == "T" and _converted(f"{text}Z") is not None


def utc(text: object) -> bytes | None:
    """Converts RFC 3339 text to UTC and keeps its decimals, at most nine. None if it is not a valid time.

    Also accepts a space for the ``T``, lower-case letters, and an offset without its colon.
    """
    if type(text) is not str:
        return None
    if text[-1:] == "Z" and text.isascii() and _is_second(text[:19]):
        decimals = text[20:-1]
        if (len(text) == 20) or (text[19] == "." and len(decimals) <= DECIMALS and decimals.isdecimal()):
            return text.encode()
    return _converted(text)


def _converted(text: str) -> bytes | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    date, clock, decimals, zone = found.groups("")
    digits = decimals[:DECIMALS]
    try:
        seconds = int(datetime.fromisoformat(f"{date}T{clock}{zone.upper()}").timestamp())
        return rfc3339(seconds, int(digits), len(digits)) if digits else rfc3339(seconds)
    except ValueError:
        return None
