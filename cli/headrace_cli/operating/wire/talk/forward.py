"""A Forward client whose every message has a chunk."""

from __future__ import annotations

import base64
import gzip
import os
import time
from typing import Any, get_args

import msgpack
from headrace_common.operations.errors import ProtocolError
from headrace_forward import wire
from typing_extensions import override

from headrace_cli.operating.wire.talk.interface import STREAM, Answer, Events, Remark, Talk, filler, middle


class ForwardTalk(Talk):
    """A frame is one message; in Message mode it holds the first event alone."""

    plain = "PackedForward"
    malformed = b"\xc1" * 16
    unknown = bytes(msgpack.packb("what"))
    unknown_is = "a text where a message begins"

    def __init__(self) -> None:
        self.forms = ("PackedForward", *(mode for mode in get_args(wire.Mode) if mode != "PackedForward"))
        self._replies = wire.Replies()
        self._waiting: dict[str | bytes, tuple[int, int]] = {}  # number and size by chunk
        self._frames = 0

    @override
    def greeting(self) -> bytes:
        return b""

    @override
    def frame(self, events: Events, form: str = "") -> bytes:
        mode: Any = form or self.forms[0]
        if mode == "Message":
            events = events[:1]
        now = time.time_ns()
        entries = [(wire.EventTime(*divmod(now + n, 10**9)), event) for n, event in enumerate(events)]
        return wire.encode(STREAM, entries, mode=mode, chunk=self._chunk(len(events)))

    @override
    def bad_event(self, events: Events) -> bytes:
        now = int(time.time())
        entries: list[list[object]] = [[now, event] for event in events]
        entries.insert(middle(events), [now, 17])  # no map
        body = b"".join(msgpack.packb(entry) for entry in entries)
        return bytes(msgpack.packb([STREAM, body, {"chunk": self._chunk(len(entries))}]))

    @override
    def bomb(self, size: int) -> bytes:
        events = filler(size)
        packed: bytes = msgpack.packb([int(time.time()), events[0]])
        option = {"chunk": self._chunk(len(events)), "compressed": "gzip"}
        return bytes(msgpack.packb([STREAM, gzip.compress(packed * len(events)), option]))

    @override
    def again(self) -> ForwardTalk:
        other = ForwardTalk()
        other._waiting, other._frames = dict(self._waiting), self._frames
        return other

    def without_chunk(self, events: Events) -> bytes:
        """A message that asks for no acknowledgement; it has no number."""
        now = time.time_ns()
        return wire.encode(STREAM, [(wire.EventTime(*divmod(now, 10**9)), event) for event in events])

    def _chunk(self, size: int) -> str:
        chunk = base64.b64encode(os.urandom(16)).decode()
        self._waiting[chunk] = (self._frames, size)
        self._frames += 1
        return chunk

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        found: list[Answer | Remark] = []
        for chunk in self._replies.receive(data):
            if chunk not in self._waiting:
                raise ProtocolError(f"an ack of a chunk {chunk!r} that was not sent")
            frame, size = self._waiting[chunk]
            found.append(Answer(frame, size, size))
        return found
