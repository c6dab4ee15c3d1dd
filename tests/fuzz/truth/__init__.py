"""What must come of a conversation, told by the values that it is made of: from the protocols' pages, with plain libraries. Only
what clients encode with is the product's. So a fault is found, too, that both cores have, or the whole as well as its pieces.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from tests.fuzz.chance import Sent

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
    """What is sent, and what must come of it. `inside`: what becomes of that which is compressed."""

    sent: Sent = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    inside: Callable[[bytes], bytes] = bytes


def tree(text: bytes) -> str:
    """JSON without its spelling; what is none as it is."""
    try:
        return repr(json.loads(text, object_pairs_hook=tuple))
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
