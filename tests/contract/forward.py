"""Fluentd Forward."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgpack
from headrace_common.record.contract import Reason
from headrace_forward.wire import EventTime, Replies, encode

from tests.contract.dialect import EVERYTHING, Silent, Values

TAG = "contract.forward"
SECONDS = 1_795_253_837


class ForwardConversation:
    """PackedForward with chunks as fluentd makes them."""

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._replies = Replies()

    def __deepcopy__(self, memo: object) -> ForwardConversation:
        """The same frames on a new connection: what of a reply has arrived is gone."""
        other = ForwardConversation()
        other._chunks = list(self._chunks)
        return other

    def chunk(self) -> str:
        """The next frame's."""
        self._chunks.append(b64encode(os.urandom(16)).decode() + "\n")
        return self._chunks[-1]

    def frame(self, values: Values) -> bytes:
        return encode(TAG, [(EventTime(SECONDS, 1 + n), value) for n, value in enumerate(values)], chunk=self.chunk())

    def packed(self, payload: bytes, **option: str) -> bytes:
        """The next frame, with any payload. Forward alone."""
        return msgpack.packb([TAG, payload, {"chunk": self.chunk(), **option}])

    def faulty(self, values: Values) -> bytes:
        entries = [msgpack.packb([SECONDS, value]) for value in values]
        entries.insert(len(entries) // 2, msgpack.packb([SECONDS, f"no map, {values[0]['mark']}"]))
        return self.packed(b"".join(entries))

    def sized(self, values: Values, size: int) -> bytes:
        chunk = self.chunk()
        entries = [[SECONDS, {**value, "pad": ""}] for value in values]
        entries[0][1]["pad"] = "x" * (size - 300)
        for _ in range(2):
            frame = msgpack.packb([TAG, b"".join(map(msgpack.packb, entries)), {"chunk": chunk}])
            entries[0][1]["pad"] += "x" * (size - len(frame))
        frame = msgpack.packb([TAG, b"".join(map(msgpack.packb, entries)), {"chunk": chunk}])
        assert len(frame) == size
        return frame

    def receive(self, data: bytes) -> list[int]:
        return [self._chunks.index(str(chunk)) for chunk in self._replies.receive(data)]


class ForwardDialect(Silent):
    """See `contract.dialect.Dialect`."""

    name = "forward"
    module = "headrace_forward"
    can = EVERYTHING
    fault = Reason.BAD_RECORD
    malformed = b"GET / HTTP/1.1\r\n\r\n"

    def conversation(self) -> ForwardConversation:
        return ForwardConversation()

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return stored

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"] == TAG.encode()
        assert record_headers["ce_id"].startswith(b"d.")
        assert record_headers["ce_time"].startswith(b"2026-11-21T")


class PythonForwardDialect(ForwardDialect):
    """The same receiver, where the native core is not built."""

    variant = "core"
    module = "tests.forward.python"
