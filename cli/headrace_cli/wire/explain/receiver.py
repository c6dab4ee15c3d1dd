"""The receivers' own sessions, as if Kafka stored everything at once: they say what would happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings, Settings
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.session.inflate import InflateLimits
from headrace_common.session.interface import ByteSession, Frame, Message, Pause, Peer, Question, Session
from headrace_courier import wire as courier
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection, CourierSettings
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection, ForwardSettings
from headrace_logjam.session import ProducerSession
from headrace_logjam.settings import LogjamLimits, LogjamSettings
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection, LumberjackSettings
from headrace_lumberjack.wire import WireLimits
from headrace_segment import questions
from headrace_segment.session.dialects import SegmentSession
from headrace_segment.session.limits import Limits as SegmentSessionLimits
from headrace_segment.settings import SegmentLimits, SegmentSection, SegmentSettings

from headrace_cli.wire.explain.forward import ForwardWalker
from headrace_cli.wire.explain.lumberjack import LumberjackWalker
from headrace_cli.wire.explain.units import CourierWalker, SegmentWalker, Walker

PEER: Final = Peer("client", 0, "client")
_SESSION: Final = bytes(16)
_ANSWER_TIME: Final = 60.0


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

    def __init__(self, session: ByteSession, most: int) -> None:
        self._session = session
        self._most = most

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
            again = _answer_all(self._session) or again
            while reply := self._session.outgoing():
                heard.replies.append(reply)
                again = True


def _answer_all(session: Session) -> bool:
    """Answer what a segment's session asks its store, whose segments are new and empty."""
    asked = list(session.questions())
    for question in asked:
        session.answered(question.ticket, _answer(question))
    return bool(asked)


def _answer(question: Question) -> object:
    if isinstance(question, questions.OpenSession):
        return questions.SessionOpened(_SESSION, question.numbering.first)
    if isinstance(question, questions.AppendBlock):
        return questions.BlockStored(question.after, len(question.data))
    if isinstance(question, questions.ReadBytes):
        return questions.BytesRead(b"", at_tail=True, end_of_segment=False)
    if isinstance(question, questions.DescribeSegment):
        return questions.SegmentDescription(0, 0, sealed=False, modified=0, writers=0)
    return questions.SegmentChanged()


def hear_message(frames: list[bytes], most: int, now_ms: int, settings: Settings | None = None) -> Heard:
    """What Logjam's receiver does with one message of a producer that asks for an answer."""
    heard = Heard()
    limits = settings.limits if isinstance(settings, LogjamSettings) else LogjamLimits()
    session = ProducerSession(limits, _ANSWER_TIME, answers=True)
    session.receive(Message([b"", *frames], b"route", PEER.address), now_ms)
    session.tick(0.0)
    for frame in session.frames():
        session.stored(frame.ticket, heard.add(frame, most), True)
    while (reply := session.outgoing()) is not None:
        heard.replies.append(b" ".join(reply.parts))
    return heard


Made = tuple[Walker, ByteSession]


def _lumberjack(most: int, settings: Settings | None = None) -> Made:
    given = settings if isinstance(settings, LumberjackSettings) else None
    limits, section = (given.limits, given.lumberjack) if given else (LimitSettings(), LumberjackSection())
    wire = WireLimits(limits.frame_bytes, section.window_events, section.pairs, section.key_bytes, section.value_bytes)
    walker = LumberjackWalker(wire, InflateLimits(limits.inflated_bytes, limits.ratio), most)
    return walker, LumberjackSession(PEER, limits, section)


def _courier(most: int, settings: Settings | None = None) -> Made:
    given = settings if isinstance(settings, CourierSettings) else None
    limits, section = (given.limits, given.courier) if given else (CourierLimits(), CourierSection())
    inflate = InflateLimits(limits.inflated_bytes, limits.ratio)
    walker = CourierWalker(courier.Decoder(limits.frame_bytes, limits.frame_events, inflate), most)
    return walker, CourierSession(PEER, limits, section)


def _forward(most: int, settings: Settings | None = None) -> Made:
    given = settings if isinstance(settings, ForwardSettings) else None
    limits, section = (given.limits, given.forward) if given else (LimitSettings(), ForwardSection())
    walker = ForwardWalker(limits.frame_bytes, limits.frame_events, most)
    return walker, ForwardSession(PEER, limits, section)


def _segment(most: int, settings: Settings | None = None) -> Made:
    given = settings if isinstance(settings, SegmentSettings) else None
    limits, section = (given.limits, given.segment) if given else (SegmentLimits(), SegmentSection())
    wanted = SegmentSessionLimits(
        limits.frame_bytes, limits.event_bytes, section.reply_bytes, section.name_bytes, section.connection_writers
    )
    return SegmentWalker(limits.frame_bytes), SegmentSession(PEER, wanted)


class Make(Protocol):
    """Makes what cuts a protocol's frames, and its session. `most`: parts that are kept; `settings`: None for the defaults."""

    def __call__(self, most: int, settings: Settings | None = None) -> Made: ...


RECEIVERS: Final[Mapping[str, Make]] = {
    "courier": _courier,
    "forward": _forward,
    "lumberjack": _lumberjack,
    "segment": _segment,
}
"""By protocol."""
