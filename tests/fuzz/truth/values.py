"""Values that conversations are made of: JSON as it is sent and stored, times as they are written and in UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.fuzz.chance import Chance
from tests.fuzz.truth import base64, text_of

WORDS: Final = ("a", "é\n", '"[{', "\\", "~/", "\U0001f600", "\x00", "null", "k1")
NO_UTF8: Final = (b"\xff", b"caf\xe9 \x81\x9d", b"\xed\xa0\x80", b"\xc3\xa9\xff")
NUMBERS: Final = (0, -1, 127, 255, 2**31, 2**53 + 1, -(2**63), 2**63, 1.5, -0.0, 1e300, 5e-324, 1.7e9 + 1e-6)
NO_JSON: Final = (
    b"", b"{", b'{"a":1}x', b'{"a":1}}', b'{"a":NaN}', b"\xff", b'{"a":01}', b"\xef\xbb\xbf{}", b'{"a":"\x01"}', b'{"a":"\xff"',
    b'{"a":"\xff","b":[\xff]}',
)  # fmt: skip
NO_OBJECTS: Final = (b"[]", b"1", b'"x"', b"null")
STYLES: Final = ((",", ":", False), (", ", ": ", False), (",\n", ":\t", True))
TIMES: Final = (
    ("2026-11-21T09:59:34.0765530419Z", "2026-11-21T09:59:34.076553041Z"),
    ("2026-11-21 09:59:34.50+23:59", "2026-11-20T10:00:34.50Z"),
    ("2024-02-29T00:29:34-0930", "2024-02-29T09:59:34Z"),
    *(
        (written, written.upper())
        for written in ("0001-01-02T00:00:00z", "2026-11-21T09:59:34Z", "2026-11-21T09:59:35Z")
    ),
    *((written, None) for written in ("2026-11-21T09:59:34", "0001-01-01T00:00:00+01:00", "yesterday", "")),
)
"""As they are written, and in UTC; None: it is none. More are in `tests/common/test_json_object.py`."""

_MARK: Final = "@@@"


def word(s: Chance) -> str:
    return s.choice(WORDS) * s.choice((0, 1, 1, 3, 40))


def value(s: Chance, level: int = 0) -> Any:
    """A value of JSON."""
    kind = s.randrange(4 if level > 2 else 8)
    if kind < 4:
        return (word(s), s.choice(NUMBERS), s.choice((None, True, False)), s.choice(("", [], {})))[kind]
    things = [value(s, level + 1) for _ in range(s.choice((1, 2, 5)))]
    return things if kind < 6 else {word(s): each for each in things}


def moment(s: Chance) -> tuple[str, str | None]:
    """A time as it is written, and in UTC; None if it is none."""
    return s.choice(TIMES)


class Document(NamedTuple):
    """An event as JSON: as it is sent, as it is stored, what is noted on it; why it is none; which of `STYLES`."""

    raw: bytes
    body: bytes
    note: dict[str, Any]
    reason: str = ""
    style: int = 0


def refused(raw: bytes, reason: str) -> Document:
    return Document(raw, raw, {}, reason)


def document(s: Chance, fields: Mapping[str, Any], style: int = 0, *, sound: bool = False) -> Document:
    """An event with these fields and others, or none. If `sound`, an event with these fields alone."""
    kind = 9 if sound else s.randrange(12)
    if kind < 2:
        return refused(s.choice((NO_JSON, NO_OBJECTS)[kind]), ("bad_json", "bad_record")[kind])
    members = [*fields.items(), *((f"k{number}", value(s)) for number in range(0 if sound else s.choice((0, 1, 3))))]
    odd = s.choice(({"é": [0, _MARK]}, {"é": 0, _MARK: 1}))
    members += [("~/", odd)] * (kind == 2)
    s.shuffle(members)
    return spelled(dict(members), style, s.choice(NO_UTF8) if kind == 2 else b"")


def spelled(value: Any, style: int, bad: bytes = b"") -> Document:
    comma, colon, escaped = STYLES[style]
    raw = json.dumps(value, ensure_ascii=escaped, separators=(comma, colon)).encode()
    body = raw.replace(_MARK.encode(), text_of(bad).encode())
    sent = raw.replace(_MARK.encode(), bad)
    return Document(sent, body, {"notes": ["invalid_utf8"], "raw": base64(sent)} if bad else {}, style=style)
