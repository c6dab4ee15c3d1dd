"""What a server says, explained: acknowledgements and the other replies of each protocol. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headrace_common.operations.errors import ProtocolError
from headrace_courier.replies import Acknowledged, PlainReply, Version
from headrace_courier.replies import Replies as CourierReplies
from headrace_forward.wire import Replies as ForwardReplies
from headrace_lumberjack.wire import Replies as LumberjackReplies
from headrace_segment.settings import FRAME_BYTES

from headrace_cli.wire.explain.units import SAMPLE, Part, SegmentWalker, Unit, Walker

MOST: Final = 64 << 10
"""Longest reply that is waited for."""


class ReplyWalker:
    """Cuts a server's bytes into replies; `read` takes one byte at a time, so that it is known where each ends."""

    def __init__(self, name: str, read: Callable[[bytes], list[Any]], meaning: Callable[[Any], str]) -> None:
        self._name = name
        self._read = read
        self._meaning = meaning
        self._begin = self._at = 0
        self._sample = b""
        self.broken: str = ""
        """Why no more is read; empty while nothing is wrong."""

    @property
    def begin(self) -> int:
        """Where the reply begins that is not complete."""
        return self._begin

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        for at in range(len(data)):
            if self.broken:
                return
            byte = data[at : at + 1]
            self._at += 1
            if len(self._sample) < SAMPLE:
                self._sample += byte
            try:
                found = self._read(byte)
            except ProtocolError as error:
                self.broken = str(error)
                return
            if self._at - self._begin > MOST:
                self.broken = f"a reply of more than {MOST} bytes"
            for reply in found:
                size = self._at - self._begin
                meaning = self._meaning(reply)
                yield Unit(self._name, self._begin, size, meaning, [Part(self._begin, size, self._sample, meaning)])
                self._begin, self._sample = self._at, b""


def _lumberjack(first: bytes) -> ReplyWalker:
    def meaning(number: int) -> str:
        return f"all events up to number {number} are stored" if number else "0: nothing yet; the server is alive"

    return ReplyWalker("A", LumberjackReplies(first[0]).receive, meaning)


def _courier(first: bytes) -> ReplyWalker:
    def meaning(reply: Acknowledged | Version | PlainReply) -> str:
        if isinstance(reply, Acknowledged):
            return f"ACKN: the first {reply.count} events of payload {reply.nonce.hex()} are stored"
        if isinstance(reply, Version):
            version = ".".join(map(str, reply.version))
            return (
                f"VERS: {reply.name.decode(errors='replace')} {version}; EVNT is {'' if reply.evnt else 'not '}spoken"
            )
        return "PONG: the server is alive" if reply is PlainReply.PONG else "????: the server did not know a message"

    return ReplyWalker("reply", CourierReplies().receive, meaning)


class _JsonReplies:
    """The same as `headrace_forward.wire.Replies` for a client that speaks JSON."""

    def __init__(self) -> None:
        self._text = b""

    def receive(self, data: bytes) -> list[Any]:
        """The chunks that are acknowledged. Raises `ProtocolError`."""
        self._text += data
        if data != b"}":
            return []
        try:
            found = json.loads(self._text)["ack"]
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(f"not an acknowledgement: {error}") from error
        self._text = b""
        return [found]


def _forward(first: bytes) -> ReplyWalker:
    read = _JsonReplies().receive if first == b"{" else ForwardReplies().receive
    return ReplyWalker("ack", read, lambda chunk: f"all of chunk {chunk!r} is stored")


REPLIES: Final[Mapping[str, Callable[[bytes], Walker]]] = {
    "courier": _courier,
    "forward": _forward,
    "lumberjack": _lumberjack,
    "segment": lambda first: SegmentWalker(FRAME_BYTES),
}
"""By protocol, from a reply's first byte."""
