"""A client like rsyslog's omrelp: open, then messages of RFC 5424, each answered by its number. Pure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.event import rfc3339_ms
from headrace_common.session.client import STREAM, Answer, OrderedClient, Remark
from typing_extensions import override

from headrace_syslog.wire.relp import ANSWER, GOODBYE, OPEN, SYSLOG, RelpDecoder, RelpFrame


class RelpClient(OrderedClient):
    """Each message names itself by a number (RFC 5424, 7.3.1). A frame is messages that are answered one by one."""

    named = True
    elsewhere = True
    malformed = b"\x16\x03\x01\x02\x00\x01\x00\x01"

    def __init__(self) -> None:
        super().__init__()
        self._proc_id = os.urandom(8).hex()
        self._sequence = count(1)
        self._firsts = [2]  # by frame, and of the next one: the number of its first message, behind that of `open`
        self.again()

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        at, number = rfc3339_ms(time.time_ns() // 10**6).decode(), next(self._sequence)
        header = f'<14>1 {at} - {STREAM} {self._proc_id} - [meta sequenceId="{number}"] '  # 14: user.info
        return header.encode() + orjson.dumps(dict(event))

    @override
    def broken(self, event: Mapping[str, Any]) -> bytes:
        """Returns nothing: any bytes are a message."""
        return b""

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        self._next(len(documents))
        first = self._firsts[-1]
        self._firsts.append(first + len(documents))
        return b"".join(RelpFrame(number, SYSLOG, each).encode() for number, each in enumerate(documents, first))

    @override
    def again(self) -> bytes:
        super().again()
        self._answered = 0  # of the oldest frame that is under way
        self._replies = RelpDecoder(64 << 10)
        return RelpFrame(1, OPEN, b"relp_version=1\nrelp_software=headrace\ncommands=syslog").encode()

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        return [self._heard(reply) for reply in self._replies.receive_all(data)]

    def _heard(self, reply: RelpFrame) -> Answer | Remark:
        if reply.command == GOODBYE or (reply.command == ANSWER and reply.number == 1):
            return Remark(f"{reply.command.decode()} {reply.data.decode(errors='replace')}")
        if reply.command != ANSWER or not reply.data.startswith(b"200") or not self._under_way:
            raise ProtocolError(f"a reply {reply.command!r} to {reply.number}: {reply.data[:80]!r}")
        frame = self._under_way[0]
        if reply.number != self._firsts[frame] + self._answered:
            raise ProtocolError(f"an answer to {reply.number}, not to {self._firsts[frame] + self._answered}")
        self._answered += 1
        answer = self._answer(frame, self._answered)
        if answer.whole:
            self._under_way.popleft()
            self._answered = 0
        return answer
