"""Checks events that arrive as JSON and pass through byte for byte: they must be JSON objects. Reads a few of their fields.

The check skips unwanted fields instead of building them, at a fifth of the cost of parsing (docs/performance.md).
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from headrace_common.record.contract import Reason
from headrace_common.record.event import FIRST_SECOND, LAST_SECOND, rfc3339

T = TypeVar("T", bound=msgspec.Struct)

_TEXTS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ARRAY: Final = ord("[")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: +1 opens, -1 closes
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[{]}")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)

_MILLISECONDS: Final = frozenset(f".{number:03d}Z" for number in range(1000))  # most clients write these

DECIMALS: Final = 9
"""Decimals of a second that are kept; further ones are cut off."""


class Fault(NamedTuple):
    """Why bytes are not an event, for quarantine."""

    reason: Reason
    detail: str


class JsonObject(Generic[T]):
    """Checks that bytes are one JSON object in UTF-8 (RFC 8259), at most `depth` deep, and reads the fields of `wanted`.

    `wanted`: a struct whose fields have type `Any` and defaults. The caller checks their values.
    """

    def __init__(self, wanted: type[T], depth: int) -> None:
        self._decode = msgspec.json.Decoder(wanted).decode
        self.nothing = wanted()
        self._depth = depth

    def read(self, raw: bytes) -> T | Fault:
        """The wanted fields, or why these bytes are not an event. Returns `nothing` if Python cannot hold a wanted field.

        Never raises for any bytes.
        """
        try:
            found = self._decode(raw)
            if not raw.isascii():
                raw.decode()  # the decoder does not check the texts that it skips
        except UnicodeDecodeError as error:
            return Fault(Reason.BAD_JSON, f"not UTF-8: {error.reason} at byte {error.start}")
        except msgspec.ValidationError as error:
            return self._unfit(raw, str(error))
        except msgspec.DecodeError as error:
            return Fault(Reason.BAD_JSON, str(error))
        except RecursionError:
            return self._too_deep()
        if self._is_deep(raw):
            return self._too_deep()
        return found

    def _is_deep(self, raw: bytes) -> bool:
        """Whether the nesting exceeds `depth`. First counts the opening brackets, also those in texts: too few settle it.
        Removing them takes half the time of counting them, because searching a byte is fast and counting is not.
        """
        flat = raw.replace(b"{", b"")
        if _ARRAY in flat:
            flat = flat.replace(b"[", b"")
        return len(raw) - len(flat) > self._depth and deepest(raw) > self._depth

    def _unfit(self, raw: bytes, problem: str) -> T | Fault:
        """Handles valid JSON that does not fit: not an object, or a number in a wanted field that Python cannot hold."""
        try:
            msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            return Fault(Reason.BAD_RECORD, problem)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Fault(Reason.BAD_JSON, str(error))
        except RecursionError:  # the wanted field may stand before what is too deep
            return self._too_deep()
        if self._is_deep(raw):
            return self._too_deep()
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return Fault(Reason.BAD_JSON, f"not UTF-8: {error.reason} at byte {error.start}")
        return self.nothing

    def _too_deep(self) -> Fault:
        return Fault(Reason.TOO_DEEP, f"nested deeper than LIMITS__DEPTH ({self._depth})")


def deepest(raw: bytes) -> int:
    """The nesting depth of valid JSON: 1 for an object of plain values. Takes about 30 ns per bracket."""
    steps = _TEXTS.sub(b"", raw).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


@lru_cache(maxsize=4096)
def _is_second(text: str) -> bool:
    """Whether ``2026-11-21T09:59:34`` is a point in time."""
    return _seconds(text[:10], text[11:]) is not None if len(text) == 19 and text[10] == "T" else False


def _seconds(date: str, clock: str) -> int | None:
    from datetime import UTC, datetime

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
    if text[19:] in _MILLISECONDS and text.isascii() and _is_second(text[:19]):
        return text.encode()
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
