"""Explains a stream frame by frame: the fields of each, and what the receiver's own session does with it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pkgutil import resolve_name
from typing import Any, Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import Settings
from headrace_common.protocol import installed
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.session.explain import SAMPLE, Explanation, Unit
from headrace_common.session.interface import ByteSession, Frame, MessageSession, Pause

from headrace_cli.ground import CommandError

EXPLANATIONS: Final[Mapping[str, Explanation]] = {
    protocol.name: resolve_name(protocol.explanation) for protocol in installed() if protocol.explanation
}
"""By protocol."""
MESSAGE_BYTES = 32 << 20
"""Largest file with one message of a protocol of messages."""


def protocol_of(beginning: bytes) -> str:
    """Return the protocol that begins with these bytes. Raises `CommandError` if none does."""
    if other := stranger(beginning):
        raise CommandError(f"These bytes are {other}.", status=2)
    for name, explanation in EXPLANATIONS.items():
        if explanation.begins(beginning):
            return name
    raise CommandError(f"No protocol begins with {beginning[:4].hex(' ')}: name it with --protocol.", status=2)


_PACKETS: Final = tuple(map(bytes.fromhex, ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")))
"""How files of captured packets begin: pcap with micro- or nanoseconds in either byte order, and pcapng."""
_HTTP: Final = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|CONNECT|TRACE) [/*h]|PRI \* HTTP/2|HTTP/1\.")


def stranger(beginning: bytes) -> str:
    """Name bytes with which no client of ours begins, and say why they may come; empty for other bytes."""
    if beginning[:2] == b"\x16\x03":
        return "TLS: what is encrypted cannot be explained, and a port without TLS does not take it"
    if _HTTP.match(beginning):
        return "HTTP: a browser, or a balancer's check, took the port for a web server's; health is on the port of the metrics"
    if beginning.startswith(_PACKETS):
        return "a capture of packets: `tcpflow -r FILE` makes a file of what each side of a connection has sent"
    return ""


@dataclass
class Summary:
    """The outcome of a stream. `broken`: why it cannot be read beyond `broken_at`; `limit`: the setting that was exceeded."""

    protocol: str
    frames: int = 0
    size: int = 0
    understood: int = 0
    events: int = 0
    replies: int = 0
    quarantine: Counter[str] = field(default_factory=Counter)
    broken: str = ""
    broken_at: int = 0
    limit: str | None = None
    sample: bytes = b""

    @property
    def fine(self) -> bool:
        return not self.broken and not self.quarantine


def _something(heard: ExplainedBytes) -> bool:
    return bool(heard.error or heard.replies or heard.stored or heard.quarantined)


@dataclass(frozen=True)
class ExplainedFrame:
    """A frame, None for bytes that belong to none; the receiver's reaction, and its answer to the client."""

    unit: Unit | None
    heard: ExplainedBytes
    said: list[str]


