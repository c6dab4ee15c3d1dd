"""A producer that waits for its answers, like an agent's DEALER. Pure: its bytes are messages as `wire.joined` makes them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import KEPT, STREAM, Answer, OrderedClient, Remark
from typing_extensions import override

from headrace_logjam.wire import ACCEPTED, METHODS, NONE, REFUSED, Meta, compress, encode_meta, joined, split

TOPIC: Final = f"logs.{STREAM}".encode()
MESSAGE_FRAMES: Final = 5
"""Frames of a message that asks for an answer; the first is empty."""
APP_ENVS: Final = 64
"""App-envs that take turns. Answers carry no id and repeat the app-env: so a missing one shows."""


class LogjamClient(OrderedClient):
    """A message is one event. A frame is any number of messages; each is answered."""

    batch = 1
    named = True

    def __init__(self, compression: str | None = None, app_envs: int = APP_ENVS) -> None:
        """`compression`: one of `METHODS`; None: all of them, in turn. `app_envs`: with more than one, messages of one client go
        to different partitions.
        """
        super().__init__(compression)
        self._methods = [METHODS.index(compression)] if compression is not None else range(len(METHODS))
        self._turns = app_envs
        self._sent = 0
        self._app_envs: dict[int, list[tuple[bytes, bytes]]] = {}  # of each frame, with the answers that are right
        self._expected: deque[tuple[bytes, bytes]] = deque()
        self._heard = 0  # answers to the oldest frame

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        now = time.time_ns() // 1_000_000
        return orjson.dumps({"request_id": os.urandom(16).hex(), "started_ms": now, **event})

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        frames: list[bytes] = []
        expected = []
        for body in documents:
            broken = not body.endswith(b"}")  # as it is: quarantine shows what was sent
            method = NONE if broken else self._methods[self._sent % len(self._methods)]
            app_env = b"headrace-send-%02d" % (self._sent % self._turns)
            self._sent += 1
            meta = encode_meta(Meta(method, 0, time.time_ns() // 1_000_000))
            frames += [b"", app_env, TOPIC, compress(method, body), meta]
            expected.append((app_env, REFUSED if broken else ACCEPTED))
        self._app_envs[self.made] = expected
        self._app_envs.pop(self.made - KEPT, None)
        self._expected += expected
        self._next(len(documents))
        return joined(frames)

    @override
    def again(self) -> bytes:
        """Forgets the old connection, on which nothing more is answered."""
        self._expected.clear()
        self._heard = 0
        return super().again()

    @override
    def repeat(self, frame: int) -> None:
        self._expected += self._app_envs[frame]
        super().repeat(frame)

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        """Reads one whole answer."""
        name, *said = split(data)
        if not self._expected:
            raise ProtocolError("an answer, and nothing waits for one")
        app_env, right = self._expected[0]
        if said[:1] != [right]:
            raise ProtocolError(f"{b' '.join(said[:1])[:40]!r}, and no answer of a device to such a message")
        if name != app_env:
            raise ProtocolError(
                "no answer to the oldest message, and one to a later message: it came too late for that"
            )
        self._expected.popleft()
        self._heard += 1
        answer = self._answer(self._under_way[0], self._heard)
        if answer.whole:
            self._under_way.popleft()
            self._heard = 0
        return [answer]
