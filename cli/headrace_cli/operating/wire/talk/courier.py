"""A Courier client, with HELO."""

from __future__ import annotations

import os

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_courier import wire
from headrace_courier.replies import Acknowledged, PlainReply, Replies, Version
from typing_extensions import override

from headrace_cli.operating.wire.talk.interface import STREAM, Answer, Events, Remark, Talk, filler, middle

BROKEN_JSON = b'{"message": '


class CourierTalk(Talk):
    """Each payload has a nonce of its own."""

    plain = "JDAT"
    malformed = b"\x16\x03\x01\x02\x00\x01\x00\x01"
    unknown = wire.HEADER.pack(b"WHAT", 4) + b"what"
    unknown_is = "a message WHAT of four bytes"

    def __init__(self) -> None:
        self.forms = ("JDAT", "EVNT")
        self._replies = Replies()
        self._waiting: dict[bytes, tuple[int, int]] = {}  # number and size by nonce
        self._done: dict[bytes, int] = {}
        self._frames = 0

    @override
    def greeting(self) -> bytes:
        return wire.identity(b"HELO", "2.12.0", b"LCOR")

    @override
    def frame(self, events: Events, form: str = "") -> bytes:
        return self._payload([orjson.dumps({"type": STREAM, **event}) for event in events], form or self.forms[0])

    @override
    def bad_event(self, events: Events) -> bytes:
        documents = [orjson.dumps({"type": STREAM, **event}) for event in events]
        documents.insert(middle(events), BROKEN_JSON)
        return self._payload(documents, self.forms[0])

    @override
    def bomb(self, size: int) -> bytes:
        return self.frame(filler(size))

    @override
    def again(self) -> CourierTalk:
        other = CourierTalk()
        other._waiting, other._frames = dict(self._waiting), self._frames
        return other

    def _payload(self, documents: list[bytes], form: str) -> bytes:
        nonce = os.urandom(wire.NONCE_BYTES)
        self._waiting[nonce] = (self._frames, len(documents))
        self._frames += 1
        return (wire.evnt if form == "EVNT" else wire.jdat)(nonce, documents)

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        return [self._heard(reply) for reply in self._replies.receive(data)]

    def _heard(self, reply: Acknowledged | Version | PlainReply) -> Answer | Remark:
        if isinstance(reply, Version):
            return Remark("VERS")
        if isinstance(reply, PlainReply):
            return Remark(reply.value)
        if reply.nonce not in self._waiting:
            raise ProtocolError(f"an ACKN of a payload {reply.nonce.hex()} that was not sent")
        frame, size = self._waiting[reply.nonce]
        if not self._done.get(reply.nonce, 0) <= reply.count <= size:
            raise ProtocolError(f"an ACKN of {reply.count} events in a payload of {size}")
        self._done[reply.nonce] = reply.count
        return Answer(frame, reply.count, size)
