"""Drives a Lumberjack session as a connection and a publisher would, with no event loop: bytes in, everything it says out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Peer
from headrace_lumberjack.session import LumberjackSession

from tests import driving
from tests.driving import PEER, feed_all, parts_of, the_same_every_way
from tests.native import compared


@dataclass
class Outcome(driving.Outcome):
    """All that came of some bytes."""

    out: bytes = b""

    @property
    def acks(self) -> list[tuple[str, int]]:
        return acks(self.out)

    def comparable(self) -> Any:
        """How a window's events are grouped to frames depends on the split; which they are does not."""
        parts, *rest = super().comparable()
        return [part for frame in parts for part in frame], rest, self.out


def acks(data: bytes) -> list[tuple[str, int]]:
    """(version, number) of each A frame; there must be nothing else."""
    assert len(data) % 6 == 0
    found = []
    for at in range(0, len(data), 6):
        assert data[at + 1 : at + 2] == b"A"
        found.append((chr(data[at]), int.from_bytes(data[at + 2 : at + 6], "big")))
    return found


def session(peer: Peer = PEER, **limits: Any) -> LumberjackSession:
    """With the default limits, but for those named."""
    own: dict[str, Any] = {name: limits.pop(name) for name in ("window_events", "pairs") if name in limits}
    kind: type[LumberjackSession] = type("Limited", (LumberjackSession,), own)
    return kind(peer, driving.with_constants(LimitSettings, limits)(**limits))


@compared
def drive(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """Feeds `pieces`; each frame is stored at once. `end`: then the peer ends, if nothing was wrong."""
    driven = session(peer, **limits)
    outcome = Outcome()

    def serve() -> None:
        for frame in driven.frames():
            parts = parts_of(frame)
            outcome.parts.append(parts)
            driven.stored(frame.ticket, len(parts), True)
        outcome.out += driven.outgoing()
        assert driven.outgoing() == b""

    feed_all(driven, pieces, outcome, serve, end=end)
    return outcome


every_way: Callable[..., Outcome] = partial(the_same_every_way, drive)


def document(n: int = 0, /, **more: Any) -> bytes:
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
