"""Logjam's producers, as an agent's DEALER speaks: ZMTP 3.0 without security, one message an event.

An agent sends the same bytes through libzmq (`tests/logjam/test_service.py` does). Written out here, so that the suite can
split, count and repeat them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson
from headrace_common.record.contract import Reason
from headrace_logjam.wire import ACCEPTED, REFUSED, Meta, encode_meta

from tests.contract.dialect import Can, Values

APP_ENV = b"contract-test"
TOPIC = b"logs.contract.test"
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\3\0" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
MORE, LONG, COMMAND = 1, 2, 4


def zmtp(flags: int, body: bytes) -> bytes:
    """One frame, or one command, of ZMTP."""
    if len(body) > 255:
        return bytes((flags | LONG,)) + len(body).to_bytes(8, "big") + body
    return bytes((flags, len(body))) + body


def message(frames: Sequence[bytes]) -> bytes:
    """A whole message."""
    last = len(frames) - 1
    return b"".join(zmtp(0 if index == last else MORE, frame) for index, frame in enumerate(frames))


READY = zmtp(COMMAND, b"\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0")


class Answers:
    """A server's bytes to messages."""

    def __init__(self) -> None:
        self._data = b""
        self._frames: list[bytes] = []

    def receive(self, data: bytes) -> list[list[bytes]]:
        self._data += data
        found = []
        while (frame := self._next()) is not None:
            flags, body = frame
            if flags & COMMAND:
                assert body.startswith(b"\4PING"), body
                continue
            self._frames.append(body)
            if not flags & MORE:
                found.append(self._frames)
                self._frames = []
        return found

    def _next(self) -> tuple[int, bytes] | None:
        data = self._data
        width = 8 if data and data[0] & LONG else 1
        if len(data) < 1 + width:
            return None
        end = 1 + width + int.from_bytes(data[1 : 1 + width], "big")
        if len(data) < end:
            return None
        self._data = data[end:]
        return data[0], data[1 + width : end]


class LogjamConversation:
    """Frames of many messages: each is answered, in order."""

    def __init__(self) -> None:
        self._expected: list[list[bytes]] = []
        self._answers = Answers()
        self._number = self._heard = 0

    def _messages(self, bodies: list[bytes], faulty: int | None = None) -> bytes:
        self._expected.append([REFUSED if index == faulty else ACCEPTED for index in range(len(bodies))])
        meta = encode_meta(Meta())
        return b"".join(message([b"", APP_ENV, TOPIC, body, meta]) for body in bodies)

    @staticmethod
    def _bodies(values: Values) -> list[bytes]:
        return [orjson.dumps({**value, "request_id": uuid.uuid4().hex}) for value in values]

    def frame(self, values: Values) -> bytes:
        return self._messages(self._bodies(values))

    def faulty(self, values: Values) -> bytes:
        bodies = self._bodies(values)
        place = len(bodies) // 2
        bodies.insert(place, f"no JSON, {values[0]['mark']}".encode())
        return self._messages(bodies, faulty=place)

    def sized(self, values: Values, size: int) -> bytes:
        """A message whose body has `size` bytes: that is what the limit is about."""
        bodies = self._bodies([{**value, "pad": ""} for value in values])
        bodies[0] = bodies[0].replace(b'"pad":""', b'"pad":"' + b"x" * (size - len(bodies[0])) + b'"')
        return self._messages(bodies)

    def receive(self, data: bytes) -> list[int]:
        complete = []
        for app_env, answer in self._answers.receive(data):
            if self._number == len(self._expected):  # a new connection, on which all was sent again
                self._number = 0
            assert app_env == APP_ENV
            expected = self._expected[self._number]
            assert answer == expected[self._heard], f"answer {self._heard} of frame {self._number}: {answer!r}"
            self._heard += 1
            if self._heard == len(expected):
                complete.append(self._number)
                self._number, self._heard = self._number + 1, 0
        return complete


class LogjamDialect:
    """See `contract.dialect.Dialect`."""

    name = "logjam"
    variant = ""
    module = "headrace_logjam"
    can = Can.SPLIT_BYTES | Can.REFUSE_ONE | Can.STORE_AGAIN
    content_type = "application/json"
    segments = 0
    fault = Reason.BAD_JSON
    malformed = b"GET / HTTP/1.1\r\n\r\n"
    sections = MappingProxyType({"logjam": {"pull_port": 0, "answer_time": 60}})

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """libzmq hears each step only after its own."""
        writer.write(GREETING)
        await reader.readexactly(len(GREETING))
        writer.write(READY)
        flags, size = await reader.readexactly(2)
        assert flags == COMMAND
        assert (await reader.readexactly(size)).startswith(b"\5READY")

    def conversation(self) -> LogjamConversation:
        return LogjamConversation()

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in stored.items() if name != "request_id"}

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"] == b"contract-test/logs.contract.test"
        assert record_headers["ce_id"].startswith(b"d.")
        assert orjson.loads(record_headers["ce_attributes"]) == {"time": "received"}
