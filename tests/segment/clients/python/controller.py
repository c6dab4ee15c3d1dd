"""Answers where the segments of streams are, as Pravega's controller does, of one segment store.

    python controller.py HOST PORT

Prints the port that it listens on. Creating a stream creates its segments; its own memory ends with it, the segments stay.
"""

from __future__ import annotations

import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import controller_pb2 as say
import controller_pb2_grpc as served
import grpc

HELLO, CREATE_SEGMENT, SEGMENT_CREATED, SEGMENT_EXISTS = -127, 20, 21, 52


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def message(kind: int, body: bytes) -> bytes:
    return struct.pack(">ii", kind, len(body)) + body


class Controller(served.ControllerServiceServicer):  # type: ignore[misc] # what grpc generates has no types
    def __init__(self, host: str, port: int) -> None:
        self.store = host, port
        self.streams: dict[tuple[str, str], int] = {}

    def createScope(self, asked: Any, context: Any) -> Any:
        return say.Done()

    def createStream(self, asked: Any, context: Any) -> Any:
        about, count = asked.streamInfo, max(1, asked.scalingPolicy.minNumSegments)
        for number in range(count):
            self.create(f"{about.scope}/{about.stream}/{number}.#epoch.0")
        self.streams[about.scope, about.stream] = count
        return say.Done()

    def create(self, segment: str) -> None:
        """Creates a segment that may exist."""
        body = struct.pack(">q", 1) + text(segment) + struct.pack(">ib", 0, 0) + text("") + struct.pack(">q", 0)
        with socket.create_connection(self.store) as connection, connection.makefile("rb") as replies:
            connection.sendall(message(HELLO, struct.pack(">ii", 17, 5)) + message(CREATE_SEGMENT, body))
            for expected in ((HELLO,), (SEGMENT_CREATED, SEGMENT_EXISTS)):
                kind, length = struct.unpack(">ii", replies.read(8))
                replies.read(length)
                if kind not in expected:
                    raise OSError(f"{segment}: a reply of type {kind}")

    def getCurrentSegments(self, asked: Any, context: Any) -> Any:
        ids = self.segments(asked)
        count = len(ids)
        return say.SegmentRanges(
            segmentRanges=[
                say.SegmentRange(segmentId=each, minKey=number / count, maxKey=(number + 1) / count)
                for number, each in enumerate(ids)
            ]
        )

    def segments(self, stream: Any) -> list[Any]:
        count = self.streams[stream.scope, stream.stream]
        return [say.SegmentId(streamInfo=stream, segmentId=number) for number in range(count)]

    def getURI(self, asked: Any, context: Any) -> Any:
        return say.NodeUri(endpoint=self.store[0], port=self.store[1])

    def getDelegationToken(self, asked: Any, context: Any) -> Any:
        return say.DelegationToken()

    def isSegmentValid(self, asked: Any, context: Any) -> Any:
        return say.SegmentValidityResponse(response=True)


server = grpc.server(ThreadPoolExecutor(4))
served.add_ControllerServiceServicer_to_server(Controller(sys.argv[1], int(sys.argv[2])), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
