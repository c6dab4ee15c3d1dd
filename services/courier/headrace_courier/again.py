"""How an item of quarantine becomes a payload again. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from headrace_common.record.contract import Reason
from headrace_common.session.again import (
    ImpossibleError,
    QuarantinedItem,
    ReplayOutcome,
    frames_of,
    item_ids,
    own_ids,
    parts_of,
    peer_of,
    read_again,
)

from headrace_courier import wire as courier
from headrace_courier.events import CourierAttribute
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierSettings

_LENGTH: Final = struct.Struct(">I")


def read(item: QuarantinedItem, settings: CourierSettings) -> ReplayOutcome:
    """Reads one event of a payload, or the events beyond its limit, or (`internal`) all of it, each event after its length."""
    content = item.content
    nonce = bytes.fromhex(item.attributes[CourierAttribute.NONCE.value])
    whole = item.reason in (Reason.TOO_MANY_EVENTS, Reason.INTERNAL)
    events = list(_entries(content)) if whole else [content]
    session = CourierSession(peer_of(item), settings.limits)
    made = frames_of(session, courier.jdat(nonce, events), item.received_ms)
    # Ids count from a payload's end, so those of its rest come out as they were.
    return read_again(parts_of(made), own_ids(item) if whole else item_ids(item))


def _entries(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (size,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if at + size > len(content):
            raise ImpossibleError("it ends inside an event")
        yield content[at : at + size]
        at += size
