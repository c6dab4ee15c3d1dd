"""Drives an OTLP session as a connection and a publisher would, with no event loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Peer
from headrace_otlp.logs import PROTOBUF, wrapped
from headrace_otlp.session import OtlpSession
from headrace_otlp.wire import request
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tests import driving
from tests.driving import PEER, feed_all, parts_of, with_constants

ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]+\r\n((?:[^\r]+\r\n)*)\r\n")
NANOSECONDS = 1_544_712_660_300_000_001
HOST = "web-1"
NAMED = ResourceLogs(
    resource=Resource(attributes=[KeyValue(key="host.name", value=AnyValue(string_value=HOST))])
).SerializeToString()
"""What says of whom the records are."""


@dataclass(frozen=True)
class Answered:
    """A response."""

    status: int
    lines: list[str]
    body: bytes

    @property
    def last(self) -> bool:
        return "Connection: close" in self.lines

    @property
    def rejected(self) -> int:
        if self.body.startswith(b"{"):
            return int(orjson.loads(self.body).get("partialSuccess", {}).get("rejectedLogRecords", 0))
        return int(ExportLogsServiceResponse.FromString(self.body).partial_success.rejected_log_records)


def answers(data: bytes) -> list[Answered]:
    """All responses in these bytes."""
    found = []
    while data:
        match = ANSWER.match(data)
        assert match, data
        lines = match[2].decode().split("\r\n")[:-1]
        size = next((int(line.split(": ")[1]) for line in lines if line.startswith("Content-Length")), 0)
        found.append(Answered(int(match[1]), lines, data[match.end() : match.end() + size]))
        data = data[match.end() + size :]
    return found


def session(peer: Peer = PEER, problems: Callable[[], list[str]] = list, **limits: Any) -> OtlpSession:
    """With the default limits, but for those named."""
    return OtlpSession(peer, with_constants(LimitSettings, limits)(**limits), problems)


@dataclass
class Outcome(driving.Outcome):
    """All that came of some bytes."""

    said: bytes = b""
    over: bool = False

    @property
    def answers(self) -> list[Answered]:
        return answers(self.said)

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]

    @property
    def told(self) -> list[tuple[int, int]]:
        """Of each answer its status and how many records it says are in quarantine."""
        return [(answer.status, answer.rejected) for answer in self.answers]

    def comparable(self) -> Any:
        return *super().comparable(), self.said, self.over


def drive(pieces: Iterable[bytes], *, end: bool = True, peer: Peer = PEER, **limits: Any) -> Outcome:
    """Feeds `pieces`; each request is stored at once. `end`: then the peer ends, if nothing was wrong."""
    driven, outcome = session(peer, **limits), Outcome()

    def serve() -> None:
        for frame in driven.frames():
            parts = parts_of(frame, grows=True)
            outcome.parts.append(parts)
            driven.stored(frame.ticket, len(parts), True)
        while reply := driven.outgoing():
            outcome.said += reply
        outcome.over = driven.over

    feed_all(driven, pieces, outcome, serve, end=end)
    return outcome


every_way: Callable[..., Outcome] = partial(driving.the_same_every_way, drive)


def record(text: str = "one", **more: Any) -> bytes:
    """A log record in protobuf."""
    made = LogRecord(**{"time_unix_nano": NANOSECONDS, **more})
    made.body.string_value = text
    return made.SerializeToString()


def body(*records: bytes, resource: bytes = NAMED, scope: bytes = b"") -> bytes:
    """A request's body in protobuf."""
    return wrapped(resource, scope, records)


def sent(*records: bytes) -> bytes:
    """A request in protobuf."""
    return request(body(*records), PROTOBUF)


def raw(lines: str, content: bytes = b"") -> bytes:
    """A request of these lines."""
    return lines.replace("\n", "\r\n").encode() + b"\r\n\r\n" + content


def chunked(content: bytes, size: int) -> bytes:
    """A request whose body comes in chunks of so many bytes."""
    pieces = [content[at : at + size] for at in range(0, len(content), size)] + [b""]
    body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces)
    lines = "POST /v1/logs HTTP/1.1\nHost: a\nContent-Type: application/x-protobuf\nTransfer-Encoding: chunked"
    return raw(lines, body)
