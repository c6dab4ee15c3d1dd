"""Drives the producers' session as a connection and a publisher would, with no event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from headrace_common.record.event import Reject
from headrace_common.session.interface import Frame, Message
from headrace_logjam.gathering import GatheringSession
from headrace_logjam.session import ProducerSession
from headrace_logjam.settings import LogjamLimits
from headrace_logjam.wire import Meta, compress, encode_meta

from tests.driving import NOW_MS, Seen, parts_of, with_constants

APP_ENV = b"shop-production"
TOPIC = b"logs.shop.production"
META = encode_meta(Meta())
ROUTE = b"\0\1\2\3\4"
ADDRESS = "192.0.2.7"
HOST = b"here.example"

Publish = Callable[[Sequence[bytes], int], None]


def event(body: Any, method: int = 0, *, topic: bytes = TOPIC, app_env: bytes = APP_ENV, **meta: int) -> list[bytes]:
    """The four frames of a message. `body`: bytes, or what they are to be the JSON of."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return [app_env, topic, compress(method, raw), encode_meta(Meta(method, **meta))]


def asking(frames: Iterable[bytes]) -> list[bytes]:
    """The same with the empty frame in front."""
    return [b"", *frames]


@dataclass
class Driven:
    """A session, and all that came of it."""

    session: GatheringSession
    parts: list[list[Seen | Reject]] = field(default_factory=list)
    replies: list[tuple[bytes, ...]] = field(default_factory=list)

    def send(self, *messages: Sequence[bytes], route: bytes = ROUTE) -> list[Frame]:
        """Messages that are read together: the frames that they make."""
        for parts in messages:
            self.session.receive(Message(parts, route, ADDRESS), NOW_MS)
        return list(self.session.frames())

    def store(self, frame: Frame, stored: int | None = None) -> None:
        """The publisher asks for all parts, and so many of them, or all, are durable."""
        made = parts_of(frame)
        self.parts.append(made)
        self.session.stored(frame.ticket, len(made) if stored is None else stored, stored is None)

    def hear(self) -> list[tuple[bytes, ...]]:
        """The replies that leave now, each with its route in front."""
        found = []
        while (reply := self.session.outgoing()) is not None:
            found.append((reply.route, *reply.parts))
        self.replies += found
        return found

    @property
    def flat(self) -> list[Seen | Reject]:
        return [part for parts in self.parts for part in parts]


def driven(*, answers: bool = True, publish: Publish | None = None, **limits: Any) -> Driven:
    session = ProducerSession(
        with_constants(LogjamLimits, limits)(**limits), answers=answers, host=HOST, publish=publish
    )
    return Driven(session)


def drive(*messages: Sequence[bytes], answers: bool = True, **limits: Any) -> Driven:
    """All of them together, stored."""
    found = driven(answers=answers, **limits)
    for frame in found.send(*messages):
        found.store(frame)
    found.hear()
    assert not found.session.status().partial_bytes
    return found
