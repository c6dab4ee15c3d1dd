"""Drives the sessions of syslog as a connection and a publisher would, with no event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace_common.operations.settings import LimitSettings
from headrace_common.record.event import Event, Reject
from headrace_common.session.interface import Peer
from headrace_common.session.memory import Memory
from headrace_syslog.events import MessageMaker
from headrace_syslog.session import RelpSession, StreamSession
from headrace_syslog.wire.relp import RelpDecoder, RelpFrame

from tests import driving
from tests.driving import NOW_MS, PEER, Seen, feed_all, parts_of, seen, the_same_every_way

VECTORS = Path(__file__).parent / "vectors"
OPEN = RelpFrame(1, b"open", b"relp_version=0\ncommands=syslog").encode()


@dataclass
class Outcome(driving.Outcome):
    """All that came of some bytes. How many of them come together is no matter."""

    replies: list[RelpFrame] = field(default_factory=list)

    def comparable(self) -> Any:
        self.parts = [[part] for part in self.flat]
        return super().comparable(), self.replies


def drive(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """Feeds `pieces`; each batch is stored at once. `end`: then the peer ends, if nothing was wrong."""
    driven, outcome, replies = RelpSession(peer, LimitSettings(**limits)), Outcome(), RelpDecoder(1 << 20)

    def serve() -> None:
        for frame in driven.frames():
            assert frame.acknowledged
            parts = parts_of(frame)
            outcome.parts.append(parts)
            driven.stored(frame.ticket, len(parts), True)
        while reply := driven.outgoing():
            outcome.replies += replies.receive_all(reply)

    feed_all(driven, pieces, outcome, serve, end=end)
    assert len(outcome.flat) == sum(reply.data == b"200 OK" for reply in outcome.replies)
    return outcome


def stream(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """The same without RELP."""
    driven, outcome = StreamSession(peer, LimitSettings(**limits)), Outcome()

    def serve() -> None:
        for frame in driven.frames():
            assert (frame.acknowledged, frame.kept) == (False, True)
            outcome.parts.append(parts_of(frame))
            driven.stored(frame.ticket, len(outcome.parts[-1]), True)
        assert driven.outgoing() == b""
        assert driven.status().unacknowledgeable

    feed_all(driven, pieces, outcome, serve, end=end)
    serve()  # the end of a stream may be that of a line
    outcome.partial = driven.status().partial_bytes > 0
    return outcome


every_stream: Callable[..., Outcome] = partial(the_same_every_way, stream)
every_way: Callable[..., Outcome] = partial(the_same_every_way, drive)


def relayed(*messages: bytes, first: int = 2) -> bytes:
    """The messages as RELP has them."""
    return b"".join(RelpFrame(number, b"syslog", each).encode() for number, each in enumerate(messages, first))


def made(message: bytes, *, now_ms: int = NOW_MS, **limits: Any) -> Seen | Reject:
    """What becomes of a message."""
    maker = MessageMaker("relp", LimitSettings(**limits), Memory())
    part: Event | Reject = maker.part(message, PEER, now_ms)
    return part if isinstance(part, Reject) else seen(part)


def event(message: bytes, **limits: Any) -> Seen:
    """The event of a message."""
    found = made(message, **limits)
    assert isinstance(found, Seen)
    return found
