"""Checks events that arrive as JSON and pass through byte for byte: they must be JSON objects. Reads a few of their fields.

The check skips unwanted fields instead of building them.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_args

import msgspec

from headrace_common.record.contract import Note, Reason
from headrace_common.record.event import FIRST_SECOND, LAST_SECOND, rfc3339
from headrace_common.record.json_text import PIECE, Bytes, count, letters_of, noted, object_of, readable, with_raw

M = TypeVar("M")
T = TypeVar("T", bound=msgspec.Struct)
_Decode = Callable[[Bytes | msgspec.Raw], Any]

SHORT: Final = 16 << 10
"""Bytes of JSON that are looked through in one call, or between two pauses: at most a millisecond of work."""

TEXT_BYTES: Final = 16 << 10
"""Longest text of an event that is read: as a text of Python it may take four times its bytes."""

_utf8: Final = getincrementaldecoder("utf-8")
_ARRAY: Final = ord("[")
_TEXT: Final = ord('"')
_OBJECT: Final = ord("{")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: +1 opens, -1 closes
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[{]}")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)

DECIMALS: Final = 9
"""Decimals of a second that are kept; further ones are cut off."""


def finish(steps: Generator[int, None, M]) -> M:
    """Takes all steps at once: of a generator that yields where others may run. Returns what they made."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: M = done.value
            return made


class Fault(NamedTuple):
    """Why bytes are not an event, for quarantine."""

    reason: Reason
    detail: str


class NotUtf8Fault(Fault):
    """The bytes are not UTF-8: `JsonObject.read` may repair them."""


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


class _Decoders(NamedTuple):
    """Decoders of a struct, of its fields unparsed, and of each field by its name, with the struct that the field may hold."""

    whole: _Decode
    apart: _Decode
    fields: Mapping[str, tuple[_Decode, type[msgspec.Struct] | None]]


