"""Lumberjack v2, as Beats speak it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import orjson
from headrace_common.record.contract import Reason
from headrace_lumberjack.wire import HEADER, Replies, compressed, json_frame, window

from tests.contract.dialect import EVERYTHING, Silent, Values

INDEX = "contractbeat"
AGENT = {"id": "7f2b7d0c", "ephemeral_id": "c1d3a1f0", "type": "filebeat"}
TIME = "2026-11-21T09:30:37.123Z"

ADDED = ("@metadata", "@timestamp", "agent", "log", "message")


def document(value: Mapping[str, Any], line: int) -> dict[str, Any]:
    """An event as Filebeat makes it, with what the suite looks for beside."""
    return {
        "@metadata": {"beat": INDEX, "type": "_doc"},
        "@timestamp": TIME,
        "agent": AGENT,
        "log": {"file": {"path": f"/var/log/{value['mark']}.log"}, "offset": line},
        "message": f"line {line}",
        **value,
    }


class LumberjackConversation:
    """One window in one C frame."""

    def __init__(self) -> None:
        self._windows: list[int] = []
        self._told = 0
        self._line = 0
        self._replies = Replies()

    def _frame(self, documents: list[bytes], level: int = 3) -> bytes:
        self._windows.append(len(documents))
        frames = b"".join(json_frame(index + 1, item) for index, item in enumerate(documents))
        return window(len(documents)) + compressed(frames, level)

    def _documents(self, values: Values) -> list[bytes]:
        self._line += len(values)
        return [orjson.dumps(document(value, self._line + index)) for index, value in enumerate(values)]

    def frame(self, values: Values) -> bytes:
        return self._frame(self._documents(values))

    def faulty(self, values: Values) -> bytes:
        documents = self._documents(values)
        documents.insert(len(documents) // 2, f'{{"mark": "{values[0]["mark"]}", "n": }}'.encode())
        return self._frame(documents)

    def sized(self, values: Values, size: int) -> bytes:
        """The W frame, and a C frame of exactly `size` bytes."""
        self._windows.append(len(values))
        line = self._line
        self._line += len(values)
        pad = size - 1000
        for _ in range(3):
            frames = b"".join(
                json_frame(index + 1, orjson.dumps({**document(value, line + index), "pad": "x" * pad * (not index)}))
                for index, value in enumerate(values)
            )
            stream = zlib.compress(frames, 0)
            pad += size - HEADER - len(stream)
        assert HEADER + len(stream) == size
        return window(len(values)) + struct.pack(">2sI", b"2C", len(stream)) + stream

    def receive(self, data: bytes) -> list[int]:
        found = []
        for number in self._replies.receive(data):
            self._told = min(self._told, len(self._windows) - 1)  # a client that came back has sent the last again
            size = self._windows[self._told]
            assert number <= size, "more is acknowledged than was sent"
            if number == size:
                found.append(self._told)
                self._told += 1
        return found


class LumberjackDialect(Silent):
    """See `contract.dialect.Dialect`."""

    name = "lumberjack"
    module = "headrace_lumberjack"
    can = EVERYTHING
    fault = Reason.BAD_JSON
    malformed = b"GET / HTTP/1.1\r\n\r\n"

    def conversation(self) -> LumberjackConversation:
        return LumberjackConversation()

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return {name: item for name, item in stored.items() if name not in ADDED}

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"] == INDEX.encode()
        assert record_headers["ce_id"].startswith(b"d.")
        assert record_headers["ce_time"] == TIME.encode()
