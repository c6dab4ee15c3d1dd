"""Builds events from messages, one by one, as the publisher asks. Every message gives exactly one event or reject."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Note, Reason
from headrace_common.record.event import Part, Reject, deterministic_id, rfc3339_ms, unique_id
from headrace_common.record.json_text import letters_of, noted, object_of, readable, with_raw, write_text
from headrace_common.session.interface import SMALL, SMALL_PARTS, Frame, Peer, Run, Ticket
from headrace_common.session.json_events import RECEIVED, JsonEvents
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_syslog.wire.message import SyslogMessage, Values, parse, time_of

OVERHEAD: Final = 256
"""Bytes of memory that a message takes beyond its own."""

LENGTH: Final = struct.Struct(">I")
"""The length in front of each message of several that go to quarantine together."""


class MessageMaker:
    """Makes the events of one protocol."""

    def __init__(self, protocol: str, limits: LimitSettings, memory: Memory) -> None:
        """`memory`: keeps envelopes, for all connections."""
        self._protocol = protocol
        self._event_bytes = limits.event_bytes
        self._depth = limits.depth
        self._memory = memory
        self._latest: tuple[Peer, JsonEvents[msgspec.Struct]] | None = None

    def part(self, raw: bytes, peer: Peer, received_ms: int) -> Part:
        """Returns the event of a message, or its reject if it is too large to be stored. Never raises for any bytes."""
        most = self._event_bytes
        if len(raw) > most:
            return self.reject(Reason.OVERSIZED, f"{len(raw)} bytes, LIMITS__EVENT_BYTES {most}", raw, peer)
        message = parse(raw)
        body, whole = body_of(message)
        held = len(body) if whole else with_raw(body, raw)
        if held > most:
            return self.reject(Reason.OVERSIZED, f"{held} bytes as JSON, LIMITS__EVENT_BYTES {most}", raw, peer)
        envelope = self._events(peer).envelope(_name(message.hostname), _name(message.app_name))
        name = deterministic_id(self._protocol, raw) if message.numbered else unique_id()
        time = time_of(message)
        about = None if time else RECEIVED
        if not whole:
            about = object_of(([about[1:-1]] if about else []) + noted((Note.INVALID_UTF8,), raw))
        return envelope.event(name, time or rfc3339_ms(received_ms), body, about)

    def reject(self, reason: Reason, detail: str, raw: bytes, peer: Peer) -> Reject:
        """Returns bytes as a reject."""
        return self._events(peer).envelope().reject(reason, detail, raw, unique_id())

    def _events(self, peer: Peer) -> JsonEvents[msgspec.Struct]:
        if self._latest is None or self._latest[0] is not peer:  # mostly it is a connection's
            made = JsonEvents(self._protocol, peer, msgspec.Struct, self._event_bytes, self._depth, self._memory)
            self._latest = peer, made
        return self._latest[1]


def _name(text: bytes) -> str:
    return "".join(map(readable, letters_of(text)))


def body_of(message: SyslogMessage) -> tuple[bytearray, bool]:
    """Returns a message as a JSON object, and whether all of it is UTF-8; other bytes are read as Windows-1252."""
    out, whole = bytearray(b'{"facility":%d,"severity":%d' % divmod(message.priority, 8)), True
    for key in ("timestamp", "hostname", "app_name", "proc_id", "msg_id"):
        if value := getattr(message, key):
            out += b',"%b":' % key.encode()
            whole &= write_text(out, value)
    if message.structured:
        out += b',"structured_data":'
        for number, (name, values) in enumerate(message.structured.items()):
            out += b"," if number else b"{"
            write_text(out, name)
            whole &= _write_values(out, values)
        out += b"}"
    out += b',"message":'
    whole &= write_text(out, message.text)
    out += b"}"
    return out, whole


def _write_values(out: bytearray, values: Values) -> bool:
    """Appends the parameters of an element behind its name; one that is repeated is an array."""
    whole = True
    out += b":{"
    for number, (name, texts) in enumerate(values.items()):
        out += b"," if number else b""
        write_text(out, name)
        out += b":[" if len(texts) > 1 else b":"
        for position, text in enumerate(texts):
            out += b"," if position else b""
            whole &= write_text(out, text)
        out += b"]" if len(texts) > 1 else b""
    out += b"}"
    return whole


class Received(NamedTuple):
    """A message and its sender."""

    raw: bytes
    peer: Peer


class MessagesFrame(Frame):
    """Messages that came together. `answers`: their sender waits for an answer; else they wait for Kafka without a deadline."""

    __slots__ = ("_maker", "_messages", "acknowledged", "kept", "received_ms", "size", "small", "ticket")

    def __init__(
        self, messages: Sequence[Received], ticket: Ticket, received_ms: int, maker: MessageMaker, *, answers: bool
    ) -> None:
        self._messages = messages
        self._maker = maker
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged, self.kept = answers, not answers
        self.size = sum(len(each.raw) + OVERHEAD for each in messages)
        self.small = self.size <= SMALL and len(messages) < SMALL_PARTS

    @override
    def runs(self) -> Iterator[Run]:
        for message in self._messages:
            yield self._maker.part(*message, self.received_ms)

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns all messages, each behind its length, with reason `internal`."""
        raw = b"".join(LENGTH.pack(len(each.raw)) + each.raw for each in self._messages)
        return self._maker.reject(Reason.INTERNAL, detail, raw, self._messages[0].peer)
