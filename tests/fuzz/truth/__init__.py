"""What must come of a conversation, told by the values that it is made of: from the protocols' pages, with plain libraries and
none of the product's code. So a fault is found, too, that both cores have, or the whole as well as its pieces.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from typing_extensions import override

from tests.fuzz.chance import Chance, Sent

NOW: Final = 1_700_000_123
RECEIVED: Final = "2023-11-14T22:15:23.456Z"
ADDRESS: Final = "192.0.2.7"
RANDOM: Final = "u."


class Like(NamedTuple):
    """An id where the pages say only which events have the same: those with an equal `Like`, and none with another `what`."""

    what: str
    spelled: object


class Part(NamedTuple):
    """An event or, with a `reason`, a reject. `body`: its bytes, or what `tree` reads of them. `id`: `RANDOM` is any that no
    other event has.
    """

    body: Any
    id: str | Like
    subject: str
    source: str
    time: str
    attributes: Any
    reason: str = ""


@dataclass
class Told:
    """What is sent, and what must come of it. `closes`: the limit that ends the connection; "": what is no limit; None: nothing
    does. `limits`: other than the default ones. `inside`: what becomes of that which is compressed.
    """

    sent: Sent = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    closes: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    inside: Callable[[bytes], bytes] = bytes


class Pairs(list[tuple[Any, Any]]):
    """A map, whose keys may be anything and may repeat."""

    @override
    def __repr__(self) -> str:
        return f"map {super().__repr__()}"


def tree(text: bytes) -> str:
    """JSON without its spelling; what is none as it is."""
    try:
        return repr(json.loads(text, object_pairs_hook=Pairs))
    except ValueError:
        return repr(text)


def named(*fields: bytes) -> str:
    """The id of what these fields name."""
    return "d." + sha256(b"".join(map(framed, fields))).hexdigest()[:32]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def source(protocol: str, host: str = ADDRESS) -> str:
    return f"/{protocol}/{quote(host, safe='')}"


def text_of(data: bytes) -> str:
    """What bytes are, or are taken for."""
    letters = data.decode("utf-8", "surrogateescape")
    return "".join(
        bytes((ord(each) - 0xDC00,)).decode("cp1252", "replace") if "\udc80" <= each <= "\udcff" else each
        for each in letters
    )


def at(seconds: int) -> str:
    return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()


# Values

WORDS: Final = ("a", "é\n", '"[{', "\\", "~/", "\U0001f600", "\x00", "null", "k1")
NO_UTF8: Final = (b"\xff", b"caf\xe9 \x81\x9d", b"\xed\xa0\x80", b"\xc3\xa9\xff")
NUMBERS: Final = (0, -1, 127, 255, 2**31, 2**53 + 1, -(2**63), 2**63, 1.5, -0.0, 1e300, 5e-324, 1.7e9 + 1e-6)
NO_JSON: Final = (
    b"", b"{", b'{"a":1}x', b'{"a":1}}', b'{"a":NaN}', b"\xff", b'{"a":01}', b"\xef\xbb\xbf{}", b'{"a":"\x01"}', b'{"a":"\xff"',
    b'{"a":"\xff","b":[\xff]}',
)  # fmt: skip
NO_OBJECTS: Final = (b"[]", b"1", b'"x"', b"null")
STYLES: Final = ((",", ":", False), (", ", ": ", False), (",\n", ":\t", True))
ZONES: Final = (("Z", 0), ("Z", 0), ("z", 0), ("+00:00", 0), ("+01:00", 60), ("-0930", -570), ("+23:59", 1439))
NO_TIMES: Final = (
    "2026-02-30T00:00:00Z", "2026-11-21T09:59:34", "2026-11-21T24:00:00Z", "0001-01-01T00:00:00+01:00", "yesterday", "",
    "2026-11-21T09:59:34+24:00", "2026-11-21T09:59:34.Z",
)  # fmt: skip
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
    if s.perhaps(0.2):
        return s.choice(NO_TIMES), None
    when = datetime(1, 1, 2) + timedelta(seconds=s.randrange(9990 * 365 * 86_400))
    digits = s.choice(("", ".0", ".5", ".076", ".076553041", ".0765530419"))
    zone, minutes = s.choice(ZONES)
    stored = (when - timedelta(minutes=minutes)).isoformat() + digits[:10] + "Z"
    return when.isoformat(s.choice("TTT ")) + digits + zone, stored


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