class Explainer:
    """Explains one stream. `most`: parts, events and rejects of a frame that are kept. Memory follows the largest frame."""

    def __init__(
        self,
        pieces: Iterator[bytes],
        protocol: str,
        most: int,
        settings: Callable[[str], Settings] | None = None,
    ) -> None:
        """`protocol`: empty if the first bytes say it. `settings`: the receiver's, by protocol; None: the defaults.

        Raises `CommandError` if no protocol is named and none begins with these bytes.
        """
        beginning = b""
        for piece in pieces:
            beginning += piece
            if len(beginning) >= SAMPLE:
                break
        found = protocol or protocol_of(beginning)
        self._pieces = chain((beginning,), pieces)
        self._most = most
        self._how = EXPLANATIONS[found]
        self._tell = self._how.replies() if self._how.replies is not None else None
        self.summary = Summary(found)
        self._settings = None if settings is None else settings(found)

    def run(self, now_ms: int) -> Iterator[ExplainedFrame]:
        """Yield frames; the summary is complete after the last."""
        return self._message(now_ms) if self._how.message is not None else self._requests(now_ms)

    def _requests(self, now_ms: int) -> Iterator[ExplainedFrame]:
        assert self._how.stream is not None
        walker, session = self._how.stream(self._most, self._settings)
        receiver = ExplainedSession(session, self._most, self._how.answer)
        fed = 0
        for piece in self._counted():
            begin = self.summary.size - len(piece)
            for unit in walker.feed(piece):
                heard = receiver.feed(piece[fed - begin : unit.end - begin], now_ms)
                fed = max(fed, unit.end)
                yield self._told(unit, heard)
                if heard.error is not None:
                    self._count_rest()
                    return
            heard = receiver.feed(piece[fed - begin :], now_ms)  # the receiver may refuse what a frame announces
            fed = self.summary.size
            if _something(heard):
                yield self._told(None, heard)
            if heard.error is not None:
                self._count_rest()
                return
        heard = receiver.end()
        if _something(heard):
            yield self._told(None, heard)

    def _told(self, unit: Unit | None, heard: ExplainedBytes) -> ExplainedFrame:
        summary = self.summary
        if unit is not None:
            summary.frames += 1
            summary.understood = unit.end
        summary.events += heard.stored
        summary.quarantine.update(heard.quarantined)
        said = self._said(heard.replies)
        summary.replies += len(said)
        if heard.error is not None:
            error = heard.error
            offset = error.offset
            summary.broken, summary.limit, summary.sample = str(error), error.limit, error.sample
            summary.broken_at = summary.size if offset is None else offset
        return ExplainedFrame(unit, heard, said)

    def _said(self, replies: Iterable[bytes]) -> list[str]:
        found: list[str] = []
        for reply in replies:
            try:
                found += [reply.decode(errors="replace")] if self._tell is None else self._tell(reply)
            except ProtocolError:  # of a login, which is not shown
                found.append(f"{len(reply)} bytes")
        return found

    def _message(self, now_ms: int) -> Iterator[ExplainedFrame]:
        raw = b""
        for piece in self._counted():
            raw += piece
            if len(raw) > MESSAGE_BYTES:
                raise CommandError(f"It is larger than one message may be ({MESSAGE_BYTES >> 20} MiB).", status=2)
        assert self._how.message is not None
        found = self._how.message(raw, self._settings, now_ms)
        if found is None:
            self.summary.broken = "not frames with their lengths, as the quarantine keeps a message"
            return
        yield self._told(found[0], hear_message(found[1], self._most))

    def _counted(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.summary.size += len(piece)
            yield piece

    def _count_rest(self) -> None:
        for _ in self._counted():
            pass


@dataclass
class ExplainedBytes:
    """A receiver's outcome for some bytes. `events` and `rejects`: the first of each; `stored` counts all events by kind."""

    events: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    stored: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    replies: list[bytes] = field(default_factory=list)
    error: ProtocolError | None = None

    def add(self, frame: Frame, most: int) -> int:
        """Add a frame's parts; return their number."""
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


@dataclass
class ExplainedSession:
    """Drives one session. `most`: events and rejects of a call that are kept; `answer` answers what the session asks."""

    session: ByteSession
    most: int
    answer: Callable[[object], object] | None = None

    def feed(self, data: bytes, now_ms: int) -> ExplainedBytes:
        """Return its outcome for the next bytes."""
        heard = ExplainedBytes()
        try:
            while True:
                try:
                    self.session.receive(data, now_ms)
                finally:
                    self._serve(heard)
                if not self.session.status().busy:
                    break
                data = b""
        except ProtocolError as error:
            heard.error = error
        return heard

    def end(self) -> ExplainedBytes:
        """Return its outcome when the client sends no more."""
        heard = ExplainedBytes()
        try:
            self.session.eof()
        except ProtocolError as error:
            heard.error = error
        if last := self.session.farewell():
            heard.replies.append(last)
        return heard

    def _serve(self, heard: ExplainedBytes) -> None:
        again = True
        while again:
            again = False
            for frame in self.session.frames():
                self.session.stored(frame.ticket, heard.add(frame, self.most), True)
                again = True
            for question in list(self.session.questions()):
                assert self.answer is not None
                self.session.answered(question.ticket, self.answer(question))
                again = True
            while reply := self.session.outgoing():
                heard.replies.append(reply)
                again = True


def hear_message(session: MessageSession, most: int) -> ExplainedBytes:
    """Return a receiver's outcome for the one message that the session has received."""
    heard = ExplainedBytes()
    session.tick(0.0)
    for frame in session.frames():
        session.stored(frame.ticket, heard.add(frame, most), True)
    while (reply := session.outgoing()) is not None:
        heard.replies.append(b" ".join(reply.parts))
    return heard
