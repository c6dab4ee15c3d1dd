"""Courier's bytes, as `explain` shows them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.explain import PEER, Explanation, Part, Unit, count, cut_text, fields
from headrace_common.session.inflate import InflateLimits

from headrace_courier.replies import Acknowledged, CourierReplies, PlainReply, Version
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection, CourierSettings
from headrace_courier.wire import HEADER, NONCE_BYTES, STREAMING, CourierDecoder, MessageKind, Payload

_LENGTH_BYTES: Final = 4
_SHOWN: Final = 64


class CourierWalker:
    """See `Walker`. `most`: events of a payload that are shown."""

    def __init__(self, decoder: CourierDecoder, most: int) -> None:
        self._decoder = decoder
        self._most = most
        self._broken = False

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        if self._broken:
            return
        try:
            while True:
                for message in self._decoder.receive(data):
                    yield self._unit(message)
                if not self._decoder.busy:
                    return
                data = b""
        except ProtocolError:
            self._broken = True

    def _unit(self, message: MessageKind | Payload) -> Unit:
        begin, end = self._decoder.span
        head = self._decoder.head
        kind = head[:4].decode("ascii", "replace")
        length = int.from_bytes(head[4:8], "big")
        if not isinstance(message, Payload):
            parts = fields(head, begin, (4, f"type {kind}: {message.value}"), (4, f"{length} bytes follow"))
            if length:
                parts += fields(head[HEADER.size :], begin + HEADER.size, (length, "its body"))
            return Unit(kind, begin, end - begin, message.value, parts)
        streaming = length == STREAMING
        stream = end - begin - HEADER.size - NONCE_BYTES
        parts = fields(
            head[: HEADER.size] + message.nonce,
            begin,
            (4, f"type {kind}: events, compressed"),
            (4, "no length: it ends where its zlib stream ends" if streaming else f"{length} bytes follow"),
            (NONCE_BYTES, "the nonce, which the acknowledgement repeats"),
            (stream, "a zlib stream"),
        )
        entries = list(self._entries(message))
        meaning = f"a payload of {count(message.count, 'event')}"
        return Unit(kind, begin, end - begin, meaning, [*parts, *entries], message.count - len(entries))

    def _entries(self, payload: Payload) -> Iterator[Part]:
        at = 0
        for index, entry in enumerate(payload.entries[: self._most]):
            size = _LENGTH_BYTES + len(entry)
            text = cut_text(entry[:_SHOWN].decode(errors="replace"))
            sample = len(entry).to_bytes(_LENGTH_BYTES, "big") + entry[:12]
            yield Part(at, size, sample, f"event {index + 1}, its length and {len(entry)} bytes: {text}", inflated=True)
            at += size


def _stream(most: int, given: CourierSettings | None) -> tuple[CourierWalker, CourierSession]:
    limits, section = (given.limits, given.courier) if given else (CourierLimits(), CourierSection())
    inflate = InflateLimits(limits.inflated_bytes, limits.ratio)
    walker = CourierWalker(CourierDecoder(limits.frame_bytes, limits.frame_events, inflate), most)
    return walker, CourierSession(PEER, limits, section)


def _meaning(reply: Acknowledged | Version | PlainReply) -> str:
    if isinstance(reply, Acknowledged):
        return f"ACKN: the first {reply.count} events of payload {reply.nonce.hex()} are stored"
    if isinstance(reply, Version):
        version = ".".join(map(str, reply.version))
        return f"VERS: {reply.name.decode(errors='replace')} {version}; EVNT is {'' if reply.evnt else 'not '}spoken"
    return "PONG: the server is alive" if reply is PlainReply.PONG else "????: the server did not know a message"


EXPLANATION: Final = Explanation(
    begins=lambda data: re.match(rb"[A-Z]{4}|\?{4}", data) is not None,
    stream=_stream,
    replies=lambda: lambda data: [f"reply {_meaning(reply)}" for reply in CourierReplies().receive(data)],
)
