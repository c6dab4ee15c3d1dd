"""A client like Filebeat, of version 2 or 1. Its events have the fields that ids are made from. Pure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import STREAM, Answer, OrderedClient, Remark
from typing_extensions import override

from headrace_lumberjack import wire


class LumberjackClient(OrderedClient):
    """A frame is one window, in one compressed frame. Its events are numbered from 1, as Beats do."""

    compression = "zlib"
    named = True
    elsewhere = True
    malformed = b"GET / HTTP/1.1\r\n\r\n"

    def __init__(self, compression: str | None = None, version: int = wire.V2) -> None:
        super().__init__(compression)
        self._version = version
        self._agent = {"id": os.urandom(8).hex(), "ephemeral_id": os.urandom(8).hex(), "type": "filebeat"}
        self._offset = 0
        self._heard = b""

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        now = time.time_ns() // 1_000_000
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 1000))}.{now % 1000:03d}Z"
        self._offset += 1
        found = {
            "@timestamp": at,
            "@metadata": {"beat": STREAM, "type": "_doc"},
            "agent": self._agent,
            "log": {"file": {"path": "/var/log/shop.log"}, "offset": self._offset},
        }
        return orjson.dumps({**found, **event})

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        self._next(len(documents))
        if self._version == wire.V1:
            frames = [wire.pairs_frame(n, [(b"line", each), (b"type", b"shop")]) for n, each in enumerate(documents, 1)]
        else:
            frames = [wire.json_frame(n, each) for n, each in enumerate(documents, 1)]
        content = b"".join(frames)
        if self.compression:
            content = wire.compressed(content, 3, self._version)
        return wire.window(len(documents), self._version) + content

    @override
    def again(self) -> bytes:
        self._heard = b""
        return super().again()

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        data = self._heard + data
        whole = len(data) - len(data) % wire.HEADER
        self._heard = data[whole:]
        return [self._meant(data[at : at + wire.HEADER]) for at in range(0, whole, wire.HEADER)]

    def _meant(self, reply: bytes) -> Answer | Remark:
        if reply[: wire.KIND] != bytes((self._version, wire.A)):
            raise ProtocolError(f"not an acknowledgement: {reply.hex()}")
        number = wire.number_at(reply, wire.KIND)
        if not self._under_way:
            if number:
                raise ProtocolError(f"an acknowledgement of number {number}, and nothing waits for one")
            return Remark("A(0) that nothing waits for")
        answer = self._answer(self._under_way[0], number)
        if answer.whole:
            self._under_way.popleft()
        return answer
