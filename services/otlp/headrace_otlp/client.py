"""A client like an exporter of OpenTelemetry, in protobuf. Pure."""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import STREAM, Answer, OrderedClient, Remark
from headrace_common.session.inflate import zstd
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs
from typing_extensions import override

from headrace_otlp.logs import PROTOBUF, wrapped
from headrace_otlp.wire import request

_ANSWER: Final = re.compile(
    rb"HTTP/1\.1 (?P<status>\d{3}) [^\r\n]*\r\nContent-Type: [^\r\n]*\r\nContent-Length: (?P<size>\d+)\r\n(?:[^\r\n]+\r\n)*\r\n"
)
_LONGEST: Final = 64 << 10
"""Bytes of an answer."""


def any_value(value: Any) -> dict[str, Any]:
    """Returns an AnyValue, in JSON, of what JSON can hold."""
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": [{"key": key, "value": any_value(item)} for key, item in value.items()]}}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": list(map(any_value, value))}}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {} if value is None else {"stringValue": str(value)}


class OtlpClient(OrderedClient):
    """A frame is one request; the event is the body of a log record. A refused request ends its connection."""

    named = True  # by its time
    malformed = b"\x16\x03\x01\x02\x00\x01\x00\x01"
    encoding = PROTOBUF

    def __init__(self, compression: str | None = None) -> None:
        super().__init__(compression)
        self._latest = 0
        self._instance = os.urandom(16).hex()
        self._said = b""

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        self._latest = max(self._latest + 2, time.time_ns() | 1)  # odd: finer than a millisecond
        record = {
            "timeUnixNano": str(self._latest),
            "observedTimeUnixNano": str(self._latest),
            "body": any_value(event),
        }
        return self._encoded(record, LogRecord())

    def _encoded(self, value: dict[str, Any], message: Message) -> bytes:
        encoded: bytes = ParseDict(value, message).SerializeToString()
        return encoded

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        names = {"service.name": STREAM, "service.instance.id": self._instance}
        about = {"resource": {"attributes": any_value(names)["kvlistValue"]["values"]}}
        content = wrapped(self._encoded(about, ResourceLogs()), b"", documents, self.encoding)
        self._next(len(documents))
        if self.compression == "gzip":
            content = gzip.compress(content, 6, mtime=0)
        elif self.compression == "zstd":
            content = zstd.compress(content)
        return request(content, self.encoding, self.compression)

    @override
    def again(self) -> bytes:
        self._said = b""
        return super().again()

    @override
    def receive(self, data: bytes) -> list[Answer | Remark]:
        self._said += data
        found: list[Answer | Remark] = []
        while match := _ANSWER.match(self._said):
            if len(self._said) < (end := match.end() + int(match["size"])):
                break
            self._said = self._said[end:]
            found.append(self._meaning(int(match["status"]), ends=b"Connection: close" in match[0]))
        if len(self._said) > _LONGEST:
            raise ProtocolError("not an answer of HTTP")
        return found

    def _meaning(self, status: int, *, ends: bool) -> Answer | Remark:
        """A 200, and a 400 after which the connection goes on, mean that all of the request is stored."""
        if not (status == 200 or (status == 400 and not ends)) or not self._under_way:
            return Remark(str(status))
        frame = self._under_way.popleft()
        return self._answer(frame, self._sizes[frame])
