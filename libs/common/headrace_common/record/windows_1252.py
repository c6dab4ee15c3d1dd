"""Bytes that are not UTF-8, in every protocol: those that are no letter of UTF-8 are read as Windows-1252, one by one.

The importer of skaes/logjam-tools does so, too (`convert_to_win1252`). The five bytes that Windows-1252 does not define (81, 8D,
8F, 90, 9D) become U+FFFD. The attribute `raw` keeps the event as it was received.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from headrace_common.record.contract import Attribute, Note, Reason
from headrace_common.record.json_text import Bytes, letters_of, member_of, readable, write_base64

Refusal = tuple[Reason, str]
"""Why bytes cannot be mended, for quarantine."""


class MendedJson(NamedTuple):
    """JSON in UTF-8. `raw`: the event as it was received; empty: it is the same."""

    value: Bytes
    raw: Bytes

    def attributes(self, others: bytes | None) -> bytes | None:
        """Returns `others`, an object as JSON, with what was received in it."""
        if not self.raw:
            return others
        before = b"{" if not others or others == b"{}" else others[:-1] + b","
        return b"".join((before, b",".join(noted((Note.INVALID_UTF8,), self.raw)), b"}"))


def noted(notes: tuple[Note, ...], raw: Bytes) -> list[bytes]:
    """Returns the attributes of an event that JSON cannot hold exactly, as members of a JSON object: why, and its bytes."""
    text = bytearray(b'"')
    write_base64(text, raw)
    text += b'"'
    return [member_of(Attribute.NOTES, b'["%b"]' % '","'.join(notes).encode()), member_of(Attribute.RAW, text)]


def with_raw(value: Bytes, raw: Bytes) -> int:
    """Returns how many bytes a value and its `raw` take together."""
    return len(value) + len(raw) * 4 // 3


def mended(raw: Bytes, most: int) -> Generator[int, None, MendedJson | Refusal]:
    """Returns JSON that is UTF-8; yields between steps. Bytes that are no JSON give any JSON or none: the caller checks the
    result. `most`: bytes of the JSON and of `raw` together.
    """
    value = bytearray()
    for letters in letters_of(raw):
        value += readable(letters).encode()
        if with_raw(value, raw) > most:
            return Reason.OVERSIZED, f"more than LIMITS__EVENT_BYTES ({most}) with its bytes, which are not UTF-8"
        yield 0
    return MendedJson(value, raw)
