"""A Lumberjack client of version 2 or 1."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_lumberjack import wire
from typing_extensions import override

from headrace_cli.operating.wire.talk.interface import Answer, Events, Remark, Talk, filler, middle

BROKEN_JSON = b'{"message": '


class LumberjackTalk(Talk):
    """Numbers the events of each window from 1, as Beats do."""

    plain = "plain"
    malformed = b"GET / HTTP/1.1\r\n\r\n"
    unknown = b"3W\x00\x00\x00\x01"
    unknown_is = "a window of version 3"

    def __init__(self, version: int = wire.V2) -> None:
        self.forms = ("compressed", "plain")
        self._version = version
        self._replies = wire.Replies(version)
        self._waiting: deque[tuple[int, int]] = deque()  # number and size of each window
        self._sizes: list[int] = []

    @override
    def greeting(self) -> bytes:
        return b""

    @override
    def frame(self, events: Events, form: str = "") -> bytes:
        if self._version == wire.V1:
            frames = [
                wire.pairs_frame(n, [(b"line", orjson.dumps(event)), (b"type", b"headrace.conform")])
                for n, event in enumerate(events, 1)
            ]
        else:
            frames = [wire.json_frame(n, orjson.dumps(event)) for n, event in enumerate(events, 1)]
        return self._window(frames, form or self.forms[0])

    @override
    def bad_event(self, events: Events) -> bytes:
        documents = [orjson.dumps(event) for event in events]
        documents.insert(middle(events), BROKEN_JSON)
        return self._window([wire.json_frame(n, document) for n, document in enumerate(documents, 1)], "compressed")

    @override
    def bomb(self, size: int) -> bytes:
        return self.frame(filler(size), "compressed")

    @override
    def again(self) -> LumberjackTalk:
        other = LumberjackTalk(self._version)
        for size in self._sizes:
            other._sent(size)
        return other

    def overfull(self, events: Events) -> bytes:
        """A window that announces half of its events."""
        frames = b"".join(wire.json_frame(n, orjson.dumps(event)) for n, event in enumerate(events, 1))
        half = len(events) // 2
        self._sent(half)
        return wire.window(half) + wire.compressed(frames)

    def _window(self, frames: Sequence[bytes], form: str) -> bytes:
        self._sent(len(frames))
        content = b"".join(frames)
        if form == "compressed":
            content = wire.compressed(content, version=self._version)
        return wire.window(len(frames), self._version) + content

    def _sent(self, size: int) -> None:
        self._waiting.append((len(self._sizes), size))
        self._sizes.append(size)

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        found: list[Answer | Remark] = []
        for number in self._replies.receive(data):
            if not self._waiting:
                if number:
                    raise ProtocolError(f"an acknowledgement of number {number}, and nothing waits for one")
                found.append(Remark("A(0) that nothing waits for"))
                continue
            frame, size = self._waiting[0]
            if number > size:
                raise ProtocolError(f"an acknowledgement of number {number} in a window of {size} events")
            found.append(Answer(frame, number, size))
            if number == size:
                self._waiting.popleft()
        return found
