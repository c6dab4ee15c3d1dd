"""The clients by protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headrace_cli.operating.wire.talk.courier import CourierTalk
from headrace_cli.operating.wire.talk.forward import ForwardTalk
from headrace_cli.operating.wire.talk.interface import Talk
from headrace_cli.operating.wire.talk.lumberjack import LumberjackTalk

TALKS: Final[Mapping[str, Callable[[], Talk]]] = {
    "courier": CourierTalk,
    "forward": ForwardTalk,
    "lumberjack": LumberjackTalk,
}

MALFORMED: Final[Mapping[str, bytes]] = {
    **{name: talk().malformed for name, talk in TALKS.items()},
    "segment": b"\xff" * 16,  # a message of type -1
}
"""What may not stand where a frame begins, for each protocol that is a stream of bytes."""
