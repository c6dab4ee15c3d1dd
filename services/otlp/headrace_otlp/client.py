"""A client like an exporter of OpenTelemetry, in protobuf. Pure."""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace_common.session.client import STREAM, Answer, OrderedClient, Remark
from headrace_common.session.inflate import zstd
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from typing_extensions import override

from headrace_otlp.logs import PROTOBUF, wrapped
from headrace_otlp.wire import request

_ANSWER: Final = re.compile(
    rb"(?i)HTTP/1\.1 (?P<status>\d{3}) .*\r\n(?:.+\r\n)*?Content-Length: (?P<size>\d+)\r\n(?:.+\r\n)*\r\n"
)


def any_value(value: Any) -> AnyValue:
    """Returns an AnyValue of what JSON can hold."""
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=attributes(value)))
    if isinstance(value, (list, tuple)):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    kind = {bool: "bool_value", int: "int_value", float: "double_value"}.get(type(value), "string_value")
    return AnyValue(**{kind: value})


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    """Returns the pairs of an object."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


class OtlpClient(OrderedClient):
    """A frame is one request; the event is the body of a log record. A refused request ends its connection."""

    named = True  # by its time
    malformed = b"\x16\x03\x01\x02\x00\x01\x00\x01"

    def __init__(self, compression: str | None = None) -> None:
        super().__init__(compression)
        self._latest = 0
        names = {"service.name": STREAM, "service.instance.id": os.urandom(16).hex()}
        self.about: bytes = ResourceLogs(resource=Resource(attributes=attributes(names))).SerializeToString()
        """What each request says of its resource, in protobuf."""
        self._said = b""

    @override
    def document(self, event: Mapping[str, Any]) -> bytes:
        self._latest = latest = max(self._latest + 2, time.time_ns() | 1)  # odd: finer than a millisecond
        made = LogRecord(time_unix_nano=latest, observed_time_unix_nano=latest, body=any_value(event))
        return bytes(made.SerializeToString())

    @override
    def payload(self, documents: Sequence[bytes]) -> bytes:
        content = wrapped(self.about, b"", documents)
        self._next(len(documents))
        if self.compression == "gzip":
            content = gzip.compress(content, 6, mtime=0)
        elif self.compression == "zstd":
            content = zstd.compress(content)
        return request(content, PROTOBUF, self.compression)

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
            found.append(self._meaning(int(match["status"]), ends=b"close" in match[0]))
        return found

    def _meaning(self, status: int, *, ends: bool) -> Answer | Remark:
        """A 200, and a 400 after which the connection goes on, mean that all of the request is stored."""
        if not (status == 200 or (status == 400 and not ends)) or not self._under_way:
            return Remark(str(status))
        frame = self._under_way.popleft()
        return self._answer(frame, self._sizes[frame])
