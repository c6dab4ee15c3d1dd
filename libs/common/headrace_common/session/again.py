"""Reads items of quarantine once more: a receiver's own code makes events of bytes that it has rejected. Pure.

A receiver's package converts items in ``again.py`` to the input of its own code.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import orjson

from headrace_common.record.contract import DETERMINISTIC, Attribute, EventHeader, Reason
from headrace_common.record.encoding import Header, decode
from headrace_common.record.event import Envelope, Event, Part, Reject, deterministic_id, rfc3339_ms, unique_id
from headrace_common.session.interface import ByteSession, Frame, Peer

_PREFIX: Final = 26
"""Characters of an id that all events of a message share; the rest is the event's number in eight hex digits."""


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


class ImpossibleError(Exception):
    """The item cannot be read again; says why."""


Name = Callable[[bytes, int], bytes]
"""Takes the id that the receiver's code gave an item's event, and the event's number (from 0); returns its id."""


def read_again(parts: Iterable[Part], name: Name) -> ReplayOutcome:
    """Collects the parts of an item, with the ids that `name` gives."""
    found = ReplayOutcome()
    for index, part in enumerate(parts):
        if isinstance(part, Reject):
            found.rejects[part.reason.value] += 1
            continue
        value, headers = decode(part)
        given = dict(headers)[EventHeader.ID]
        mine = name(given, index)
        found.events.append(
            PublishedEvent(
                mine.decode(), value, [(key, mine if key == EventHeader.ID else text) for key, text in headers]
            )
        )
    return found


def own_ids(item: QuarantinedItem) -> Name:
    """Names each event as the receiver does if that id is deterministic; otherwise as `derived` does."""
    return lambda given, index: given if given.startswith(DETERMINISTIC) else derived(item, index)


def numbered_ids(item: QuarantinedItem) -> Name:
    """Names the events of an item that is an event, or the rest of a message: the first one has the item's id, the others count
    on. Names them as `derived` does if that id is random.
    """
    name = item.name
    if not name.startswith(DETERMINISTIC.decode()):
        return lambda given, index: derived(item, index)
    first = int(name[_PREFIX:], 16)
    return lambda given, index: f"{name[:_PREFIX]}{(first + index) & 0xFFFF_FFFF:08x}".encode()


def derived(item: QuarantinedItem, index: int) -> bytes:
    """Returns an id made of the item's name and hash: the same in every replay."""
    return deterministic_id(
        item.protocol, b"quarantine", item.name.encode(), item.sha256.encode(), index.to_bytes(4, "big")
    )


def peer_of(item: QuarantinedItem) -> Peer:
    """Returns the client from which the item came, as its source names it: an address, or the subject of a certificate."""
    identity = unquote(item.source.rpartition("/")[2])
    try:
        ipaddress.ip_address(identity.partition("%")[0])
    except ValueError:
        return Peer("", 0, identity, certified=True)
    return Peer(identity, 0, identity)


def frames_of(session: ByteSession, data: bytes, now_ms: int) -> Iterator[Frame]:
    """Yields the frames that a session makes of `data`. Raises `ProtocolError`."""
    while True:
        session.receive(data, now_ms)
        yield from session.frames()
        if not session.status().busy:
            return
        data = b""


def parts_of(frames: Iterable[Frame]) -> Iterator[Part]:
    """Yields all parts of the frames."""
    for frame in frames:
        yield from frame.parts()


def as_it_is(item: QuarantinedItem, most: int, content_type: bytes) -> ReplayOutcome:
    """Reads an item that is one event's value, of at most `most` bytes, with its attributes; its time is that of its receipt."""
    content = item.content
    envelope = Envelope(item.protocol, item.source, item.stream, content_type=content_type)
    about = orjson.dumps({**item.attributes, Attribute.TIME.value: "received"})
    if len(content) > most:
        part: Part = envelope.reject(Reason.OVERSIZED, f"{len(content)} bytes", content, unique_id())
    else:
        part = envelope.event(unique_id(), rfc3339_ms(item.received_ms), content, about)
    return read_again([part], numbered_ids(item))


def whole_record(item: QuarantinedItem) -> ReplayOutcome:
    """Reads an item that is a whole record: the event as it was, with its id unless that is random. Raises `ImpossibleError` if
    it is none.
    """
    try:
        return read_again([Event(item.content)], own_ids(item))
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise ImpossibleError("it is no record") from error
