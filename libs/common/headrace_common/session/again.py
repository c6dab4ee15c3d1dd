"""Reads items of quarantine once more: a receiver's own code makes events of bytes that it has rejected. Pure.

A receiver's package converts items in ``again.py`` to the input of its own code.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from headrace_common.record.contract import DETERMINISTIC, EventHeader
from headrace_common.record.encoding import Header, decode
from headrace_common.record.event import FRAME_PREFIX, FrameIds, Part, Reject, deterministic_id
from headrace_common.session.interface import ByteSession, Peer


@dataclass(frozen=True)
class QuarantinedItem:
    """An item of quarantine, whole. `name`: its id, or its place on its topic; `received_ms`: Unix time in milliseconds."""

    name: str
    reason: str
    protocol: str
    stream: str
    source: str
    received_ms: int
    sha256: str
    attributes: Mapping[str, Any]
    content: bytes


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event as it goes to the topic."""

    id: str
    value: bytes
    headers: list[Header]


@dataclass
class ReplayOutcome:
    """The outcome of an item. `rejects`: parts that are still not understood, by reason; `impossible`: why it cannot be read."""

    events: list[PublishedEvent] = field(default_factory=list)
    rejects: Counter[str] = field(default_factory=Counter)
    impossible: str = ""


def read_again(item: QuarantinedItem, parts: Iterable[Part], *, numbered: bool = False) -> ReplayOutcome:
    """Collects the parts of an item. An event keeps the id that the receiver gives it if that is deterministic.

    `numbered`: the item is an event, or the rest of a message. The first event has the item's id if that is deterministic, and
    the others count on. Any other id is made of the item's name and hash: the same in every replay.
    """
    found = ReplayOutcome()
    base = item.name.encode()
    for index, part in enumerate(parts):
        if isinstance(part, Reject):
            found.rejects[part.reason.value] += 1
            continue
        value, headers = decode(part)
        name = dict(headers)[EventHeader.ID]
        if numbered and base.startswith(DETERMINISTIC):
            name = FrameIds(base[:FRAME_PREFIX])((int(base[FRAME_PREFIX:], 16) + index) & 0xFFFF_FFFF)
        elif numbered or not name.startswith(DETERMINISTIC):
            number = index.to_bytes(4, "big")
            name = deterministic_id(item.protocol, b"quarantine", base, item.sha256.encode(), number)
        headers = [(key, name if key == EventHeader.ID else text) for key, text in headers]
        found.events.append(PublishedEvent(name.decode(), value, headers))
    return found


def peer_of(item: QuarantinedItem) -> Peer:
    """Returns the client from which the item came, as its source names it: an address, or the subject of a certificate."""
    identity = unquote(item.source.rpartition("/")[2])
    try:
        ipaddress.ip_address(identity.partition("%")[0])
    except ValueError:
        return Peer("", 0, identity, certified=True)
    return Peer(identity, 0, identity)


def parts_of(session: ByteSession, data: bytes, now_ms: int) -> Iterator[Part]:
    """Yields the parts that a session makes of `data`. Raises `ProtocolError`."""
    while True:
        session.receive(data, now_ms)
        for frame in session.frames():
            yield from frame.parts()
        if not session.status().busy:
            return
        data = b""


def read_by(
    session: ByteSession, item: QuarantinedItem, data: bytes | None = None, *, numbered: bool = False
) -> ReplayOutcome:
    """Reads an item by a fresh session, which is given `data`, or the item's content. `numbered`: see `read_again`."""
    content = item.content if data is None else data
    return read_again(item, parts_of(session, content, item.received_ms), numbered=numbered)
