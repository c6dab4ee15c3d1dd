"""Builds events from messages, one by one, as the publisher asks. Every message gives exactly one event or reject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import orjson
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Note, Reason
from headrace_common.record.event import Part, Reject, deterministic_id, rfc3339_ms, unique_id
from headrace_common.record.json_object import utc
from headrace_common.record.json_text import noted, object_of, readable, with_raw
from headrace_common.session.interface import SMALL, SMALL_PARTS, Frame, Peer, Run, Ticket
from headrace_common.session.json_events import RECEIVED, envelope_of
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_syslog.wire.message import parse
from headrace_syslog.wire.relp import HINT, SYSLOG, RelpFrame

OVERHEAD: Final = 256
"""Bytes of memory that a message takes beyond its own."""


class MessageMaker:
    """Makes the events of one protocol."""

    def __init__(self, protocol: str, limits: LimitSettings, memory: Memory | None) -> None:
        """`memory`: keeps envelopes, for all connections; without it, the maker has its own."""
        self._protocol = protocol
        self._event_bytes = limits.event_bytes
        self._memory = memory or Memory()

    def part(self, raw: bytes, peer: Peer, received_ms: int) -> Part:
        """Returns the event of a message, or its reject if it is too large to be stored. Never raises for any bytes."""
        most = self._event_bytes
        if len(raw) > most:
            return self.reject(Reason.OVERSIZED, f"{len(raw)} bytes, LIMITS__EVENT_BYTES {most}", raw, peer)
        try:
            text, whole = raw.decode(), True
        except UnicodeDecodeError:
            text, whole = readable(str(raw, "utf-8", "surrogateescape")), False
        message = parse(text)
        facility, severity = divmod(message.priority, 8)
        body = orjson.dumps({"facility": facility, "severity": severity, **message.parts})
        held = len(body) if whole else with_raw(body, raw)
        if held > most:
            return self.reject(Reason.OVERSIZED, f"{held} bytes as JSON, LIMITS__EVENT_BYTES {most}", raw, peer)
        host, app = message.parts.get("hostname"), message.parts.get("app_name")
        envelope = envelope_of(self._protocol, peer, self._memory, host, app)
        time = utc(message.parts.get("timestamp", "").replace(",", "."))
        resent = self._protocol == "relp" and message.numbered  # over TCP and UDP nobody sends again
        name = deterministic_id(self._protocol, raw) if resent else unique_id()
        about = None if time else RECEIVED
        if not whole:
            about = object_of(([about[1:-1]] if about else []) + noted((Note.INVALID_UTF8,), raw))
        return envelope.event(name, time or rfc3339_ms(received_ms), body, about)

    def reject(self, reason: Reason, detail: str, raw: bytes, peer: Peer) -> Reject:
        """Returns bytes as a reject."""
        return envelope_of(self._protocol, peer, self._memory).reject(reason, detail, raw, unique_id())


class MessagesFrame(Frame):
    """Messages that came together, each with its sender. `answers`: these wait for an answer; else they wait for Kafka without a
    deadline.
    """

    __slots__ = ("_maker", "_messages", "acknowledged", "kept", "received_ms", "size", "small", "ticket")

    def __init__(
        self, messages: Sequence[tuple[bytes, Peer]], ticket: Ticket, received_ms: int, maker: MessageMaker, *, answers: bool
    ) -> None:  # fmt: skip
        self._messages = messages
        self._maker = maker
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged, self.kept = answers, not answers
        self.size = sum(len(raw) + OVERHEAD for raw, _ in messages)
        self.small = self.size <= SMALL and len(messages) < SMALL_PARTS

    @override
    def runs(self) -> Iterator[Run]:
        for raw, peer in self._messages:
            yield self._maker.part(raw, peer, self.received_ms)

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns all messages, as RELP frames, with reason `internal`."""
        raw = b"".join(RelpFrame(HINT, SYSLOG, raw).encode() for raw, _ in self._messages)
        return self._maker.reject(Reason.INTERNAL, detail, raw, self._messages[0][1])
