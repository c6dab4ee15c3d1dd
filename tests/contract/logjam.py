"""Logjam's producers, as an agent's DEALER speaks: ZMTP 3.0 without security, one message an event.

An agent sends the same bytes through libzmq (`tests/logjam/test_service.py` does). Written out here, so that the suite can
split, count and repeat them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headrace_common.operations.errors import ProtocolError
from headrace_logjam.client import MESSAGE_FRAMES, TOPIC, LogjamClient
from headrace_logjam.wire import joined, split

from tests.contract.dialect import Conversation, Dialect

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


class LogjamConversation(Conversation):
    """Frames of many messages: each is answered, in order."""

    def __init__(self) -> None:
        super().__init__(LogjamClient(app_envs=1))
        self._data = b""
        self._frames: list[bytes] = []

    def again(self) -> None:
        self._data, self._frames = b"", []
        super().again()

    def _greeted(self, frame: bytes) -> bytes:
        """As it is on the wire."""
        frames = split(frame)
        return b"".join(message(frames[at : at + MESSAGE_FRAMES]) for at in range(0, len(frames), MESSAGE_FRAMES))

    def receive(self, data: bytes) -> list[object]:
        self._data += data
        found: list[object] = []
        while len(self._data) > (width := 8 if self._data[:1] and self._data[0] & LONG else 1):
            flags, end = self._data[0], 1 + width + int.from_bytes(self._data[1 : 1 + width], "big")
            if len(self._data) < end:
                break
            body, self._data = self._data[1 + width : end], self._data[end:]
            if flags & COMMAND:
                if not body.startswith((b"\4PING", b"\5READY")):
                    raise ProtocolError(f"the command {body!r}")
                continue
            self._frames.append(body)
            if not flags & MORE:
                found += super().receive(joined(self._frames))
                self._frames = []
        return found


class LogjamDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "logjam"
    connection = False
    added = frozenset({"request_id", "started_ms"})
    malformed = b"GET / HTTP/1.1\r\n\r\n"
    sections = MappingProxyType({"logjam": {"pull_port": 0}})

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

    def stream(self, record_headers: Mapping[str, bytes]) -> None:
        assert record_headers["ce_subject"].endswith(b"/" + TOPIC)
        assert record_headers["ce_id"].startswith(b"d.")
