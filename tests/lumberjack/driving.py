"""Drives a Lumberjack session as a connection and a publisher would, with no event loop: bytes in, everything it says out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from headrace_common.errors import ProtocolError
from headrace_common.event import HEADERS, Reject
from headrace_common.record import decode
from headrace_common.session import Frame, Peer
from headrace_common.settings import LimitSettings
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection

NOW_MS = 1_795_253_837_123
RECEIVED = "2026-11-21T09:37:17.123Z"
PEER = Peer("192.0.2.7", 54321, "192.0.2.7")


@dataclass(frozen=True)
class Seen:
    """An event, decoded from its record."""

    headers: dict[str, bytes]
    value: bytes

    @property
    def id(self) -> str:
        return self.headers["ce_id"].decode()

    @property
    def time(self) -> str:
        return self.headers["ce_time"].decode()

    @property
    def subject(self) -> str:
        return self.headers["ce_subject"].decode()

    @property
    def source(self) -> str:
        return self.headers["ce_source"].decode()

    @property
    def json(self) -> Any:
        return orjson.loads(self.value)

    @property
    def attributes(self) -> dict[str, Any]:
        return orjson.loads(self.headers.get("ce_attributes", b"{}"))


def seen(event: bytes) -> Seen:
    value, pairs = decode(event)
    names = [name for name, _ in pairs]
    assert names == list(HEADERS[: len(names)])
    assert len(names) >= 7
    return Seen(dict(pairs), value)


def parts_of(frame: Frame) -> list[Seen | Reject]:
    """A frame's parts; nothing of Lumberjack grows while it is published."""
    parts: list[Seen | Reject] = []
    for part in frame.parts():
        if isinstance(part, int):
            assert part == 0
        else:
            parts.append(part if isinstance(part, Reject) else seen(part))
    return parts


@dataclass
class Outcome:
    """All that came of some bytes."""

    parts: list[Seen | Reject] = field(default_factory=list)
    out: bytes = b""
    error: ProtocolError | None = None
    idle: bool = True

    @property
    def events(self) -> list[Seen]:
        return [part for part in self.parts if isinstance(part, Seen)]

    @property
    def rejects(self) -> list[Reject]:
        return [part for part in self.parts if isinstance(part, Reject)]

    @property
    def acks(self) -> list[tuple[str, int]]:
        return acks(self.out)

    def comparable(self) -> Any:
        """What must not depend on how the bytes were split: all but the random part of unique ids."""
        error = None if self.error is None else (str(self.error), self.error.limit, self.error.offset)
        return [_without_chance(part) for part in self.parts], self.out, error, self.idle


def _without_chance(part: Seen | Reject) -> Any:
    def kind(name: bytes) -> bytes:
        return name if name.startswith(b"d.") else name[:2]

    if isinstance(part, Seen):
        return {**part.headers, "ce_id": kind(part.headers["ce_id"])}, part.value
    return part.reason, part.detail, part.raw, part.source, part.subject, kind(part.id), part.attributes


def acks(data: bytes) -> list[tuple[str, int]]:
    """(version, number) of each A frame; there must be nothing else."""
    assert len(data) % 6 == 0
    found = []
    for at in range(0, len(data), 6):
        assert data[at + 1 : at + 2] == b"A"
        found.append((chr(data[at]), int.from_bytes(data[at + 2 : at + 6], "big")))
    return found


def session(peer: Peer = PEER, **limits: Any) -> LumberjackSession:
    """With the default limits, but for those named (of either section)."""
    own = {name: limits.pop(name) for name in LumberjackSection.model_fields if name in limits}
    return LumberjackSession(peer, LimitSettings(**limits), LumberjackSection(**own))


def feed(driven: LumberjackSession, data: bytes, now_ms: int = NOW_MS) -> None:
    """`data`, and the work that it makes."""
    driven.receive(data, now_ms)
    while driven.busy():
        driven.receive(b"", now_ms)


def drive(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """Feeds `pieces`; each frame is stored at once. `end`: then the peer ends, if nothing was wrong."""
    driven = session(peer, **limits)
    outcome = Outcome()
    try:
        for piece in pieces:
            try:
                feed(driven, piece)
            finally:
                _serve(driven, outcome)
        if end:
            driven.eof()
    except ProtocolError as error:
        outcome.error = error
    outcome.idle = driven.idle()
    return outcome


def _serve(driven: LumberjackSession, outcome: Outcome) -> None:
    for frame in driven.frames():
        parts = parts_of(frame)
        outcome.parts += parts
        driven.settle(frame.ticket, len(parts), True)
    outcome.out += driven.outgoing()
    assert driven.outgoing() == b""


def one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def at_random(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Pieces of 1 to 60 bytes."""
    at = 0
    while at < len(data):
        size = chance.randint(1, 60)
        yield data[at : at + size]
        at += size


def every_way(data: bytes, **limits: Any) -> Outcome:
    """The outcome of `data`, which is the same whole, byte by byte and at random splits."""
    whole = drive([data], **limits)
    expected = whole.comparable()
    assert drive(one_by_one(data), **limits).comparable() == expected
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed)), **limits).comparable() == expected
    return whole


def document(n: int = 0, **more: Any) -> bytes:
    """A Filebeat event as JSON; `more` replaces top-level fields, None removes one."""
    fields: dict[str, Any] = {
        "@timestamp": "2026-11-21T09:30:00.000Z",
        "@metadata": {"beat": "filebeat", "type": "_doc", "version": "8.17.0"},
        "agent": {"id": "a-1", "ephemeral_id": "e-1", "hostname": "web-1", "type": "filebeat"},
        "log": {"file": {"path": "/var/log/app.log", "inode": "42"}, "offset": 100 * n},
        "message": f"line {n}",
        "host": {"name": "web-1"},
        **more,
    }
    return orjson.dumps({name: value for name, value in fields.items() if value is not None})
