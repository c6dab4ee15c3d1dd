"""A client like rsyslog's omrelp: open, then messages of RFC 5424, each answered by its number. Pure."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import STREAM, Answer, Client, Remark
from typing_extensions import override

from headrace_syslog.wire.relp import ANSWER, GOODBYE, OPEN, SYSLOG, RelpDecoder, RelpFrame

REPLY_BYTES: Final = 64 << 10
"""Maximum size of a server's reply."""

PRIORITY: Final = 14
"""user.info"""


class RelpClient(Client):
    """Each message names itself by a number (RFC 5424, 7.3.1). A frame is messages that are answered one by one."""

    named = True
    elsewhere = True
    malformed = b"\x16\x03\x01\x02\x00\x01\x00\x01"

    def __init__(self) -> None:
        super().__init__()
        self._proc_id = os.urandom(8).hex()
        self._sequence = count(1)
        self._last = 1  # number of the last frame; the first is that of `open`
        self._firsts: list[int] = []  # by frame: the number of its first message
        self._answered: dict[int, int] = {}  # on this connection
        self._replies = RelpDecoder(REPLY_BYTES)

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        seconds, fraction = divmod(time.time_ns() // 1000, 10**6)
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:06d}Z"
        header = f'<{PRIORITY}>1 {at} - {STREAM} {self._proc_id} - [meta sequenceId="{next(self._sequence)}"] '
        return header.encode() + orjson.dumps(dict(event))

    @override
    def broken(self, event: Mapping[str, Any]) -> bytes:
        """Returns nothing: any bytes are a message."""
        return b""

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        self._next(len(documents))
        self._firsts.append(self._last + 1)
        self._last += len(documents)
        frames = (RelpFrame(number, SYSLOG, each) for number, each in enumerate(documents, self._firsts[-1]))
        return b"".join(frame.encode() for frame in frames)

    @override
    def again(self) -> bytes:
        self._answered.clear()
        self._replies.close()
        self._replies = RelpDecoder(REPLY_BYTES)
        return RelpFrame(1, OPEN, b"relp_version=1\nrelp_software=headrace\ncommands=syslog").encode()

    @override
    def repeat(self, frame: int) -> None:
        """Notes that none of it is answered: its numbers stay."""
        self._answered.pop(frame, None)

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        return [self._heard(reply) for reply in self._replies.receive_all(data)]

    def _heard(self, reply: RelpFrame) -> Answer | Remark:
        if reply.command == GOODBYE or (reply.command == ANSWER and reply.number == 1):
            return Remark(f"{reply.command.decode()} {reply.data.decode(errors='replace')}")
        frame = bisect_right(self._firsts, reply.number) - 1
        if reply.command != ANSWER or not reply.data.startswith(b"200") or frame < 0:
            raise ProtocolError(f"a reply {reply.command!r} to {reply.number}: {reply.data[:80]!r}")
        count = reply.number - self._firsts[frame] + 1
        if count != self._answered.get(frame, 0) + 1:
            raise ProtocolError(f"an answer to message {count} of a frame after that to {self._answered.get(frame, 0)}")
        answer = self._answer(frame, count)
        self._answered[frame] = count
        return answer
