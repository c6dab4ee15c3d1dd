"""What is fuzzed: the session of each protocol, with captures of real clients and conversations of which the truth is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.courier import driving as courier
from tests.driving import Drive, without_chance
from tests.forward import driving as forward
from tests.fuzz import truth
from tests.fuzz.chance import Chance, Sent, flat, pieces
from tests.fuzz.truth import courier as courier_truth
from tests.fuzz.truth import forward as forward_truth
from tests.fuzz.truth import logjam as logjam_truth
from tests.fuzz.truth import lumberjack as lumberjack_truth
from tests.fuzz.truth import otlp as otlp_truth
from tests.fuzz.truth import segment as segment_truth
from tests.fuzz.truth import syslog as syslog_truth
from tests.logjam import driving as logjam
from tests.lumberjack import driving as lumberjack
from tests.otlp import driving as otlp
from tests.segment import instant
from tests.segment.recorded import ORIGINAL, TODAY
from tests.syslog import driving as syslog

TESTS: Final = Path(__file__).parents[1]
NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Subject:
    """A session. `drive`: what comes of messages in pieces cut at these places, with these limits; `comparable`: what of that
    must not depend on the places; `replies`: what of it the truth tells. `tell`: tells a conversation. `messages`: it is cut
    between these alone.
    """

    drive: Callable[..., Any]
    replies: Callable[[Any], list[Any]]
    captures: Sent
    tell: Callable[[Chance], truth.Told]
    comparable: Callable[[Any], Any] = lambda outcome: outcome.comparable()
    messages: bool = False

    def cuts(self, sent: Sent, chance: Chance) -> list[int]:
        """Where to cut."""
        return chance.cuts(len(sent) if self.messages else len(flat(sent)))


def of_bytes(drive: Drive) -> Callable[..., Any]:
    return lambda sent, at=(), **limits: drive(pieces(flat(sent), at), **limits)


def captures(protocol: str, pattern: str) -> Sent:
    return [[path.read_bytes()] for path in sorted((TESTS / protocol / "vectors").rglob(pattern))]


# Logjam


def _turns(sent: Sent, turns: Sequence[int] = (), **limits: Any) -> logjam.Driven:
    """Its transport keeps messages whole: what may differ is how many are read together."""
    found = logjam.driven(**limits)
    for start, end in zip((0, *turns), (*turns, len(sent)), strict=True):
        for frame in found.send(*sent[start:end]):
            found.store(frame)
        found.hear()
    return found


def _of_turns(found: logjam.Driven) -> Any:
    parts = sorted(repr(without_chance(part)) for part in found.flat)  # streams do not wait for each other
    return parts, found.replies


def _devices() -> Sent:
    files = sorted((TESTS / "logjam" / "vectors").glob("*.json"))
    recorded = [message["frames_hex"] for file in files for message in json.loads(file.read_text())]
    return [[b"", *map(bytes.fromhex, frames)][asks:] for frames in recorded for asks in (0, 1)]


# Segments


def _levels(outcome: instant.Conversation) -> list[tuple[bytes, int]]:
    said = {reply.writer: reply.level for reply in outcome.said() if type(reply).__name__ == "DataAppended"}
    return sorted(said.items())


def _of_writers(outcome: instant.Conversation) -> Any:
    """A fault that shows only when a request has its turn ends a conversation of which more or less is answered by then. Of two
    writers with the same fault, either may be the first.
    """
    return outcome.comparable() if outcome.error is None else (NUMBER.sub("", str(outcome.error)), outcome.error.limit)


def _segments(vectors: Mapping[str, Mapping[str, Any]], *, today: bool) -> Subject:
    recorded = [[vector["data"]] for vector in vectors.values()]
    return Subject(
        of_bytes(instant.drive), _levels, recorded, partial(segment_truth.told, today=today), comparable=_of_writers
    )


def _answers(outcome: syslog.Outcome) -> list[tuple[int, bytes]]:
    return [(reply.number, reply.data) for reply in outcome.replies if reply.data == b"200 OK"]


PROTOCOLS: Final[Mapping[str, Sequence[Subject]]] = {
    "forward": [Subject(of_bytes(forward.drive), lambda made: made.replies, captures("forward", "*.bin"), forward_truth.told)],
    "lumberjack": [
        Subject(of_bytes(lumberjack.drive), lambda made: made.acks, captures("lumberjack", "*.c2s.bin"), lumberjack_truth.told)
    ],
    "courier": [
        Subject(of_bytes(courier.drive), lambda made: made.acknowledged, captures("courier", "*.c2s.bin"), courier_truth.told)
    ],
    "logjam": [
        Subject(_turns, lambda made: [each[1:] for each in made.replies], _devices(), logjam_truth.told, _of_turns, messages=True)
    ],
    "relp": [
        Subject(of_bytes(syslog.drive), _answers, captures("syslog", "omrelp_*.c2s.bin"), syslog_truth.told)
    ],
    "syslog": [Subject(of_bytes(syslog.stream), _answers, captures("syslog", "tcp_*.bin"), syslog_truth.streamed)],
    "otlp": [
        Subject(of_bytes(otlp.drive), lambda made: made.told, captures("otlp", "*.c2s.bin"), otlp_truth.told)
    ],
    "segment": [_segments(ORIGINAL, today=False), _segments(TODAY, today=True)],
}  # fmt: skip


def made(protocol: str, seed: str) -> tuple[Subject, Sent, Chance]:
    """The input of a seed: captures or a conversation, mostly with a few changes; and chance for more."""
    chance = Chance(seed)
    chance.spoils = True
    subject = chance.choice(PROTOCOLS[protocol])
    sent = [list(chance.choice(subject.captures)) for _ in range(chance.randint(1, 4))]
    if chance.perhaps(0.5):
        sent = subject.tell(chance).sent
    return subject, chance.spoiled(sent, subject.captures), chance
