"""The receivers' own sessions, as if Kafka stored everything at once: they say what would happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.protocol import installed
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.session.explain import Explanation
from headrace_common.session.interface import ByteSession, Frame, MessageSession, Pause

EXPLANATIONS: Final[Mapping[str, Explanation]] = {
    protocol.name: protocol.explanation() for protocol in installed() if protocol.explanation is not None
}
"""By protocol."""


@dataclass
class Heard:
    """What a receiver does with some bytes. `events` and `rejects`: the first of each; `stored` counts all events by kind."""

    events: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    stored: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    replies: list[bytes] = field(default_factory=list)
    error: ProtocolError | None = None

    def add(self, frame: Frame, most: int) -> int:
        """Add a frame's parts; return how many there are."""
        parts = 0
        for part in frame.parts():
            if isinstance(part, Pause):
                continue
            parts += 1
            if isinstance(part, Reject):
                self.quarantined[part.reason.value] += 1
                if len(self.rejects) < most:
                    self.rejects.append(_reject(part, parts))
                continue
            self.stored += 1
            if len(self.events) < most:
                self.events.append(_event(part, parts))
        return parts


def _event(event: bytes, number: int) -> dict[str, Any]:
    value, pairs = decode(event)
    headers = {name: content.decode("utf-8", "replace") for name, content in pairs}
    found: dict[str, Any] = {
        "part": number,
        "id": headers["ce_id"],
        "stream": headers["ce_subject"],
        "source": headers["ce_source"],
        "time": headers["ce_time"],
    }
    if "ce_attributes" in headers:
        found["attributes"] = orjson.loads(headers["ce_attributes"])
    if headers["content-type"] != "application/json":
        return {**found, "payload": value}
    try:
        return {**found, "body": orjson.loads(value)}
    except orjson.JSONDecodeError:  # JSON to the receiver's reader, and not to this one: half a surrogate pair
        return {**found, "body": value.decode("utf-8", "replace")}


def _reject(reject: Reject, number: int) -> dict[str, Any]:
    return {
        "part": number,
        "reason": reject.reason.value,
        "detail": reject.detail,
        "stream": reject.subject,
        "bytes": len(reject.raw),
    }


class Receiver:
    """Drives one session. `most`: events and rejects of a call that are kept."""

    def __init__(self, session: ByteSession, most: int, answer: Callable[[object], object] | None = None) -> None:
        """`answer`: what the session asks is answered by it."""
        self._session = session
        self._most = most
        self._answer = answer

    def feed(self, data: bytes, now_ms: int) -> Heard:
        """What it does with the next bytes."""
        heard = Heard()
        try:
            while True:
                try:
                    self._session.receive(data, now_ms)
                finally:
                    self._serve(heard)
                if not self._session.status().busy:
                    break
                data = b""
        except ProtocolError as error:
            heard.error = error
        return heard

    def end(self) -> Heard:
        """What it does when the client sends no more."""
        heard = Heard()
        try:
            self._session.eof()
        except ProtocolError as error:
            heard.error = error
        if last := self._session.farewell():
            heard.replies.append(last)
        return heard

    def _serve(self, heard: Heard) -> None:
        again = True
        while again:
            again = False
            for frame in self._session.frames():
                self._session.stored(frame.ticket, heard.add(frame, self._most), True)
                again = True
            again = self._answer_all() or again
            while reply := self._session.outgoing():
                heard.replies.append(reply)
                again = True

    def _answer_all(self) -> bool:
        asked = list(self._session.questions())
        for question in asked:
            assert self._answer is not None
            self._session.answered(question.ticket, self._answer(question))
        return bool(asked)


def receiver_of(protocol: str, most: int, settings: Any = None) -> Receiver:
    """The receiver of a protocol of streams."""
    explanation = EXPLANATIONS[protocol]
    assert explanation.stream is not None
    return Receiver(explanation.stream(most, settings)[1], most, explanation.answer)


def hear_message(session: MessageSession, most: int) -> Heard:
    """What a receiver does with the one message that the session has received."""
    heard = Heard()
    session.tick(0.0)
    for frame in session.frames():
        session.stored(frame.ticket, heard.add(frame, most), True)
    while (reply := session.outgoing()) is not None:
        heard.replies.append(b" ".join(reply.parts))
    return heard