@cache
def _decoders_of(wanted: type[msgspec.Struct]) -> _Decoders:
    """Returns the decoders of a struct; each is made once."""
    fields = msgspec.structs.fields(wanted)
    raws = [
        (each.name, msgspec.Raw | msgspec.UnsetType, msgspec.field(default=msgspec.UNSET, name=each.encode_name))
        for each in fields
    ]
    by_name = {each.name: (msgspec.json.Decoder(each.type).decode, _struct_in(each.type)) for each in fields}
    apart = msgspec.json.Decoder(msgspec.defstruct("Raws", raws)).decode
    return _Decoders(msgspec.json.Decoder(wanted).decode, apart, by_name)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Returns the struct among the types that a field may have."""
    structs = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    return structs[0] if structs else None


class JsonObject(Generic[T]):
    """Checks that bytes are one JSON object in UTF-8 (RFC 8259), at most `depth` deep, and reads the fields of `wanted`.

    `wanted`: a struct whose fields have defaults. A value of another type than its field's counts as absent, and so does a text
    of more than `TEXT_BYTES`, if the event is read in steps.
    """

    def __init__(self, wanted: type[T], depth: int) -> None:
        self._wanted = wanted
        self._decode = cast("Callable[[Bytes], T]", _decoders_of(wanted).whole)
        self._depth = depth

    def quick(self, raw: bytes) -> T | None:
        """Returns the wanted fields of an ordinary event; None: it is unusual, or none. For at most `SHORT` bytes."""
        try:
            found = self._decode(raw)
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
        found = yield from self.steps(raw)
        if not isinstance(found, Fault):
            return ReadEvent(found, raw, b"")
        if not isinstance(found, NotUtf8Fault):
            return found
        value = bytearray()
        for letters in letters_of(raw):
            value += readable(letters).encode()
            if with_raw(value, raw) > most:
                detail = f"more than LIMITS__EVENT_BYTES ({most}) with its bytes, which are not UTF-8"
                return Fault(Reason.OVERSIZED, detail)
            yield 0
        found = yield from self.steps(value)
        return found if isinstance(found, Fault) else ReadEvent(found, value, raw)

    def steps(self, raw: Bytes) -> Generator[int, None, T | Fault]:
        """Returns the wanted fields of JSON in UTF-8, or why it is none. Only skipping the values is one call, at most 5 ns
        for each byte.
        """
        found = cast("T | Fault", self._values(self._wanted, raw))
        if isinstance(found, Fault):
            return found
        decoder = _utf8()
        for start in range(0, len(raw), SHORT):
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(bytes(raw[start : start + SHORT]), start + SHORT >= len(raw))
            except UnicodeDecodeError as error:
                return _not_utf8(error.reason, start - pending + error.start)
            yield 0
        if (yield from deepest(raw)) > self._depth:
            return self._too_deep()
        return found

    def _values(self, wanted: type[msgspec.Struct], raw: Bytes | msgspec.Raw) -> msgspec.Struct | Fault:
        """Returns the fields that are wanted of JSON: those of their types, and numbers that Python can hold."""
        decoders = _decoders_of(wanted)
        try:
            raws = decoders.apart(raw)
        except msgspec.ValidationError as error:
            return Fault(Reason.BAD_RECORD, str(error))
        except msgspec.DecodeError as error:
            return Fault(Reason.BAD_JSON, str(error))
        except UnicodeDecodeError as error:
            return _not_utf8(error.reason, error.start)
        except RecursionError:  # the wanted field may come before the part that is too deep
            return self._too_deep()
        values: dict[str, Any] = {}
        for name, (decode, inner) in decoders.fields.items():
            value = getattr(raws, name)
            if value is not msgspec.UNSET:
                first = memoryview(value)[0] if len(value) > TEXT_BYTES else None
                try:
                    if first == _OBJECT and inner is not None:
                        found = self._values(inner, value)
                        if isinstance(found, Fault):
                            return found
                        values[name] = found
                    elif first != _TEXT:
                        values[name] = decode(value)
                except msgspec.ValidationError:
                    continue
                except msgspec.DecodeError as error:
                    return Fault(Reason.BAD_JSON, str(error))
                except UnicodeDecodeError as error:
                    return _not_utf8(error.reason, error.start)
        return wanted(**values)

    def _too_deep(self) -> Fault:
        return Fault(Reason.TOO_DEEP, f"nested deeper than {self._depth}")


def _not_utf8(reason: str, at: int) -> NotUtf8Fault:
    return NotUtf8Fault(Reason.BAD_JSON, f"not UTF-8: {reason} at byte {at}")


def may_be_deep(value: Bytes, depth: int) -> bool:
    """Returns whether JSON text has more than `depth` opening brackets, also in texts. Only then it may be too deep.

    Removing them takes half the time of counting them, because searching a byte is fast and counting is not.
    """
    if isinstance(value, memoryview) or len(value) > SHORT:
        return count(value, b"{") + count(value, b"[") > depth
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
    return _seconds(text[:10], text[11:]) is not None if len(text) == 19 and text[10] == "T" else False


def _seconds(date: str, clock: str) -> int | None:
    try:
        return int(datetime.strptime(f"{date}T{clock}+0000", "%Y-%m-%dT%H:%M:%S%z").astimezone(UTC).timestamp())
    except ValueError:
        return None


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
    found = _TIME.fullmatch(text)
    seconds = None if found is None else _seconds(found[1], found[2])
    if found is None or seconds is None:
        return None
    offset = 0
    if found[4] not in "Zz":
        hours, minutes = int(found[4][1:3]), int(found[4][-2:])
        if hours > 23 or minutes > 59:
            return None
        offset = (hours * 60 + minutes) * (-60 if found[4][0] == "-" else 60)
    digits = (found[3] or "")[:DECIMALS]
    seconds -= offset
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        return None
    return rfc3339(seconds, int(digits), len(digits)) if digits else rfc3339(seconds)
