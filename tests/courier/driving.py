"""Drives a Courier session as a connection and a publisher would, with no event loop."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Peer
from headrace_courier.client import Acknowledged, CourierReplies
from headrace_courier.events import CourierFrame
from headrace_courier.session import CourierSession
from headrace_courier.wire import HEADER, STREAMING, MessageKind, entry

from tests import driving
from tests.driving import PEER, feed_all, parts_of, the_same_every_way, with_constants
from tests.native import compared

NONCE = bytes(range(16))
HELO = HEADER.pack(b"HELO", 0)


def evnt(nonce: bytes, events: Iterable[bytes]) -> bytes:
    """A payload as present clients send it, after a server's VERS has allowed it."""
    return HEADER.pack(b"EVNT", STREAMING) + nonce + zlib.compress(b"".join(map(entry, events)), 3)


def session(peer: Peer = PEER, ignored: list[MessageKind] | None = None, **limits: Any) -> CourierSession:
    """With the default limits, but for those named."""
    note = (lambda kind: None) if ignored is None else ignored.append
    return CourierSession(peer, with_constants(LimitSettings, limits)(**limits), note)


@dataclass
class Outcome(driving.Outcome):
    """All that came of some bytes."""

    replies: list[Any] = field(default_factory=list)
    ignored: Counter[MessageKind] = field(default_factory=Counter)
    partial_bytes: int = 0

    def comparable(self) -> Any:
        """A PONG overtakes what waits for Kafka."""
        error = self.error and (str(self.error).split(":")[0], self.error.limit, self.error.offset)
        return self.parts, self.acknowledged, self.others, error, self.ignored, self.partial

    @property
    def acknowledged(self) -> list[tuple[bytes, int]]:
        return [(reply.nonce, reply.count) for reply in self.replies if isinstance(reply, Acknowledged)]

    @property
    def others(self) -> list[Any]:
        return [reply for reply in self.replies if not isinstance(reply, Acknowledged)]


@compared
def drive(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """Feeds `pieces`; each payload is stored at once. `end`: then the peer ends, if nothing was wrong."""
    ignored: list[MessageKind] = []
    driven = session(peer, ignored, **limits)
    outcome, replies = Outcome(), CourierReplies()

    def serve() -> None:
        outcome.partial_bytes = max(outcome.partial_bytes, driven.status().partial_bytes)
        for frame in driven.frames():
            assert isinstance(frame, CourierFrame)
            parts = parts_of(frame)  # all growth is over before a payload is handed out
            outcome.parts.append(parts)
            driven.stored(frame.ticket, len(parts), True)
        while reply := driven.outgoing():
            outcome.replies += replies.receive(reply)

    feed_all(driven, pieces, outcome, serve, end=end)
    # each event is there once, or in quarantine
    for parts, (_, count) in zip(outcome.parts, outcome.acknowledged, strict=True):
        assert len({part.id for part in parts}) == len(parts)
        assert count == len(parts)
    outcome.ignored = Counter(ignored)
    return outcome


every_way: Callable[..., Outcome] = partial(the_same_every_way, drive)


def numbered(count: int, **more: Any) -> list[bytes]:
    """Events as log-courier writes them."""
    return [
        orjson.dumps({"@timestamp": "2026-11-21T09:59:34.076553041Z", "n": n, "path": "/var/log/a", **more})
        for n in range(count)
    ]


def payload(
    content: bytes,
    nonce: bytes = NONCE,
    *,
    kind: bytes = b"JDAT",
    cut: int = 0,
    more: bytes = b"",
    flip: int | None = None,
    level: int = 6,
) -> bytes:
    """A payload whose content is any bytes.

    `cut`: bytes missing at the end of its stream; `more`: bytes behind it; `flip`: where a byte of it is another.
    """
    packed = bytearray(zlib.compress(content, level))
    if flip is not None:
        packed[flip] ^= 0x55
    body = nonce + bytes(packed[: len(packed) - cut]) + more
    return HEADER.pack(kind, 0xFFFFFFFF if kind == b"EVNT" else len(body)) + body


def content(events: Iterable[bytes]) -> bytes:
    return b"".join(map(entry, events))


def said(driven: CourierSession) -> list[tuple[bytes, int]]:
    """The acknowledgements that are due."""
    found = []
    while out := driven.outgoing():
        found += [
            (reply.nonce, reply.count) for reply in CourierReplies().receive(out) if isinstance(reply, Acknowledged)
        ]
    return found
